// SPDX-License-Identifier: GPL-2.0
//! The place at the peer that an operation works on.

use kernel::{prelude::*, sync::Arc};

use super::{
    mapped::{Mapped, Part},
    memory::all_memory::AllMemory,
    pd::Pd,
};

/// The bit that, when flipped, turns a key into the key of another region.
const OTHER_REGION: u32 = 0x100;

/// An address under a key.
///
/// Keys of all memory are never available as numbers, so that requests with such a key can only
/// access memory that they keep. Which memory other keys lead to is known only at the peer: a
/// request may change everything that the peer allows under them.
#[derive(Clone)]
pub struct Remote {
    address: u64,
    key: u32,
    part: Option<Part>,
}

impl Remote {
    /// Returns a place that a peer, or a region of this machine, has given.
    pub fn new(address: u64, key: u32) -> Self {
        Self { address, key, part: None }
    }

    /// Returns memory of this machine under the key of a domain that has one of all memory.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the memory is not of one piece, or mapped for another device.
    pub fn under_global_key(pd: &Pd, part: &Part) -> Result<Self> {
        Self::under(pd, pd.global_rkey(), part)
    }

    /// Returns memory of this machine under the key of a region of all memory.
    ///
    /// # Errors
    ///
    /// As for [`Self::under_global_key`].
    pub fn under_all_memory(region: &AllMemory, part: &Part) -> Result<Self> {
        Self::under(region.pd(), region.rkey(), part)
    }

    fn under(pd: &Pd, key: u32, part: &Part) -> Result<Self> {
        part.memory().check_device(pd.device())?;
        Ok(Self { address: part.address()?, key, part: Some(part.clone()) })
    }

    /// Returns the same address under a key that is not valid.
    pub fn with_wrong_key(self) -> Self {
        Self { key: self.key ^ OTHER_REGION, ..self }
    }

    /// Returns the address there.
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// Returns the key there.
    pub(super) fn key(&self) -> u32 {
        self.key
    }

    /// Returns the memory that an operation of this many bytes uses there, if the memory is of this
    /// machine and the key is one of all memory.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there are fewer bytes.
    pub(super) fn memory(&self, length: usize) -> Result<Option<Arc<Mapped>>> {
        match &self.part {
            Some(part) if part.len() < length => Err(EINVAL),
            Some(part) => Ok(Some(part.memory().clone())),
            None => Ok(None),
        }
    }
}
