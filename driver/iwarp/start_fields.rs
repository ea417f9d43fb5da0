// SPDX-License-Identifier: GPL-2.0
//! The fields of the start frames of MPA (RFC 5044, 7.1.1; RFC 6581, 9), which any host that can
//! connect may send. This does not depend on the kernel, so `abi/tests/kernel_start.rs` can test it
//! without one.

use abi::connection::{PRIVATE_MAX, START_HEADER};

/// The first bytes of a request.
pub(super) const REQUEST_KEY: &[u8; 16] = b"MPA ID Req Frame";
/// The first bytes of a reply.
pub(super) const REPLY_KEY: &[u8; 16] = b"MPA ID Rep Frame";
/// Flag: the reply rejects the request.
pub(super) const REJECT: u8 = 0x20;
/// Flag: the private data begins with two words about READs.
pub(super) const ENHANCED: u8 = 0x10;
/// The newest revision.
pub(super) const REVISION: u8 = 2;
/// The first revision that can be enhanced.
const REVISION_ENHANCED: u8 = 2;
/// Bytes of the words about READs.
const WORDS: usize = 4;
/// The bits of a word that contain a number of READs. If all of them are set, the word contains no
/// number.
const DEPTH: u16 = 0x3fff;
/// The maximum number of bytes of private data that the core passes on.
const PASSED_MAX: usize = u8::MAX as usize;

/// A frame that is malformed, or has more private data than can be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// What a request says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Said<'a> {
    /// The numbers of READs that the peer wants to serve, and to have outstanding.
    pub(super) ird: u8,
    pub(super) ord: u8,
    /// The private data.
    pub(super) private: &'a [u8],
}

/// Returns the length of the request that begins with these bytes, or of its header until that has
/// arrived.
pub(super) fn length(request: &[u8]) -> Result<usize, Malformed> {
    match Header::parse(request, REQUEST_KEY) {
        None => Ok(START_HEADER),
        Some(header) => Ok(START_HEADER + header.check()?),
    }
}

/// Returns the parts of a complete request. `max_depth` is the largest number of READs, and the
/// number to use if the peer does not name one.
pub(super) fn read(request: &[u8], max_depth: u8) -> Result<Said<'_>, Malformed> {
    let header = Header::parse(request, REQUEST_KEY).ok_or(Malformed)?;
    let data = request.get(START_HEADER..).ok_or(Malformed)?;
    let said = match (header.is_enhanced(), data) {
        (true, [a, b, c, d, private @ ..]) => {
            let depth = |word: [u8; 2]| match u16::from_be_bytes(word) & DEPTH {
                DEPTH => max_depth,
                depth => u8::try_from(depth).unwrap_or(u8::MAX).min(max_depth),
            };
            Said { ird: depth([*a, *b]), ord: depth([*c, *d]), private }
        }
        (true, _) => return Err(Malformed),
        (false, private) => Said { ird: max_depth, ord: max_depth, private },
    };
    if said.private.len() > PASSED_MAX { Err(Malformed) } else { Ok(said) }
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

/// The fields of a start frame before its private data.
pub(super) struct Header {
    has_key: bool,
    flags: u8,
    pub(super) revision: u8,
    len: u16,
}

impl Header {
    /// Returns the fields of a frame that should have this key, if they have arrived.
    pub(super) fn parse(frame: &[u8], key: &[u8; 16]) -> Option<Self> {
        let header: &[u8; START_HEADER] = frame.first_chunk()?;
        let (begin, [flags, revision, len @ ..]) = header.split_first_chunk::<16>()? else {
            return None;
        };
        let len = u16::from_be_bytes(len.try_into().ok()?);
        Some(Self { has_key: begin == key, flags: *flags, revision: *revision, len })
    }

    /// Checks the fields on which the rest of the frame depends. Returns the number of bytes of
    /// private data.
    fn check(&self) -> Result<usize, Malformed> {
        let len = usize::from(self.len);
        match self.has_key && (1..=REVISION).contains(&self.revision) && len <= PRIVATE_MAX {
            true => Ok(len),
            false => Err(Malformed),
        }
    }

    /// Returns whether the private data begins with the words about READs.
    pub(super) fn is_enhanced(&self) -> bool {
        self.flags & ENHANCED != 0 && self.revision >= REVISION_ENHANCED
    }
}
