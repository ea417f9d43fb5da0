// SPDX-License-Identifier: GPL-2.0
//! The start frames of MPA that pass through a socket of the kernel: the request that a responder
//! receives, and the reply that rejects it (RFC 5044, 7.1.1; RFC 6581, 9). If the guest connects to
//! itself, the initiator sends and receives them, too. The adapter sends and receives all other
//! start frames.

use abi::connection::{PRIVATE_MAX, START_HEADER, START_MAX};
use kernel::prelude::*;

use crate::rdma::iwcm::Depths;

/// The first bytes of a request.
const REQUEST_KEY: &[u8; 16] = b"MPA ID Req Frame";
/// The first bytes of a reply.
const REPLY_KEY: &[u8; 16] = b"MPA ID Rep Frame";
/// Flag: each FPDU has a checksum.
const CRC: u8 = 0x40;
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
/// Flag of the first word: the initiator sends the first message by itself.
const PEER_TO_PEER: u16 = 0x8000;
/// Flags of the second word: that message may be a WRITE, or a READ.
const FIRST: u16 = 0xc000;
/// The bits of a word that contain a number of READs. If all of them are set, the word contains no
/// number.
const DEPTH: u16 = 0x3fff;
/// The maximum number of bytes of private data that the core passes on.
const PASSED_MAX: usize = u8::MAX as usize;

/// Returns the request that the adapter sends as the initiator (`start::request` in
/// `device/iwarp/src/mpa/`), byte for byte, except that this one always asks for CRCs.
pub(super) fn request(own: Depths, private: &[u8]) -> Result<KVec<u8>> {
    let words = [PEER_TO_PEER | u16::from(own.ird), FIRST | u16::from(own.ord)];
    frame(REQUEST_KEY, [CRC | ENHANCED, REVISION], &words, private)
}

/// Returns the private data of a reply, if it rejects the request.
pub(super) fn rejected(reply: &[u8]) -> Option<&[u8]> {
    let header = Header::parse(reply, REPLY_KEY)?;
    if !header.has_key || header.flags & REJECT == 0 {
        return None;
    }
    let words = if header.is_enhanced() { WORDS } else { 0 };
    reply.get(START_HEADER + words..START_HEADER + usize::from(header.len))
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
        let end = match self.header() {
            None => START_HEADER,
            Some(header) => START_HEADER + header.check()?,
        };
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
        let header = self.header().ok_or(EPROTO)?;
        let data = self.bytes().get(START_HEADER..).ok_or(EPROTO)?;
        let (peer, private) = match (header.is_enhanced(), data) {
            (true, [a, b, c, d, private @ ..]) => {
                let depth = |word: [u8; 2]| match u16::from_be_bytes(word) & DEPTH {
                    DEPTH => max_depth,
                    depth => u8::try_from(depth).unwrap_or(u8::MAX).min(max_depth),
                };
                (Depths { ird: depth([*a, *b]), ord: depth([*c, *d]) }, private)
            }
            (true, _) => return Err(EPROTO),
            (false, private) => (Depths { ird: max_depth, ord: max_depth }, private),
        };
        if private.len() > PASSED_MAX {
            return Err(EPROTO);
        }
        Ok(Parts { peer, private })
    }

    /// Returns the reply that rejects this request with this private data.
    pub(super) fn rejection(&self, private: &[u8]) -> Result<KVec<u8>> {
        let header = self.header().ok_or(EPROTO)?;
        let (flags, words): (u8, &[u16]) =
            if header.is_enhanced() { (REJECT | ENHANCED, &[0; 2]) } else { (REJECT, &[]) };
        frame(REPLY_KEY, [flags, header.revision], words, private)
    }

    fn header(&self) -> Option<Header> {
        Header::parse(self.bytes(), REQUEST_KEY)
    }
}

/// The fields of a start frame before its private data.
struct Header {
    has_key: bool,
    flags: u8,
    revision: u8,
    len: u16,
}

impl Header {
    /// Returns the fields of a frame that should have this key, if they have arrived.
    fn parse(frame: &[u8], key: &[u8; 16]) -> Option<Self> {
        let header: &[u8; START_HEADER] = frame.first_chunk()?;
        let (begin, [flags, revision, len @ ..]) = header.split_first_chunk::<16>()? else {
            return None;
        };
        let len = u16::from_be_bytes(len.try_into().ok()?);
        Some(Self { has_key: begin == key, flags: *flags, revision: *revision, len })
    }

    /// Checks the fields on which the rest of the frame depends. Returns the number of bytes of
    /// private data.
    fn check(&self) -> Result<usize> {
        let len = usize::from(self.len);
        match self.has_key && (1..=REVISION).contains(&self.revision) && len <= PRIVATE_MAX {
            true => Ok(len),
            false => Err(EPROTO),
        }
    }

    fn is_enhanced(&self) -> bool {
        self.flags & ENHANCED != 0 && self.revision >= REVISION_ENHANCED
    }
}
