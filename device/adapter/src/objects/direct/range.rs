//! An address range of the window for direct transfers, and its registers ([`vrnic_abi::direct`]).
//!
//! | module | what it holds |
//! | --- | --- |
//! | `block` | transfers whose packet memory is a block of the adapter |
//! | `byte_set` | bytes of a range |

mod block;
mod byte_set;

use vrnic_abi::admin::RangeRegisters;
use vrnic_abi::direct::{Direction, Notice, RANGE_LEN};
use vrnic_abi::{GuestAddr, Qpn};
use vrnic_packet::Nanos;

pub use self::block::Bytes;
use self::byte_set::ByteSet;
use crate::domain::{Domain, User};
use crate::memory::tpt::Denied;

/// A transfer for which a range is programmed.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// The QP whose TRANSFER ends with it.
    pub qpn: Qpn,
    /// The function of this QP.
    pub domain: Domain,
    /// The RDMA operation.
    pub direction: Direction,
    /// The way in which the adapter learns which bytes have been moved.
    pub notice: Notice,
    /// The packet memory of the transfer.
    pub memory: Packets,
    /// Number of bytes, at least one. At most [`RANGE_LEN`] if they are counted, unless it is a
    /// READ through a block.
    pub length: u32,
    /// The time at which it fails if it is not complete, on the host's clock.
    pub deadline: Nanos,
    /// True if a read fails the transfer whose data has not arrived, instead of waiting for it.
    pub at_once: bool,
}

/// The packet memory of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packets {
    /// Memory from this address on.
    At(GuestAddr),
    /// A block of the adapter, which begins at this address as soon as the range has one.
    Block(Option<GuestAddr>),
}

/// The state of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There is no transfer.
    Idle,
    /// There is no block for it yet.
    Blocked,
    /// Data from the peer has not arrived yet.
    Awaited,
    /// The controller may move bytes.
    Open,
    /// The controller has moved all bytes, but TRANSFER has not been executed.
    Complete,
    /// The transfer has failed, but TRANSFER has not been executed.
    Failed(Denied),
}

/// The effect of an access of the controller to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Burst {
    /// The access moves bytes at this address of packet memory.
    At(GuestAddr),
    /// The data that the access wants to read has not arrived, or there is no block to store into.
    Early,
    /// The access has no effect. A read returns ones.
    Ignored,
}

/// Says whether a TRANSFER is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The TRANSFER is complete.
    Done,
    /// The TRANSFER waits.
    Later,
}

/// An address range.
#[derive(Debug)]
pub struct Range {
    transfer: Transfer,
    stage: Stage,
    /// True if a TRANSFER waits for the end of the transfer.
    waits: bool,
    /// The bytes that the controller has moved; it may move a byte more than once. For a READ
    /// through a block: the bytes that have arrived and that the controller has not read.
    bytes: ByteSet,
    /// Number of bytes that the controller has moved.
    count: u32,
    /// Grows with each transfer of the adapter that is armed.
    order: u64,
    /// Number of bytes that a READ has brought into a block.
    arrived: u32,
    /// Number of bytes of the latest packet of these.
    response: u32,
}

impl Default for Range {
    fn default() -> Self {
        let transfer = Transfer {
            qpn: Qpn::new(0),
            domain: Domain::NONE,
            direction: Direction::Read,
            notice: Notice::Counted,
            memory: Packets::At(GuestAddr::new(0)),
            length: 0,
            deadline: Nanos(0),
            at_once: false,
        };
        Self {
            transfer,
            stage: Stage::Idle,
            waits: false,
            bytes: ByteSet::EMPTY,
            count: 0,
            order: 0,
            arrived: 0,
            response: 0,
        }
    }
}

impl Range {
    /// Starts a transfer, whose place in the order of all is `order`. Returns false and changes
    /// nothing if the range has one, which includes a failed transfer that has not been reported by
    /// a TRANSFER.
    #[must_use]
    pub fn arm(&mut self, transfer: Transfer, order: u64) -> bool {
        if self.is_used() {
            return false;
        }
        let stage = match transfer {
            Transfer { memory: Packets::Block(None), .. } => Stage::Blocked,
            Transfer { direction: Direction::Read, .. } => Stage::Awaited,
            Transfer { direction: Direction::Write, .. } => Stage::Open,
        };
        *self = Self { transfer, stage, order, ..Self::default() };
        true
    }

