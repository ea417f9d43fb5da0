// SPDX-License-Identifier: GPL-2.0
//! The start frames of MPA that pass through a socket of the kernel: the request that a responder
//! receives, and the reply that rejects it (RFC 5044, 7.1.1; RFC 6581, 9). All others are the
//! adapter's.

use abi::connection::{PRIVATE_MAX, START_HEADER, START_MAX};
use kernel::prelude::*;

use crate::rdma::iwcm::Depths;

/// The first bytes of a request.
const REQUEST_KEY: &[u8; 16] = b"MPA ID Req Frame";
/// The first bytes of a reply.
const REPLY_KEY: &[u8; 16] = b"MPA ID Rep Frame";
/// Flag: the reply rejects the request.
const REJECT: u8 = 0x20;
/// Flag: the private data begins with two words about READs.
const ENHANCED: u8 = 0x10;
/// The newest revision.
const REVISION: u8 = 2;
/// The first revision that can be enhanced.
const REVISION_ENHANCED: u8 = 2;
/// Bytes of the words about READs.
const WORDS: usize = 4;
/// The bits of a word that are a number of READs. All of them set stand for no number.
const DEPTH: u16 = 0x3fff;
/// Most bytes of private data that the core passes on.
const PASSED_MAX: usize = u8::MAX as usize;

/// A request, as far as it has come.
pub(super) struct Request {
    bytes: KBox<[u8; START_MAX]>,
    len: usize,
}

/// The parts of a request that the core is told.
pub(super) struct Parts<'a> {
    /// READs as the peer has them.
    pub(super) peer: Depths,
    /// The private data.
    pub(super) private: &'a [u8],
}

impl Request {
    /// Returns a request of which nothing has come.
    pub(super) fn new() -> Result<Self> {
        Ok(Self { bytes: KBox::new([0; START_MAX], GFP_KERNEL)?, len: 0 })
    }

    /// Returns room for what is missing, which is none if the request is complete.
    ///
    /// # Errors
    ///
    /// `EPROTO` if it is malformed.
    pub(super) fn missing(&mut self) -> Result<&mut [u8]> {
        let end = match self.header() {
            None => START_HEADER,
            Some(header) => START_HEADER + header.check()?,
        };
        self.bytes.get_mut(self.len..end).ok_or(EPROTO)
    }

    /// Notes that so many bytes of what was missing have come.
    pub(super) fn add(&mut self, count: usize) {
        self.len = self.bytes.len().min(self.len + count);
    }

    /// Returns what has come.
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Returns the parts of a request that is complete. `most` is the number of READs that stands
    /// for those that the peer does not name.
    ///
    /// # Errors
    ///
    /// `EPROTO` if it is malformed, or has more private data than can be passed on.
    pub(super) fn parts(&self, most: u8) -> Result<Parts<'_>> {
        let header = self.header().ok_or(EPROTO)?;
        let data = self.bytes().get(START_HEADER..).ok_or(EPROTO)?;
        let (peer, private) = match (header.is_enhanced(), data) {
            (true, [a, b, c, d, private @ ..]) => {
                let depth = |word: [u8; 2]| match u16::from_be_bytes(word) & DEPTH {
                    DEPTH => most,
                    depth => u8::try_from(depth).unwrap_or(u8::MAX).min(most),
                };
                (Depths { ird: depth([*a, *b]), ord: depth([*c, *d]) }, private)
            }
            (true, _) => return Err(EPROTO),
            (false, private) => (Depths { ird: most, ord: most }, private),
        };
        if private.len() > PASSED_MAX {
            return Err(EPROTO);
        }
        Ok(Parts { peer, private })
    }

    /// Returns the reply that rejects this request, with private data.
    pub(super) fn rejection(&self, private: &[u8]) -> Result<KVec<u8>> {
        let header = self.header().ok_or(EPROTO)?;
        let words = if header.is_enhanced() { WORDS } else { 0 };
        let enhanced = if header.is_enhanced() { ENHANCED } else { 0 };
        let len = u16::try_from(words + private.len())?;
        let mut reply = KVec::with_capacity(START_HEADER + usize::from(len), GFP_KERNEL)?;
        reply.extend_from_slice(REPLY_KEY, GFP_KERNEL)?;
        reply.extend_from_slice(&[REJECT | enhanced, header.revision], GFP_KERNEL)?;
        reply.extend_from_slice(&len.to_be_bytes(), GFP_KERNEL)?;
        reply.extend_from_slice([0; WORDS].get(..words).unwrap_or_default(), GFP_KERNEL)?;
        reply.extend_from_slice(private, GFP_KERNEL)?;
        Ok(reply)
    }

    fn header(&self) -> Option<Header> {
        let header: &[u8; START_HEADER] = self.bytes().first_chunk()?;
        let (key, [flags, revision, len @ ..]) = header.split_first_chunk::<16>()? else {
            return None;
        };
        Some(Header {
            is_request: key == REQUEST_KEY,
            flags: *flags,
            revision: *revision,
            len: u16::from_be_bytes(len.try_into().ok()?),
        })
    }
}

/// The fields of a start frame before its private data.
struct Header {
    is_request: bool,
    flags: u8,
    revision: u8,
    len: u16,
}

impl Header {
    /// Checks the fields that decide about the rest; returns the bytes of private data.
    fn check(&self) -> Result<usize> {
        let len = usize::from(self.len);
        match self.is_request && (1..=REVISION).contains(&self.revision) && len <= PRIVATE_MAX {
            true => Ok(len),
            false => Err(EPROTO),
        }
    }

    fn is_enhanced(&self) -> bool {
        self.flags & ENHANCED != 0 && self.revision >= REVISION_ENHANCED
    }
}
