// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The data of a request, as segments or as bytes.

use std::sync::atomic::{AtomicU64, Ordering};

use vrnic_abi::sq::{AtomicSeg, Class, Opcode, Sge};
use zerocopy::transmute;

use super::{PostError, SendLimits};
use crate::ring;

const ATOMIC_WORDS: usize = size_of::<AtomicSeg>() / 8;
/// Words of a segment.
pub(super) const SGE_WORDS: usize = size_of::<Sge>() / 8;

/// The data of a request.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// The memory that it is read from, or written to.
    Segments(&'a [Sge]),
    /// The data itself, in pieces. They may be freed once the request is posted.
    Inline(&'a [&'a [u8]]),
    /// The operands of an atomic, and the memory for the old value; or the operands of a FLUSH,
    /// which has no memory.
    Atomic(AtomicSeg, &'a [Sge]),
}

impl Data<'_> {
    /// Checks the data against the limits of the queue; returns the header's count.
    #[inline(always)]
    pub(super) fn count(&self, opcode: Opcode, limits: SendLimits) -> Result<u16, PostError> {
        match self {
            Self::Segments(segments) => segment_count(segments, limits.max_sge),
            Self::Inline(pieces) => inline_count(pieces, opcode, limits.max_inline),
            Self::Atomic(_, segments) => atomic_count(segments, opcode, limits.max_sge),
        }
    }

    /// Writes the data into the rest of an entry.
    #[inline(always)]
    pub(super) fn write(&self, body: &[AtomicU64]) {
        match self {
            Self::Segments(segments) => write_segments(body, segments),
            Self::Inline(pieces) => write_inline(body, pieces),
            Self::Atomic(operands, segments) => write_atomic(body, operands, segments),
        }
    }
}

/// Returns the number of segments, unless it is above `max`.
#[inline(always)]
pub(super) fn segment_count(segments: &[Sge], max: u32) -> Result<u16, PostError> {
    if segments.len() > max as usize {
        return Err(PostError::Segments);
    }
    u16::try_from(segments.len()).map_err(|_| PostError::Segments)
}

/// Returns the number of segments of an atomic, which must be one, or of a FLUSH, which has none.
fn atomic_count(segments: &[Sge], opcode: Opcode, max: u32) -> Result<u16, PostError> {
    let right = if opcode == Opcode::Flush { 0 } else { 1 };
    segment_count(segments, max.min(1))
        .and_then(|count| if count == right { Ok(count) } else { Err(PostError::Segments) })
}

fn inline_count(pieces: &[&[u8]], opcode: Opcode, max: u32) -> Result<u16, PostError> {
    if !opcode.info().may_be_inline() {
        return Err(PostError::Inline);
    }
    // Each entry has room for the 8 bytes of an ATOMIC WRITE.
    let max = if opcode.info().class == Class::AtomicWrite { max.max(8) } else { max };
    let length = pieces.iter().try_fold(0usize, |sum, piece| sum.checked_add(piece.len()));
    let fits = length.filter(|length| *length <= max as usize);
    fits.and_then(|length| u16::try_from(length).ok()).ok_or(PostError::Inline)
}

/// Writes segments until the entry is full.
#[inline]
pub(super) fn write_segments(body: &[AtomicU64], segments: &[Sge]) {
    for (to, from) in body.chunks_exact(SGE_WORDS).zip(segments) {
        let words: [u64; SGE_WORDS] = transmute!(*from);
        ring::store(to, &words);
    }
}

fn write_atomic(body: &[AtomicU64], operands: &AtomicSeg, segments: &[Sge]) {
    let operands: [u64; ATOMIC_WORDS] = transmute!(*operands);
    ring::store(body, &operands);
    write_segments(body.get(ATOMIC_WORDS..).unwrap_or_default(), segments);
}

/// Writes pieces of bytes without gaps; the last word is filled up with zeros.
pub(super) fn write_inline(body: &[AtomicU64], pieces: &[&[u8]]) {
    let mut writer = BytesWriter::new(body);
    for piece in pieces {
        writer.write(piece);
    }
    writer.finish();
}

/// Packs pieces of bytes into words without gaps.
struct BytesWriter<'a> {
    words: std::slice::Iter<'a, AtomicU64>,
    partial: [u8; 8],
    filled: usize,
}

impl<'a> BytesWriter<'a> {
    fn new(words: &'a [AtomicU64]) -> Self {
        Self { words: words.iter(), partial: [0; 8], filled: 0 }
    }

    fn write(&mut self, mut bytes: &[u8]) {
        while self.filled != 0 {
            let Some((first, rest)) = bytes.split_first() else { return };
            self.push(*first);
            bytes = rest;
        }
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.emit(*word);
        }
        for byte in rest {
            self.push(*byte);
        }
    }

    fn push(&mut self, byte: u8) {
        if let Some(to) = self.partial.get_mut(self.filled) {
            *to = byte;
        }
        self.filled += 1;
        if self.filled == self.partial.len() {
            self.emit(self.partial);
            self.filled = 0;
        }
    }

    fn emit(&mut self, word: [u8; 8]) {
        if let Some(to) = self.words.next() {
            to.store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
    }

    fn finish(mut self) {
        if self.filled != 0 {
            self.partial.iter_mut().skip(self.filled).for_each(|byte| *byte = 0);
            self.emit(self.partial);
        }
    }
}
