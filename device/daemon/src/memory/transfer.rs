//! A transfer of bytes that the VMM reads or writes for the adapter.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vrnic_adapter::host::HandedOver;

use super::messages::Unanswered;

/// A range of guest addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// The first address.
    pub(super) addr: u64,
    /// The length in bytes.
    pub(super) len: usize,
}

impl Span {
    /// Returns the offset of an address in the range, if it is inside.
    fn offset(&self, addr: u64) -> Option<usize> {
        let offset = usize::try_from(addr.checked_sub(self.addr)?).ok()?;
        (offset < self.len).then_some(offset)
    }

    /// Returns whether it has addresses in common with another range.
    pub(super) fn overlaps(&self, addr: u64, len: u64) -> bool {
        let end = |addr: u64, len: u64| u128::from(addr) + u128::from(len);
        u128::from(self.addr) < end(addr, len) && u128::from(addr) < end(self.addr, self.len as u64)
    }
}

/// The direction of a transfer.
#[derive(Debug)]
pub(super) enum Direction {
    /// From the guest, for the message with this number.
    Read(u64),
    /// To the guest: these bytes, which are compared when the write is tried again.
    Write(Arc<[u8]>),
    /// To the guest: these bytes, which the writer has handed over.
    HandedOver(Vec<u8>, Claim),
}

/// The claim of a writer that the bytes of a transfer are written. It fails when this is dropped
/// before.
#[derive(Debug)]
pub(super) struct Claim {
    progress: Arc<HandedOver>,
    /// Number of bytes that are not written.
    left: u64,
}

impl Claim {
    pub(super) fn new(progress: &Arc<HandedOver>, bytes: usize) -> Self {
        let mut this = Self { progress: Arc::clone(progress), left: 0 };
        this.add(bytes);
        this
    }

    fn add(&mut self, bytes: usize) {
        self.left += bytes as u64;
        self.progress.add(bytes as u64);
    }

    /// Records that all bytes are written.
    pub(super) fn written(&mut self) {
        self.progress.written(std::mem::take(&mut self.left));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.left > 0 {
            self.progress.fail();
        }
    }
}

/// The progress of a transfer.
#[derive(Debug)]
pub(super) enum Stage {
    /// The transfer has not begun.
    Waiting,
    /// The transfer is with the VMM.
    Running,
    /// The transfer has succeeded, with the bytes of a read.
    Done(Arc<[u8]>, Instant),
    /// The transfer has failed.
    Failed(Instant),
}

#[derive(Debug)]
pub(super) struct Transfer {
    /// The number among all transfers of the adapter.
    pub(super) number: u64,
    pub(super) span: Span,
    pub(super) direction: Direction,
    pub(super) stage: Stage,
    /// The number of bytes, from its start on, that accesses have used.
    used: usize,
}

impl Transfer {
    pub(super) fn new(number: u64, span: Span, direction: Direction) -> Self {
        Self { number, span, direction, stage: Stage::Waiting, used: 0 }
    }

    /// Returns whether it is a read.
    pub(super) fn is_read(&self) -> bool {
        matches!(self.direction, Direction::Read(_))
    }

    /// Returns whether it is a write that is tried again.
    pub(super) fn is_write(&self) -> bool {
        matches!(self.direction, Direction::Write(_))
    }

    /// Returns whether its bytes were handed over.
    pub(super) fn is_handed_over(&self) -> bool {
        matches!(self.direction, Direction::HandedOver(..))
    }

    /// Returns whether it reads for a message before this one.
    pub(super) fn is_read_before(&self, message: u64) -> bool {
        matches!(self.direction, Direction::Read(own) if own < message)
    }

    /// Returns whether it reads the byte at an address, for a message.
    pub(super) fn reads(&self, message: u64, addr: u64) -> bool {
        matches!(self.direction, Direction::Read(own) if own == message)
            && self.span.offset(addr).is_some()
    }

    /// Returns the number of bytes of the range from an address on.
    pub(super) fn left(&self, addr: u64) -> usize {
        self.span.offset(addr).map_or(0, |offset| self.span.len - offset)
    }

