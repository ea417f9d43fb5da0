//! Copies several entries out of a send queue at once. They come from another processor's cache, so
//! that one wait serves several.

use std::ops::Range;

use vrnic_abi::sq::STRIDE_MAX;

use crate::datapath::turn::TurnContext;
use crate::host::{HeldMemory, Host};
use crate::memory::device_sq::DeviceRing;
use crate::memory::pages::{EntryRun, Ring};
use crate::objects::qp::{Qp, SendRing};

/// Number of bytes that are copied at once: sixteen entries of the usual stride.
const BATCH_LEN: usize = 2048;
const _: () = assert!(BATCH_LEN >= STRIDE_MAX as usize);

/// Entries that were copied and have not been taken. Each worker has one batch. Entries that remain
/// at the end of a turn are copied again in the next one.
#[derive(Debug)]
pub struct Batch {
    bytes: Box<[u8; BATCH_LEN]>,
    stride: usize,
    rest: Range<usize>,
}

impl Default for Batch {
    fn default() -> Self {
        Self { bytes: Box::new([0; BATCH_LEN]), stride: 1, rest: 0..0 }
    }
}

impl Batch {
    /// Removes all entries.
    #[inline]
    pub fn clear(&mut self) {
        self.rest = 0..0;
    }

    /// Returns the bytes of an entry.
    #[inline]
    #[must_use]
    pub fn entry(&self, place: &Range<usize>) -> &[u8] {
        self.bytes.get(place.clone()).unwrap_or_default()
    }

    /// Stores a copy of an entry from elsewhere.
    #[inline]
    pub fn put(&mut self, entry: &[u8]) -> Range<usize> {
        self.clear();
        let len = entry.len().min(BATCH_LEN);
        if let (Some(to), Some(from)) = (self.bytes.get_mut(..len), entry.get(..len)) {
            to.copy_from_slice(from);
        }
        0..len
    }

    /// Returns the place of the entry `index` of the send queue after copying it, or `None` if it
    /// is not posted, or the adapter begins no more of them.
    ///
    /// # Errors
    /// Returns a description of the error in the queue.
    #[inline]
    pub fn take<H: Host>(
        &mut self,
        turn: &TurnContext<'_, H>,
        qp: &Qp<H>,
        index: u32,
    ) -> Result<Option<Range<usize>>, &'static str> {
        if self.rest.is_empty() {
            if turn.core.is_closing() && !qp.flushes_sends() {
                return Ok(None);
            }
            let filled = match &qp.sq {
                SendRing::None => 0,
                SendRing::Guest(ring) => self.fill_from_guest(turn, qp, ring, index)?,
                SendRing::Device(ring) => self.fill_from_device(turn.host(), ring, index)?,
            };
            if filled == 0 {
                return Ok(None);
            }
            self.rest = 0..filled;
        }
        let start = self.rest.start;
        self.rest.start += self.stride;
        if self.rest.is_empty()
            && let SendRing::Guest(ring) = &qp.sq
        {
            self.fetch_ahead(turn, qp, ring, index.wrapping_add(1));
        }
        Ok(Some(start..self.rest.start))
    }

    /// Prefetches the entries that are posted after the batch while its last one is executed.
    #[inline]
    fn fetch_ahead<H: Host>(&self, turn: &TurnContext<'_, H>, qp: &Qp<H>, ring: &Ring, index: u32) {
        let posted = turn.host().bar_load32(qp.doorbell.sq_pi()).wrapping_sub(index);
        if posted != 0
            && posted <= ring.size()
            && let Some(run) = ring.run_at(index, posted.min((BATCH_LEN / self.stride) as u32))
        {
            turn.memory.fetch_ahead(run.addr, run.count as usize * self.stride);
        }
    }

    /// Copies entries from a queue in guest memory. Returns their bytes.
    fn fill_from_guest<H: Host>(
        &mut self,
        turn: &TurnContext<'_, H>,
        qp: &Qp<H>,
        ring: &Ring,
        index: u32,
    ) -> Result<usize, &'static str> {
        let posted = turn.host().bar_load32(qp.doorbell.sq_pi()).wrapping_sub(index);
        if posted == 0 {
            return Ok(0);
        }
        if posted > ring.size() {
            return Err("its producer index is beyond the ring");
        }
        self.stride = ring.stride();
        let room = posted.min((BATCH_LEN / self.stride) as u32);
        let EntryRun { addr, count } =
            ring.run_at(index, room).ok_or("an entry is outside its memory")?;
        let len = count as usize * self.stride;
        let into = self.bytes.get_mut(..len).ok_or("stride")?;
        turn.memory.read(addr, into).map_err(|_| "its memory cannot be read")?;
        Ok(len)
    }

    /// Copies entries from a queue in device memory. Returns their bytes.
    fn fill_from_device<H: Host>(
        &mut self,
        host: &H,
        ring: &DeviceRing,
        index: u32,
    ) -> Result<usize, &'static str> {
        self.stride = ring.stride();
        let room = ring.left(index).min((BATCH_LEN / self.stride) as u32);
        let stamped = |nth: &u32| {
            let index = index.wrapping_add(*nth);
            host.bar_load32(ring.stamp(index)) == vrnic_abi::stamp(index)
        };
        let count = (0..room).take_while(stamped).count();
        let into = self.bytes.get_mut(..count * self.stride).ok_or("stride")?;
        if !into.is_empty() {
            host.bar_read(ring.entries(index, count as u32), into);
        }
        Ok(into.len())
    }
}
