//! The progress of the receives of a TOE QP in the stream.
//!
//! Positions here count from the first byte that the QP gets. The bytes that the guest's kernel had
//! received before the takeover come first, so they differ from the positions of TCP by the number
//! of those bytes.

use arrayvec::ArrayVec;
use vrnic_tcp::{Share, StreamPos};

/// Maximum number of ends of segments with PSH that are remembered.
const MARKS: usize = 16;

/// The progress of the end of the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamEnd {
    /// The peer may send more.
    #[default]
    Open,
    /// The peer has closed its direction, and a receive without bytes must report this.
    Due,
    /// That receive has completed.
    Told,
}

/// The requests of the program to complete the receive in progress with the bytes that it has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Release {
    /// The word that the program changes with each request.
    seen: u32,
    /// True if there was a request that has not been carried out.
    due: bool,
}

impl Release {
    /// Records the value of the word. Returns whether a request must be carried out.
    pub const fn look(&mut self, word: u32) -> bool {
        self.due |= word != self.seen;
        self.seen = word;
        self.due
    }

    /// Returns whether a request must be carried out.
    #[must_use]
    pub const fn is_due(&self) -> bool {
        self.due
    }

    /// Records that the requests have been carried out.
    pub const fn done(&mut self) {
        self.due = false;
    }
}

/// The progress of the receives.
#[derive(Debug, Default)]
pub struct Receives {
    /// Number of bytes in the receive that is being filled.
    pub filled: u64,
    /// True if the sink takes nothing until a turn asks again.
    pub held: bool,
    /// True if no more bytes go to receives, because they belong to RDMA messages.
    pub stopped: bool,
    /// True if it has stopped because the time of the poll was over.
    pub tired: bool,
    /// The progress of the end of the stream.
    pub end: StreamEnd,
    /// The requests of the program to complete the receive in progress.
    pub release: Release,
    /// Number of bytes that are in receives, including those that are complete.
    put: u64,
    /// The bytes that the guest's kernel had received.
    early: Vec<u8>,
    share: Share,
    /// Their number. It stays when they are in receives.
    base: u64,
    /// The ends of segments with PSH at which a receive completes, in ascending order; `None` if
    /// receives complete only when they are full.
    marks: Option<ArrayVec<u64, MARKS>>,
}

/// Bytes of the guest's kernel.
#[derive(Debug)]
pub struct EarlyBytes {
    all: Vec<u8>,
    from: usize,
}

impl EarlyBytes {
    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.all.get(self.from..).unwrap_or_default()
    }
}

impl Receives {
    /// Creates the state for a QP whose kernel had received these bytes, which are counted in
    /// `share` until they are in receives. `push` is true if receives also complete at PSH.
    #[must_use]
    pub fn new(early: Vec<u8>, share: Share, push: bool) -> Self {
        let base = early.len() as u64;
        let mut marks = push.then(ArrayVec::new);
        if let Some(marks) = marks.as_mut().filter(|_| base > 0) {
            marks.push(base);
        }
        Self { early, share, base, marks, ..Self::default() }
    }

    /// Returns the bytes of the guest's kernel that are not in receives.
    #[must_use]
    pub fn early(&self) -> &[u8] {
        let from = usize::try_from(self.put).unwrap_or(usize::MAX);
        self.early.get(from..).unwrap_or_default()
    }

    /// Takes the bytes of the guest's kernel that are not in receives out. They must be put back.
    #[must_use]
    pub fn take_early(&mut self) -> EarlyBytes {
        let from = usize::try_from(self.put).unwrap_or(usize::MAX).min(self.early.len());
        EarlyBytes { all: std::mem::take(&mut self.early), from }
    }

    /// Puts the bytes of the guest's kernel back, unless all of them are in receives.
    pub fn put_back(&mut self, early: EarlyBytes) {
        if self.put < self.base {
            self.early = early.all;
        } else {
            self.share.give_all_back();
        }
    }

    /// Appends the bytes of the guest's kernel that are not in receives to `first`, which is
    /// counted in `share`. Returns both: exactly these bytes are counted then.
    #[must_use]
    pub fn hand_over(self, mut first: Vec<u8>, mut share: Share) -> (Vec<u8>, Share) {
        let early = self.early();
        first.reserve_exact(early.len());
        first.extend_from_slice(early);
        share.merge(self.share);
        share.give_back(share.used().saturating_sub(first.len()));
        (first, share)
    }

