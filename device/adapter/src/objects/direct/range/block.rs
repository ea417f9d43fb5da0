//! Transfers whose packet memory is a block of the adapter. Work requests name their ranges
//! ([`vrnic_abi::Key::WINDOW`]), and wait for bytes as they wait for absent pages.

use vrnic_abi::GuestAddr;
use vrnic_abi::direct::{Direction, RANGE_LEN};

use super::{ByteSet, Packets, Range, Stage};
use crate::domain::User;
use crate::memory::tpt::Denied;

/// Bytes of a range that a work request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// The offset of the first byte in the range.
    pub within: u32,
    /// The number of bytes.
    pub len: u32,
}

impl Range {
    /// Returns whether the packet memory is a block.
    pub(super) fn has_block(&self) -> bool {
        matches!(self.transfer.memory, Packets::Block(_))
    }

    /// Returns whether it is a READ through a block.
    pub(super) fn is_read_by_block(&self) -> bool {
        self.has_block() && self.transfer.direction == Direction::Read
    }

    /// Returns the place of the transfer in the order of all, if it waits for a block.
    #[must_use]
    pub fn wants_block(&self) -> Option<u64> {
        (self.stage == Stage::Blocked).then_some(self.order)
    }

    /// Returns the address of its block, if it has one.
    #[must_use]
    pub fn block(&self) -> Option<GuestAddr> {
        if let Packets::Block(block) = self.transfer.memory { block } else { None }
    }

    /// Gives the block back if the transfer does not need it any more.
    pub fn give_block(&mut self) {
        let needed = match self.stage {
            Stage::Complete => self.transfer.direction == Direction::Write,
            Stage::Awaited | Stage::Open => true,
            Stage::Idle | Stage::Blocked | Stage::Failed(_) => false,
        };
        if self.has_block() && !needed {
            self.transfer.memory = Packets::Block(None);
        }
    }

    /// Gives the block at this address to a transfer that waits for one.
    pub fn get_block(&mut self, memory: GuestAddr) {
        self.transfer.memory = Packets::Block(Some(memory));
        self.stage = match self.transfer.direction {
            Direction::Read => Stage::Awaited,
            Direction::Write => Stage::Open,
        };
        self.bytes = ByteSet::EMPTY;
    }

    /// Checks that a work request of the QP `user` may name these bytes, for the memory that it
    /// sends, or for the memory into which a READ's data goes.
    ///
    /// # Errors
    /// [`Denied::Invalid`] if there is no transfer, or one whose packet memory is not a block;
    /// [`Denied::Foreign`] if it is that of another QP or function; [`Denied::Rights`] if it has
    /// the other direction; [`Denied::Bounds`] if the bytes exceed it; and the reason for which it
    /// has failed.
    pub fn check(&self, user: User, direction: Direction, bytes: Bytes) -> Result<(), Denied> {
        if self.stage == Stage::Idle || !self.has_block() {
            return Err(Denied::Invalid);
        }
        if self.transfer.qpn != user.qpn || self.transfer.domain != user.domain {
            return Err(Denied::Foreign);
        }
        if self.transfer.direction != direction {
            return Err(Denied::Rights);
        }
        let length = self.transfer.length.min(RANGE_LEN);
        if bytes.within.checked_add(bytes.len).is_none_or(|end| end > length) {
            return Err(Denied::Bounds);
        }
        if let Stage::Failed(why) = self.stage { Err(why) } else { Ok(()) }
    }

    /// Returns the address of bytes that [`Self::check`] has allowed: those that a WRITE sends, if
    /// all of them have been stored, or the place for those of a READ, if the controller has read
    /// what was there.
    ///
    /// # Errors
    /// [`Denied::Absent`] if they cannot be used yet.
    pub fn place(&mut self, bytes: Bytes) -> Result<GuestAddr, Denied> {
        let Bytes { within, len } = bytes;
        let Packets::Block(Some(memory)) = self.transfer.memory else {
            return Err(Denied::Absent);
        };
        let present = self.bytes.count(within, len);
        let ready = match self.transfer.direction {
            Direction::Write => present == len,
            Direction::Read => present == 0,
        };
        if !ready {
            return Err(Denied::Absent);
        }
        memory.checked_add(within.into()).ok_or(Denied::Bounds)
    }

    /// Records that bytes of a READ have arrived. The controller may read them now.
    ///
    /// # Errors
    /// [`Denied::Bounds`] if more bytes have arrived than the transfer has.
    pub fn arrive(&mut self, bytes: Bytes) -> Result<(), Denied> {
        let arrived = self.arrived.saturating_add(bytes.len);
        if arrived > self.transfer.length {
            return Err(Denied::Bounds);
        }
        self.bytes.insert(bytes.within, bytes.len);
        (self.arrived, self.response, self.stage) = (arrived, bytes.len, Stage::Open);
        Ok(())
    }

    /// Counts bytes of a READ that the controller has read. Returns whether there is room for
    /// more, or the transfer is complete.
    pub(super) fn has_read(&mut self, within: u32, len: u32) -> bool {
        self.bytes.remove(within, len);
        self.count = self.count.saturating_add(len);
        let is_empty = self.bytes.is_empty();
        if self.stage == Stage::Open && is_empty {
            let complete = self.count >= self.transfer.length;
            self.stage = if complete { Stage::Complete } else { Stage::Awaited };
        }
        is_empty
    }
}