    /// Adds bytes to a transfer that has not begun, up to `most` bytes in all, if they follow those
    /// that were handed over with the same progress. Returns whether they were added.
    pub(super) fn extend(
        &mut self,
        addr: u64,
        from: &[u8],
        progress: &Arc<HandedOver>,
        most: usize,
    ) -> bool {
        let follows = self.is_waiting()
            && self.span.addr.checked_add(self.span.len as u64) == Some(addr)
            && self.span.len.saturating_add(from.len()) <= most;
        match &mut self.direction {
            Direction::HandedOver(bytes, claim)
                if follows && Arc::ptr_eq(&claim.progress, progress) =>
            {
                bytes.extend_from_slice(from);
                claim.add(from.len());
                self.span.len += from.len();
                true
            }
            _ => false,
        }
    }

    /// Returns whether it writes the first of these bytes to an address, as far as it goes. The
    /// bytes are compared, because an operation that is tried again may have others.
    pub(super) fn writes(&self, addr: u64, bytes: &[u8]) -> bool {
        let Direction::Write(own) = &self.direction else { return false };
        let Some(own) = self.span.offset(addr).and_then(|offset| own.get(offset..)) else {
            return false;
        };
        let len = own.len().min(bytes.len());
        len > 0 && own.get(..len) == bytes.get(..len)
    }

    /// Returns whether it has written other or the same bytes from an address on.
    pub(super) fn has_written(&self, addr: u64) -> bool {
        self.is_write() && self.span.addr == addr && matches!(self.stage, Stage::Done(..))
    }

    /// Returns the bytes of a read that has succeeded, and the offset of an address in them. Up to
    /// `len` bytes from there on count as used.
    pub(super) fn take(&mut self, addr: u64, len: usize) -> Option<(Arc<[u8]>, usize)> {
        let Stage::Done(bytes, _) = &self.stage else { return None };
        let (bytes, offset) = (Arc::clone(bytes), self.span.offset(addr)?);
        self.used = self.used.max(offset.saturating_add(len).min(self.span.len));
        Some((bytes, offset))
    }

    /// Returns the number of bytes from an address on, up to `len`, that a write has written. They
    /// count as used.
    pub(super) fn confirm(&mut self, addr: u64, len: usize) -> Option<usize> {
        let Stage::Done(..) = &self.stage else { return None };
        let offset = self.span.offset(addr)?;
        let end = offset.saturating_add(len).min(self.span.len);
        self.used = self.used.max(end);
        Some(end - offset)
    }

    /// Returns whether accesses have used all of its bytes.
    pub(super) fn is_used(&self) -> bool {
        self.used == self.span.len
    }

    /// Returns whether it has not begun.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Waiting)
    }

    /// Returns whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::Done(..) | Stage::Failed(_))
    }

    /// Returns whether it has failed.
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.stage, Stage::Failed(_))
    }

    /// Makes it fail, whether or not it has ended.
    pub(super) fn fail(&mut self) {
        self.stage = Stage::Failed(Instant::now());
    }

    /// Records the result, unless it has been made to fail.
    pub(super) fn finish(&mut self, result: Result<Option<Vec<u8>>, Unanswered>) {
        let now = Instant::now();
        if let (Direction::HandedOver(_, claim), Ok(_)) = (&mut self.direction, &result) {
            claim.written();
        }
        if matches!(self.stage, Stage::Running) {
            self.stage = match result {
                Ok(bytes) => Stage::Done(bytes.unwrap_or_default().into(), now),
                Err(_) => Stage::Failed(now),
            };
        }
    }

    /// Returns whether it ended longer than `age` before `now`.
    pub(super) fn is_older(&self, age: Duration, now: Instant) -> bool {
        match self.stage {
            Stage::Waiting | Stage::Running => false,
            Stage::Done(_, at) | Stage::Failed(at) => now.saturating_duration_since(at) > age,
        }
    }
}