    /// Returns the number of bytes of memory that it keeps, apart from its own fixed size.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.early.len()
    }

    /// Returns the number of bytes that are counted in the memory for connections.
    #[must_use]
    pub const fn charged(&self) -> usize {
        self.share.used()
    }

    /// Returns whether receives complete only when they are full, so that the place of each byte of
    /// the stream is known before the bytes in front of it have arrived.
    #[must_use]
    pub const fn are_filled(&self) -> bool {
        self.marks.is_none()
    }

    /// Returns the position of TCP at which the receive in progress begins, if it began after the
    /// bytes of the guest's kernel.
    #[must_use]
    pub fn start(&self) -> Option<StreamPos> {
        self.put.checked_sub(self.base + self.filled).map(StreamPos)
    }

    /// Returns the number of bytes up to the next end of a segment with PSH, or the maximum.
    #[must_use]
    pub fn until_mark(&self) -> u64 {
        let mark = self.marks.as_ref().and_then(|marks| marks.first());
        mark.map_or(u64::MAX, |mark| mark.saturating_sub(self.put))
    }

    /// Records the position of TCP after a segment with PSH. It may be any number that a peer has
    /// chosen. With many of them, only later ones are kept: a receive then completes later, with
    /// more bytes.
    pub fn mark(&mut self, at: StreamPos) {
        let at = at.0.saturating_add(self.base);
        let Some(marks) = self.marks.as_mut().filter(|_| at > self.put) else { return };
        let nth = marks.partition_point(|mark| *mark < at);
        if marks.get(nth) == Some(&at) {
            return;
        }
        if marks.try_insert(nth, at).is_err()
            && let Some(last) = marks.last_mut().filter(|last| **last < at)
        {
            *last = at;
        }
    }

    /// Records that bytes of the guest's kernel were taken by another consumer than receives.
    pub const fn pass(&mut self, bytes: u64) {
        self.put = self.put.saturating_add(bytes);
    }

    /// Records that bytes were put into the receive in progress. Returns whether a segment with PSH
    /// has ended there.
    pub fn advance(&mut self, bytes: u64) -> bool {
        self.put = self.put.saturating_add(bytes);
        self.filled = self.filled.saturating_add(bytes);
        let put = self.put;
        let Some(marks) = &mut self.marks else { return false };
        let before = marks.len();
        marks.retain(|mark| *mark > put);
        marks.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_kept_in_order_and_in_bounds() {
        let mut receives = Receives::new(Vec::new(), Share::default(), true);
        for at in [500, 100, 300, 100] {
            receives.mark(StreamPos(at));
        }
        assert_eq!(receives.until_mark(), 100);
        assert!(!receives.advance(99) && receives.advance(1));
        // A mark that was passed is none.
        receives.mark(StreamPos(50));
        assert_eq!(receives.until_mark(), 200);
        for at in 1000..2000 {
            receives.mark(StreamPos(at));
        }
        receives.mark(StreamPos(u64::MAX));
        assert!(receives.advance(1000), "marks were passed");
        let mut passes = 0;
        while receives.until_mark() < u64::MAX / 2 {
            receives.advance(receives.until_mark());
            passes += 1;
        }
        assert!(passes <= MARKS);
    }

    #[test]
    fn bytes_of_the_kernel_come_first() {
        let mut receives = Receives::new(b"early".to_vec(), Share::default(), false);
        assert_eq!((receives.early(), receives.start()), (&b"early"[..], None));
        assert!(!receives.advance(3));
        assert_eq!((receives.early(), receives.start()), (&b"ly"[..], None));
        receives.filled = 0;
        assert!(!receives.advance(2));
        assert_eq!((receives.early(), receives.start()), (&b""[..], None));
        assert!(!receives.advance(4));
        assert_eq!(receives.start(), None, "it began with bytes of the kernel");
        receives.filled = 0;
        assert_eq!(receives.start(), Some(StreamPos(4)));
        assert!(Receives::new(b"x".to_vec(), Share::default(), true).until_mark() == 1);
    }
}
