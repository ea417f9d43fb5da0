//! Extension headers (IBTA volume 1, 9.3).

use vrnic_packet::{NoRoom, Reader, Writer};

use super::numbers::{Qpn, Rkey};
use crate::discard::Discard;

/// Immediate data: bytes whose order is never changed.
pub type Imm = [u8; 4];

/// RDMA extended header: memory of the responder for a WRITE or READ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reth {
    /// The first address of the range.
    pub addr: u64,
    /// The key of the range.
    pub key: Rkey,
    /// Number of bytes of the whole message, or of the rest of a READ that is requested again.
    pub length: u32,
}

impl Reth {
    /// Parses the header.
    ///
    /// # Errors
    /// [`Discard::Truncated`] if the packet ends before it.
    pub fn read(from: &mut Reader<'_>) -> Result<Self, Discard> {
        Ok(Self { addr: from.u64()?, key: Rkey(from.u32()?), length: from.u32()? })
    }

    /// Writes the header.
    ///
    /// # Errors
    /// [`NoRoom`] if it does not fit.
    pub fn write(&self, to: &mut Writer<'_>) -> Result<(), NoRoom> {
        to.u64(self.addr)?;
        to.u32(self.key.0)?;
        to.u32(self.length)
    }
}

/// Atomic extended header. The operands are numbers, so their byte order is converted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicEth {
    /// Address of the word.
    pub addr: u64,
    /// The key of the word's memory.
    pub key: Rkey,
    /// The new value of COMPARE & SWAP, or the number that FETCH & ADD adds.
    pub swap_or_add: u64,
    /// The value that COMPARE & SWAP compares with; FETCH & ADD ignores it.
    pub compare: u64,
}

impl AtomicEth {
    /// Parses the header.
    ///
    /// # Errors
    /// [`Discard::Truncated`] if the packet ends before it.
    pub fn read(from: &mut Reader<'_>) -> Result<Self, Discard> {
        Ok(Self {
            addr: from.u64()?,
            key: Rkey(from.u32()?),
            swap_or_add: from.u64()?,
            compare: from.u64()?,
        })
    }

    /// Writes the header.
    ///
    /// # Errors
    /// [`NoRoom`] if it does not fit.
    pub fn write(&self, to: &mut Writer<'_>) -> Result<(), NoRoom> {
        to.u64(self.addr)?;
        to.u32(self.key.0)?;
        to.u64(self.swap_or_add)?;
        to.u64(self.compare)
    }
}

/// Datagram extended header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deth {
    /// The queue key, which must be equal to the queue key of the receiving QP.
    pub qkey: u32,
    /// The sending QP.
    pub source: Qpn,
}

impl Deth {
    /// Parses the header.
    ///
    /// # Errors
    /// [`Discard::Truncated`] if the packet ends before it.
    pub fn read(from: &mut Reader<'_>) -> Result<Self, Discard> {
        Ok(Self { qkey: from.u32()?, source: Qpn::new(from.u32()?) })
    }

    /// Writes the header.
    ///
    /// # Errors
    /// [`NoRoom`] if it does not fit.
    pub fn write(&self, to: &mut Writer<'_>) -> Result<(), NoRoom> {
        to.u32(self.qkey)?;
        to.u32(self.source.get())
    }
}

/// FLUSH extended header (A19): what must be done with memory. Bits 0 to 3 are its placement, and
/// bits 4 and 5 select the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Feth(pub u32);

impl Feth {
    /// Makes the memory visible to all that access it.
    pub const GLOBAL: u32 = 1 << 0;
    /// Makes the memory persistent.
    pub const PERSISTENT: u32 = 1 << 1;
    /// Selects the whole region of the key instead of a range.
    pub const REGION: u32 = 1 << 4;

    /// Returns whether the header selects the whole region of the key. The address and the length
    /// have no meaning then.
    #[must_use]
    pub const fn is_of_region(self) -> bool {
        self.0 & Self::REGION != 0
    }

    /// Returns whether the header has a placement and no bits without a meaning.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        let placement = Self::GLOBAL | Self::PERSISTENT;
        self.0 & placement != 0 && self.0 & !(placement | Self::REGION) == 0
    }
}
