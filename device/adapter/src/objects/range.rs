//! An address range of the window for direct transfers, and its registers
//! ([`vrnic_abi::direct`]).

use vrnic_abi::admin::RangeRegisters;
use vrnic_abi::direct::{Direction, Notice, RANGE_LEN};
use vrnic_abi::{GuestAddr, Qpn};

use crate::memory::tpt::Denied;

/// A transfer that a range is programmed for.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// The QP whose TRANSFER ends with it.
    pub qpn: Qpn,
    /// The RDMA operation.
    pub direction: Direction,
    /// How the adapter learns of the bytes that have been moved.
    pub notice: Notice,
    /// The first byte in packet memory.
    pub memory: GuestAddr,
    /// Bytes, 1 to [`RANGE_LEN`].
    pub length: u32,
    /// When it fails if it is not complete, on the host's clock.
    pub deadline: u64,
}

/// The stage of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There is no transfer.
    Idle,
    /// Data is awaited from the peer.
    Awaited,
    /// The controller may move bytes.
    Open,
    /// The controller has moved all bytes, and TRANSFER has not ended.
    Complete,
    /// It has failed, and TRANSFER has not ended.
    Failed(Denied),
}

/// An access of the controller to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Burst {
    /// It moves bytes at this address of packet memory.
    At(GuestAddr),
    /// It comes before the data that it wants to read.
    Early,
    /// It has no effect, and reads ones.
    Ignored,
}

/// Whether a TRANSFER ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It ends with success.
    Done,
    /// It waits.
    Later,
}

/// An address range.
#[derive(Debug)]
pub struct Range {
    transfer: Transfer,
    stage: Stage,
    /// True if a TRANSFER waits for the end of the transfer.
    waits: bool,
    /// A bit for each byte that the controller has moved. A controller may move a byte again.
    moved: [u64; RANGE_LEN as usize / 64],
    count: u32,
}

impl Default for Range {
    fn default() -> Self {
        let transfer = Transfer {
            qpn: Qpn::new(0),
            direction: Direction::Read,
            notice: Notice::Counted,
            memory: GuestAddr::new(0),
            length: 0,
            deadline: 0,
        };
        let moved = [0; RANGE_LEN as usize / 64];
        Self { transfer, stage: Stage::Idle, waits: false, moved, count: 0 }
    }
}

impl Range {
    /// Begins a transfer; returns false and changes nothing if the range takes part in one. So it
    /// does when the transfer has failed, as long as a TRANSFER is still to be told of that.
    #[must_use]
    pub fn arm(&mut self, transfer: Transfer) -> bool {
        if self.is_live() || self.stage == Stage::Complete || self.waits {
            return false;
        }
        let stage = match transfer.direction {
            Direction::Read => Stage::Awaited,
            Direction::Write => Stage::Open,
        };
        *self = Self { transfer, stage, ..Self::default() };
        true
    }

    /// The QP of the latest transfer.
    #[must_use]
    pub fn qpn(&self) -> Qpn {
        self.transfer.qpn
    }

    /// Returns whether there is a transfer that can still fail.
    #[must_use]
    pub fn is_live(&self) -> bool {
        matches!(self.stage, Stage::Awaited | Stage::Open)
    }

    /// Returns whether the time of a transfer is over.
    #[must_use]
    pub fn is_late(&self, now: u64) -> bool {
        self.is_live() && self.transfer.deadline <= now
    }

    /// The effect of a burst of `len` bytes at offset `within`, by which the controller stores
    /// (`Write`) or reads. One that leaves the bytes of the transfer fails it.
    pub fn burst(&mut self, direction: Direction, within: u32, len: u32) -> Burst {
        let transfer = self.transfer;
        let fits = transfer.direction == direction && transfer.notice == Notice::Counted;
        if !self.is_live() || !fits {
            return Burst::Ignored;
        }
        if within.checked_add(len).is_none_or(|end| end > transfer.length) {
            self.fail(Denied::Overrun);
            return Burst::Ignored;
        }
        match self.stage {
            Stage::Open => {
                transfer.memory.checked_add(within.into()).map_or(Burst::Ignored, Burst::At)
            }
            _ => Burst::Early,
        }
    }

    /// Counts the bytes that a burst has moved. Returns whether they complete the transfer.
    pub fn count(&mut self, within: u32, len: u32) -> bool {
        let end = within.saturating_add(len).min(self.transfer.length);
        let mut at = within;
        while at < end
            && let Some(word) = self.moved.get_mut(at as usize / 64)
        {
            let bits = (64 - at % 64).min(end - at);
            let mask = u64::MAX >> (64 - bits) << (at % 64);
            self.count += (mask & !*word).count_ones();
            *word |= mask;
            at += bits;
        }
        let complete = self.stage == Stage::Open && self.count == self.transfer.length;
        if complete {
            self.stage = Stage::Complete;
        }
        complete
    }

    /// The driver says that the controller has moved all bytes. Returns whether the transfer has
    /// ended by that: it has failed if the data was not there yet.
    pub fn finish(&mut self) -> bool {
        if !self.is_live() || self.transfer.notice != Notice::Mapped {
            return false;
        }
        if self.stage == Stage::Awaited {
            return self.fail(Denied::Early);
        }
        self.count(0, self.transfer.length)
    }

    /// Fails the transfer, if there is one. Returns whether that is so.
    pub fn fail(&mut self, why: Denied) -> bool {
        let live = self.is_live();
        if live {
            self.stage = Stage::Failed(why);
        }
        live
    }

    /// Fails the transfer if its data is still awaited. Returns whether that is so.
    pub fn give_up(&mut self) -> bool {
        self.stage == Stage::Awaited && self.fail(Denied::Early)
    }

    /// Ends the transfer, whatever its stage. Returns whether a TRANSFER may wait for it.
    pub fn end(&mut self) -> bool {
        if self.stage == Stage::Complete {
            self.stage = Stage::Failed(Denied::Ended);
            return true;
        }
        self.fail(Denied::Ended)
    }

    /// Executes a TRANSFER of this QP. The first one of a READ lets the controller read.
    ///
    /// # Errors
    /// Returns why the transfer has failed; [`Denied::Foreign`] for the range of another QP,
    /// [`Denied::Invalid`] if there is no transfer.
    pub fn take(&mut self, qpn: Qpn) -> Result<Taken, Denied> {
        if self.stage == Stage::Idle {
            return Err(Denied::Invalid);
        }
        if self.transfer.qpn != qpn {
            return Err(Denied::Foreign);
        }
        self.waits = self.is_live();
        match self.stage {
            Stage::Complete => {
                self.stage = Stage::Idle;
                Ok(Taken::Done)
            }
            Stage::Failed(why) => {
                self.stage = Stage::Idle;
                Err(why)
            }
            _ => {
                self.stage = Stage::Open;
                Ok(Taken::Later)
            }
        }
    }

    /// The registers.
    #[must_use]
    pub fn registers(&self) -> RangeRegisters {
        let Self { transfer, stage, count, .. } = self;
        RangeRegisters {
            memory: transfer.memory,
            length: transfer.length.into(),
            count: (*count).into(),
            direction: transfer.direction as u8,
            pci_valid: (*stage == Stage::Open).into(),
            adapter_valid: matches!(stage, Stage::Awaited | Stage::Complete).into(),
            failure: if let Stage::Failed(why) = stage { *why as u8 } else { 0 },
            reserved: [0; 4],
        }
    }
}

#[cfg(test)]
mod tests;
