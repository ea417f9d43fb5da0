// SPDX-License-Identifier: GPL-2.0
//! Rings in kernel memory that the adapter reads or writes.

use abi::{rq, sq};
use kernel::{
    device,
    dma::Coherent,
    io::{Io, io_project},
    prelude::*,
};
use zerocopy::{FromBytes, IntoBytes};

/// A ring. Indices are free-running.
pub(crate) struct Ring {
    /// Pieces of `1 << piece_shift` bytes, or one that is shorter.
    pieces: KVec<Coherent<[u8]>>,
    piece_shift: u8,
    shape: RingShape,
}

/// The geometry of a ring: logs of the number of its entries and of their stride.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingShape {
    /// log2 of the entries.
    pub(crate) log_size: u8,
    /// log2 of the bytes of an entry.
    pub(crate) log_stride: u8,
}

impl RingShape {
    /// Returns the shape of a ring for at least `entries` of `stride` bytes, a power of two.
    pub(crate) fn with_room(entries: u32, stride: u32) -> Self {
        // CAST: logs of 32-bit numbers.
        Self {
            log_size: entries.next_power_of_two().trailing_zeros() as u8,
            log_stride: stride.trailing_zeros() as u8,
        }
    }

    /// Returns the number of entries.
    pub(crate) fn entries(self) -> u32 {
        1 << self.log_size
    }

    /// Returns the bytes of an entry.
    pub(crate) fn stride(self) -> u32 {
        1 << self.log_stride
    }

    /// Returns the bytes of the ring.
    pub(crate) fn length(self) -> u64 {
        u64::from(self.entries()) * u64::from(self.stride())
    }

    /// Returns whether a send queue may have this shape.
    pub(crate) fn is_send_queue(self) -> bool {
        self.is_work_queue(sq::STRIDE_MIN, sq::STRIDE_MAX)
    }

    /// Returns whether a queue of receives may have this shape.
    pub(crate) fn is_recv_queue(self) -> bool {
        self.is_work_queue(rq::STRIDE_MIN, rq::STRIDE_MAX)
    }

    fn is_work_queue(self, stride_min: u32, stride_max: u32) -> bool {
        let strides = stride_min.trailing_zeros()..=stride_max.trailing_zeros();
        u32::from(self.log_size) <= sq::LOG_WQES_MAX && strides.contains(&self.log_stride.into())
    }
}

/// Returns whether free-running index `a` is older than `b`.
pub(crate) fn is_before(a: u32, b: u32) -> bool {
    // CAST: the sign of the distance is what counts.
    (a.wrapping_sub(b) as i32) < 0
}

/// log2 of the bytes of a piece: much longer pieces cannot always be allocated. No entry is longer.
const PIECE_SHIFT: u8 = 16;

impl Ring {
    /// Creates a zeroed ring that is contiguous, and therefore cannot be long.
    pub(crate) fn new(device: &device::Device<device::Bound>, shape: RingShape) -> Result<Self> {
        Self::with(device, shape, shape.log_size + shape.log_stride)
    }

    /// Creates a zeroed ring of any length.
    pub(crate) fn in_pieces(
        device: &device::Device<device::Bound>,
        shape: RingShape,
    ) -> Result<Self> {
        Self::with(device, shape, PIECE_SHIFT)
    }

    fn with(
        device: &device::Device<device::Bound>,
        shape: RingShape,
        piece_shift: u8,
    ) -> Result<Self> {
        let length = 1usize << (shape.log_size + shape.log_stride);
        let count = length.div_ceil(1 << piece_shift);
        let mut pieces = KVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            let piece = Coherent::<u8>::zeroed_slice(device, length / count, GFP_KERNEL)?;
            pieces.push(piece, GFP_KERNEL)?;
        }
        Ok(Self { pieces, piece_shift, shape })
    }

    /// Returns the address of the ring's first piece for the adapter. A contiguous ring has only
    /// this piece.
    pub(crate) fn dma_address(&self) -> u64 {
        self.pieces.first().map_or(0, Coherent::dma_address)
    }

    /// Returns the addresses of its pieces. Each is aligned to its length.
    pub(crate) fn pieces(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.pieces.iter().map(Coherent::dma_address)
    }

    /// Returns log2 of the bytes of a piece, if there are several.
    pub(crate) fn piece_shift(&self) -> u8 {
        self.piece_shift
    }

    /// Returns the piece with the byte at `offset`, and where that is in it.
    fn piece(&self, offset: usize) -> Result<(&Coherent<[u8]>, usize)> {
        let piece = self.pieces.get(offset >> self.piece_shift).ok_or(EINVAL)?;
        Ok((piece, offset & ((1 << self.piece_shift) - 1)))
    }

    /// Returns the number of entries.
    pub(crate) fn size(&self) -> u32 {
        self.shape.entries()
    }

    /// Returns the geometry of the ring.
    pub(crate) fn shape(&self) -> RingShape {
        self.shape
    }

    /// Returns the offset of an entry.
    fn offset(&self, index: u32) -> usize {
        ((index & (self.size() - 1)) as usize) << self.shape.log_stride
    }

    /// Returns the 32-bit word at `offset` of entry `index`.
    pub(crate) fn word(&self, index: u32, offset: u32) -> Result<u32> {
        let (piece, start) = self.piece(self.offset(index) + offset as usize)?;
        let bytes = io_project!(piece, [try: start..start + size_of::<u32>()]);
        Ok(u32::from_le(bytes.try_cast::<u32>()?.read_val()))
    }

    /// Sets the 32-bit word at `offset` of entry `index`.
    pub(crate) fn set_word(&self, index: u32, offset: u32, value: u32) -> Result {
        let (piece, start) = self.piece(self.offset(index) + offset as usize)?;
        let bytes = io_project!(piece, [try: start..start + size_of::<u32>()]);
        bytes.try_cast::<u32>()?.write_val(value.to_le());
        Ok(())
    }

    /// Returns a copy of entry `index`.
    pub(crate) fn read<T: FromBytes + IntoBytes>(&self, index: u32) -> Result<T> {
        self.read_at(self.offset(index))
    }

    /// Returns a copy of the value at `offset` bytes from the start of the ring.
    pub(crate) fn read_at<T: FromBytes + IntoBytes>(&self, offset: usize) -> Result<T> {
        let (piece, start) = self.piece(offset)?;
        let bytes = io_project!(piece, [try: start..start + size_of::<T>()]);
        Ok(bytes.try_cast::<T>()?.copy_read())
    }

    /// Writes the start of entry `index`.
    pub(crate) fn write(&self, index: u32, data: &[u8]) -> Result {
        if data.len() > 1 << self.shape.log_stride {
            return Err(EINVAL);
        }
        let (piece, start) = self.piece(self.offset(index))?;
        io_project!(piece, [try: start..start + data.len()]).copy_from_slice(data);
        Ok(())
    }
}
