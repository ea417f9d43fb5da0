//! Finds the PDUs in the bytes that arrive. Headers are collected, because they decide where the
//! data goes. Data is passed on as it arrives.

use arrayvec::ArrayVec;

use crate::config::Config;
use crate::digest::{DIGEST_LEN, Digest, padding};
use crate::header::{BHS_LEN, Bhs};

/// Maximum number of bytes of additional header segments of the target. The standard defines none
/// for targets.
pub const ADDITIONAL_MAX: usize = 64;
/// Maximum number of bytes of a header.
const HEADER_MAX: usize = BHS_LEN + ADDITIONAL_MAX;
/// Maximum number of bytes after the data: padding and digest.
const TAIL_MAX: usize = 3 + DIGEST_LEN;

/// The reason for which a stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The digest of a header is wrong.
    HeaderDigest,
    /// The digest of data is wrong.
    DataDigest,
    /// A PDU has more data than was agreed.
    TooLong,
    /// A PDU has more additional header segments than a target sends.
    Additional,
}

/// The next part of the stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// The header of a PDU is complete: see [`Deframer::header`].
    Header,
    /// The next bytes of its data.
    Data {
        /// The number of bytes of data before them.
        at: u32,
        /// The bytes of the data.
        bytes: &'a [u8],
    },
    /// The PDU is complete.
    End,
    /// More bytes are needed.
    More,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Header,
    Data,
    Tail,
}

/// The PDU in progress.
#[derive(Debug)]
pub struct Deframer {
    config: Config,
    stage: Stage,
    /// The header so far, with its digest.
    head: ArrayVec<u8, { HEADER_MAX + DIGEST_LEN }>,
    /// Number of bytes of data that have been passed on.
    passed: u32,
    digest: Digest,
    /// The padding and the digest of the data so far.
    tail: ArrayVec<u8, TAIL_MAX>,
}

impl Deframer {
    /// Creates the state at the beginning of a PDU.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            stage: Stage::Header,
            head: ArrayVec::new(),
            passed: 0,
            digest: Digest::default(),
            tail: ArrayVec::new(),
        }
    }

    /// Returns the header of the PDU in progress, without its digest. It is complete from
    /// [`Part::Header`] to [`Part::End`].
    #[must_use]
    pub fn header(&self) -> &[u8] {
        let all = BHS_LEN + self.bhs().additional_len();
        self.head.get(..all).unwrap_or(&self.head)
    }

    /// Returns the basic header segment of the PDU in progress.
    #[must_use]
    pub fn bhs(&self) -> Bhs {
        Bhs::of(&self.head).unwrap_or_default()
    }

    /// Takes the next part off `bytes`.
    ///
    /// # Errors
    /// The reason for which the stream has ended. It must not be continued.
    pub fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Part<'a>, Malformed> {
        match self.stage {
            Stage::Header => self.take_header(bytes),
            Stage::Data => Ok(self.take_data(bytes)),
            Stage::Tail => self.take_tail(bytes),
        }
    }

    fn take_header<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Part<'a>, Malformed> {
        if fill(&mut self.head, BHS_LEN, bytes) {
            return Ok(Part::More);
        }
        let bhs = self.bhs();
        let additional = bhs.additional_len();
        if additional > ADDITIONAL_MAX {
            return Err(Malformed::Additional);
        }
        // Before a digest that may be wrong: a length is not trusted in any case.
        if bhs.data_len() > self.config.max_receive {
            return Err(Malformed::TooLong);
        }
        let digest = if self.config.header_digest { DIGEST_LEN } else { 0 };
        if fill(&mut self.head, BHS_LEN + additional + digest, bytes) {
            return Ok(Part::More);
        }
        let (covered, octets) =
            self.head.split_at_checked(BHS_LEN + additional).unwrap_or_default();
        if self.config.header_digest && Digest::of(covered) != *octets {
            return Err(Malformed::HeaderDigest);
        }
        (self.passed, self.digest) = (0, Digest::default());
        self.stage = if bhs.data_len() > 0 { Stage::Data } else { Stage::Tail };
        Ok(Part::Header)
    }

    fn take_data<'a>(&mut self, bytes: &mut &'a [u8]) -> Part<'a> {
        let left = self.bhs().data_len().saturating_sub(self.passed);
        let count = bytes.len().min(left as usize);
        let Some((data, rest)) = bytes.split_at_checked(count).filter(|_| count > 0) else {
            return Part::More;
        };
        *bytes = rest;
        if self.config.data_digest {
            self.digest.add(data);
        }
        let at = self.passed;
        // CAST: at most the length of the data, which has 24 bits.
        self.passed += count as u32;
        if count as u32 == left {
            self.stage = Stage::Tail;
        }
        Part::Data { at, bytes: data }
    }

    fn take_tail<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Part<'a>, Malformed> {
        let length = self.bhs().data_len();
        let digested = self.config.data_digest && length > 0;
        let pad = padding(length);
        if fill(&mut self.tail, pad + if digested { DIGEST_LEN } else { 0 }, bytes) {
            return Ok(Part::More);
        }
        let (padding, octets) = self.tail.split_at_checked(pad).unwrap_or_default();
        self.digest.add(padding);
        if digested && self.digest.octets() != *octets {
            return Err(Malformed::DataDigest);
        }
        self.tail.clear();
        self.head.clear();
        self.stage = Stage::Header;
        Ok(Part::End)
    }
}

/// Moves bytes to `to` until it has `wanted` bytes. Returns whether it has fewer.
fn fill<const N: usize>(to: &mut ArrayVec<u8, N>, wanted: usize, bytes: &mut &[u8]) -> bool {
    let count = wanted.saturating_sub(to.len()).min(to.remaining_capacity()).min(bytes.len());
    if let Some((moved, rest)) = bytes.split_at_checked(count) {
        to.extend(moved.iter().copied());
        *bytes = rest;
    }
    to.len() < wanted
}
