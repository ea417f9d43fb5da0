// SPDX-License-Identifier: GPL-2.0
//! The start frames of MPA that pass through a socket of the kernel: the request that a responder
//! receives, and the reply that rejects it. If the guest connects to itself, the initiator sends
//! and receives them, too. The adapter sends and receives all other start frames.

use abi::connection::{START_HEADER, START_MAX};
use kernel::prelude::*;

use super::start_fields::{
    self, ENHANCED, Header, Malformed, REJECT, REPLY_KEY, REQUEST_KEY, REVISION,
};
use crate::rdma::iwcm::Depths;

pub(super) use super::start_fields::rejected;

/// Flag: each FPDU has a checksum.
const CRC: u8 = 0x40;
/// Flag of the first word: the initiator sends the first message by itself.
const PEER_TO_PEER: u16 = 0x8000;
/// Flags of the second word: that message may be a WRITE, or a READ.
const FIRST: u16 = 0xc000;

/// Returns the request that the adapter sends as the initiator (`start::request` in
/// `device/iwarp/src/mpa/`), byte for byte, except that this one always asks for CRCs.
pub(super) fn request(own: Depths, private: &[u8]) -> Result<KVec<u8>> {
    let words = [PEER_TO_PEER | u16::from(own.ird), FIRST | u16::from(own.ord)];
    frame(REQUEST_KEY, [CRC | ENHANCED, REVISION], &words, private)
}

/// Returns a frame: its key, the flags and the revision, the words about READs, private data.
fn frame(key: &[u8], fixed: [u8; 2], words: &[u16], private: &[u8]) -> Result<KVec<u8>> {
    let len = u16::try_from(size_of_val(words) + private.len())?;
    let mut frame = KVec::with_capacity(START_HEADER + usize::from(len), GFP_KERNEL)?;
    for part in [key, &fixed, &len.to_be_bytes()] {
        frame.extend_from_slice(part, GFP_KERNEL)?;
    }
    for word in words {
        frame.extend_from_slice(&word.to_be_bytes(), GFP_KERNEL)?;
    }
    frame.extend_from_slice(private, GFP_KERNEL)?;
    Ok(frame)
}

/// A request, of which a part may still be missing.
pub(super) struct Request {
    bytes: KBox<[u8; START_MAX]>,
    len: usize,
}

/// The parts of a request that are reported to the core.
pub(super) struct Parts<'a> {
    /// The numbers of READs that the peer wants.
    pub(super) peer: Depths,
    /// The private data.
    pub(super) private: &'a [u8],
}

impl From<Malformed> for Error {
    fn from(_: Malformed) -> Self {
        EPROTO
    }
}

impl Request {
    /// Returns a request without any bytes.
    pub(super) fn new() -> Result<Self> {
        Ok(Self { bytes: KBox::new([0; START_MAX], GFP_KERNEL)?, len: 0 })
    }

    /// Returns the buffer for the missing bytes. It is empty if the request is complete.
    ///
    /// # Errors
    ///
    /// `EPROTO` if it is malformed.
    pub(super) fn missing(&mut self) -> Result<&mut [u8]> {
        let end = start_fields::length(self.bytes())?;
        self.bytes.get_mut(self.len..end).ok_or(EPROTO)
    }

    /// Records that this many of the missing bytes have arrived.
    pub(super) fn add(&mut self, count: usize) {
        self.len = self.bytes.len().min(self.len + count);
    }

    /// Returns the bytes that have arrived.
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Returns the parts of a complete request. `max_depth` is the largest number of READs, and the
    /// number to use if the peer does not name one.
    ///
    /// # Errors
    ///
    /// `EPROTO` if it is malformed, or has more private data than can be passed on.
    pub(super) fn parts(&self, max_depth: u8) -> Result<Parts<'_>> {
        let said = start_fields::read(self.bytes(), max_depth)?;
        let peer = Depths { ird: said.ird, ord: said.ord };
        Ok(Parts { peer, private: said.private })
    }

    /// Returns the reply that rejects this request with this private data.
    pub(super) fn rejection(&self, private: &[u8]) -> Result<KVec<u8>> {
        let header = Header::parse(self.bytes(), REQUEST_KEY).ok_or(EPROTO)?;
        let (flags, words): (u8, &[u16]) =
            if header.is_enhanced() { (REJECT | ENHANCED, &[0; 2]) } else { (REJECT, &[]) };
        frame(REPLY_KEY, [flags, header.revision], words, private)
    }
}