    /// Returns whether it has a transfer that must end before it can be armed.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.is_live() || self.stage == Stage::Complete || self.waits
    }

    /// Returns the QP of the latest transfer.
    #[must_use]
    pub fn qpn(&self) -> Qpn {
        self.transfer.qpn
    }

    /// Returns whether there is a transfer that can still fail.
    #[must_use]
    pub fn is_live(&self) -> bool {
        matches!(self.stage, Stage::Blocked | Stage::Awaited | Stage::Open)
    }

    /// Returns whether the time limit of a transfer is over.
    #[must_use]
    pub fn is_late(&self, now: Nanos) -> bool {
        self.is_live() && self.transfer.deadline <= now
    }

    /// Returns the effect of a burst of `len` bytes at offset `within`, by which the controller
    /// stores (`Write`) or reads. A burst beyond the bytes of the transfer makes it fail, and so
    /// does an early read of a transfer that does not let it wait.
    pub fn burst(&mut self, direction: Direction, within: u32, len: u32) -> Burst {
        let transfer = self.transfer;
        let fits = transfer.direction == direction && transfer.notice == Notice::Counted;
        if !self.is_live() || !fits {
            return Burst::Ignored;
        }
        let is_moved = self.is_read_by_block();
        let length = if is_moved { transfer.length.min(RANGE_LEN) } else { transfer.length };
        if within.checked_add(len).is_none_or(|end| end > length) {
            self.fail(Denied::Overrun);
            return Burst::Ignored;
        }
        let is_there = !is_moved || self.bytes.count(within, len) == len;
        let address = match transfer.memory {
            Packets::At(memory) | Packets::Block(Some(memory)) => {
                memory.checked_add(within.into()).map_or(Burst::Ignored, Burst::At)
            }
            Packets::Block(None) => Burst::Ignored,
        };
        match self.stage {
            Stage::Open if is_there => address,
            // A store cannot wait.
            _ if transfer.at_once || direction == Direction::Write => {
                self.fail(Denied::Early);
                Burst::Ignored
            }
            _ => Burst::Early,
        }
    }

    /// Counts the bytes that a burst has moved. Returns whether work requests that wait for the
    /// range may continue.
    pub fn count(&mut self, within: u32, len: u32) -> bool {
        if self.is_read_by_block() {
            return self.has_read(within, len);
        }
        let len = len.min(self.transfer.length.saturating_sub(within));
        self.count += self.bytes.insert(within, len);
        let complete = self.stage == Stage::Open && self.count == self.transfer.length;
        if complete {
            self.stage = Stage::Complete;
        }
        complete
    }

    /// Records that the driver reports the end of the controller's work. Returns whether the
    /// transfer has ended by that. It has failed if its data had not arrived yet.
    pub fn finish(&mut self) -> bool {
        if !self.is_live() || self.transfer.notice != Notice::Mapped {
            return false;
        }
        if self.stage == Stage::Awaited {
            return self.fail(Denied::Early);
        }
        (self.stage, self.count) = (Stage::Complete, self.transfer.length);
        true
    }

    /// Fails the transfer, if there is one. Returns whether it did.
    pub fn fail(&mut self, why: Denied) -> bool {
        let live = self.is_live();
        if live {
            self.stage = Stage::Failed(why);
        }
        live
    }

    /// Fails the transfer if data that the controller waits for has not arrived yet. Returns
    /// whether it did.
    pub fn give_up(&mut self) -> bool {
        (self.stage == Stage::Awaited || self.has_block()) && self.fail(Denied::Early)
    }

    /// Ends the transfer, whatever its state. Returns whether a TRANSFER may wait for it.
    pub fn end(&mut self) -> bool {
        if self.stage == Stage::Complete {
            self.stage = Stage::Failed(Denied::Ended);
            return true;
        }
        self.fail(Denied::Ended)
    }

    /// Executes a TRANSFER of the QP `user`. The first TRANSFER of a READ allows the controller to
    /// read, unless the packet memory is a block.
    ///
    /// # Errors
    /// Returns the reason for which the transfer has failed; [`Denied::Foreign`] for the range of
    /// another QP or function, [`Denied::Invalid`] if there is no transfer.
    pub fn take(&mut self, user: User) -> Result<Taken, Denied> {
        if self.stage == Stage::Idle {
            return Err(Denied::Invalid);
        }
        if self.transfer.qpn != user.qpn || self.transfer.domain != user.domain {
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
                if !self.has_block() {
                    self.stage = Stage::Open;
                }
                Ok(Taken::Later)
            }
        }
    }

    /// Returns the registers of the range, as QUERY_RANGE does.
    #[must_use]
    pub fn registers(&self) -> RangeRegisters {
        let Self { transfer, stage, count, response, .. } = self;
        let memory = match transfer.memory {
            Packets::At(memory) => memory,
            Packets::Block(_) => GuestAddr::new(0),
        };
        RangeRegisters {
            memory,
            length: transfer.length.into(),
            count: (*count).into(),
            direction: transfer.direction as u8,
            pci_valid: (*stage == Stage::Open).into(),
            adapter_valid: matches!(stage, Stage::Blocked | Stage::Awaited | Stage::Complete)
                .into(),
            failure: if let Stage::Failed(why) = stage { *why as u8 } else { 0 },
            response_length: (*response).into(),
        }
    }
}

#[cfg(test)]
mod tests;
