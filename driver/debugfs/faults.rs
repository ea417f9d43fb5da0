// SPDX-License-Identifier: GPL-2.0
//! The debugfs file of the rules for faults that the guest sets for this device (docs/faults.md),
//! which exists if the operator permits them.
//!
//! A write of a rule adds it, `clear` removes all rules, and `clear NUMBER` one. A read returns a
//! line for each rule. If the adapter has refused the last write, the first line is the reason.

use abi::admin::{EditFaults, FAULT_LINES_MAX, FAULT_TEXT_LEN, ListFaults, NONE, command};
use kernel::{
    debugfs::{BinaryReader, BinaryWriter},
    device,
    fs::file,
    new_mutex,
    prelude::*,
    sync::{Arc, Mutex},
    uaccess::{UserSliceReader, UserSliceWriter},
};

use super::permission;
use crate::{
    hw::ring::{Ring, RingShape},
    quiesce::Liveness,
};

/// Bytes of the longest text.
const TEXT: usize = FAULT_TEXT_LEN as usize;
/// Maximum number of bytes of all lines. No adapter has so many rules.
const LINES: usize = 64 << 10;
/// Bytes that are copied at a time.
const PART: usize = 64;
/// The word before a reason.
const REFUSED: &[u8] = b"refused ";

/// The content of the file.
pub(super) struct Faults {
    liveness: Arc<Liveness>,
    /// The buffer, whose lock lets one process at a time use it.
    state: Pin<KBox<Mutex<State>>>,
}

struct State {
    /// The buffer for texts.
    buffer: Ring,
    /// The reason for which the adapter has refused the last write.
    refused: KVec<u8>,
}

impl Faults {
    /// Returns the rules of an adapter that runs. They must not be dropped before the adapter is
    /// quiet.
    pub(super) fn new(
        device: &device::Device<device::Bound>,
        liveness: Arc<Liveness>,
    ) -> Result<Self> {
        // One entry, as long as the longest answer.
        // CAST: log2 of a u32.
        let log_stride = FAULT_LINES_MAX.trailing_zeros() as u8;
        let buffer = Ring::new(device, RingShape { log_size: 0, log_stride })?;
        let state = State { buffer, refused: KVec::new() };
        let state = KBox::pin_init(new_mutex!(state, "vrnic::Faults"), GFP_KERNEL)?;
        Ok(Self { liveness, state })
    }

    /// Lets the adapter change the rules as a text demands.
    fn edit(&self, text: &[u8]) -> Result {
        let mut state = self.state.lock();
        state.buffer.write(0, text)?;
        let params = EditFaults {
            addr: state.buffer.dma_address().into(),
            len: u32::try_from(text.len())?.into(),
            ..EditFaults::default()
        };
        let result = self.liveness.execute::<command::EditFaults>(&params)?;
        // The adapter's answer is not trusted.
        let length = (result.reason.get() as usize).min(TEXT);
        state.refused = state.text(length)?;
        if length == 0 { Ok(()) } else { Err(EINVAL) }
    }

    /// Returns all lines.
    fn lines(&self) -> Result<KVec<u8>> {
        let state = self.state.lock();
        let mut lines = KVec::new();
        if !state.refused.is_empty() {
            lines.extend_from_slice(REFUSED, GFP_KERNEL)?;
            lines.extend_from_slice(&state.refused, GFP_KERNEL)?;
            lines.push(b'\n', GFP_KERNEL)?;
        }
        let mut from = 0;
        while from != NONE && lines.len() < LINES {
            let params = ListFaults {
                addr: state.buffer.dma_address().into(),
                len: FAULT_LINES_MAX.into(),
                from: from.into(),
            };
            let result = self.liveness.execute::<command::ListFaults>(&params)?;
            // The adapter's answer is not trusted.
            let (length, next) = (result.len.get(), result.next.get());
            if length > FAULT_LINES_MAX || next <= from {
                return Err(EIO);
            }
            lines.extend_from_slice(&state.text(length as usize)?, GFP_KERNEL)?;
            from = next;
        }
        Ok(lines)
    }
}

impl State {
    /// Returns a copy of the first bytes of the buffer.
    fn text(&self, length: usize) -> Result<KVec<u8>> {
        let mut text = KVec::with_capacity(length.next_multiple_of(PART), GFP_KERNEL)?;
        for offset in (0..length).step_by(PART) {
            text.extend_from_slice(&self.buffer.read_at::<[u8; PART]>(offset)?, GFP_KERNEL)?;
        }
        text.truncate(length);
        Ok(text)
    }
}

impl BinaryReader for Faults {
    fn read_from_slice(
        &self,
        reader: &mut UserSliceReader,
        _offset: &mut file::Offset,
    ) -> Result<usize> {
        permission::check()?;
        let length = reader.len();
        let mut text = [0; TEXT];
        let text = text.get_mut(..length).ok_or(EINVAL)?;
        reader.read_slice(text)?;
        self.edit(text.trim_ascii())?;
        Ok(length)
    }
}

impl BinaryWriter for Faults {
    fn write_to_slice(
        &self,
        writer: &mut UserSliceWriter,
        offset: &mut file::Offset,
    ) -> Result<usize> {
        permission::check()?;
        writer.write_slice_file(&self.lines()?, offset)
    }
}
