// SPDX-License-Identifier: GPL-2.0
//! Headers of iSCSI PDUs (RFC 7143, 11).

/// Bytes of a header.
pub(crate) const LEN: usize = 48;
/// A tag that names no task.
pub(crate) const NO_TAG: u32 = u32::MAX;

/// PDUs of the initiator, which are immediate but for SCSI Commands.
pub(crate) mod request {
    pub(crate) const NOP_OUT: u8 = 0x40;
    pub(crate) const SCSI_COMMAND: u8 = 0x01;
    pub(crate) const TASK_MANAGEMENT: u8 = 0x42;
    pub(crate) const LOGIN: u8 = 0x43;
    pub(crate) const LOGOUT: u8 = 0x46;
}

/// PDUs of the target.
pub(crate) mod response {
    pub(crate) const NOP_IN: u8 = 0x20;
    pub(crate) const SCSI_RESPONSE: u8 = 0x21;
    pub(crate) const TASK_MANAGEMENT: u8 = 0x22;
    pub(crate) const LOGIN: u8 = 0x23;
    pub(crate) const DATA_IN: u8 = 0x25;
    pub(crate) const LOGOUT: u8 = 0x26;
    pub(crate) const R2T: u8 = 0x31;
    pub(crate) const ASYNC: u8 = 0x32;
}

/// The bit of requests and responses without another PDU after them.
pub(crate) const FINAL: u8 = 0x80;
/// The bit of a Data-In with status.
pub(crate) const WITH_STATUS: u8 = 0x01;
/// The bit of a residual count of bytes that were not moved.
pub(crate) const UNDERFLOW: u8 = 0x02;

#[derive(Clone, Copy)]
pub(crate) struct Header(pub(crate) [u8; LEN]);

/// Offsets of fields.
pub(crate) mod at {
    pub(crate) const LUN: usize = 8;
    pub(crate) const TASK_TAG: usize = 16;
    /// The expected length of a command, the target's tag of a PING, the task of a request about
    /// a task.
    pub(crate) const SECOND_TAG: usize = 20;
    /// CmdSN, or StatSN of the target.
    pub(crate) const NUMBER: usize = 24;
    /// ExpStatSN, or ExpCmdSN of the target.
    pub(crate) const EXPECTED: usize = 28;
    /// MaxCmdSN, the CDB of a command, or RefCmdSN.
    pub(crate) const MAX: usize = 32;
    pub(crate) const RESIDUAL: usize = 44;
}

impl Header {
    /// Returns a header of a request with these flags.
    pub(crate) fn new(opcode: u8, flags: u8) -> Self {
        let mut bytes = [0; LEN];
        [bytes[0], bytes[1]] = [opcode, flags];
        Self(bytes)
    }

    /// Stores bytes at an offset, which must be inside.
    pub(crate) fn put(mut self, at: usize, bytes: &[u8]) -> Self {
        if let Some(place) = self.0.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len())) {
            place.copy_from_slice(bytes);
        }
        self
    }

    /// Stores a word.
    pub(crate) fn put_word(self, at: usize, value: u32) -> Self {
        self.put(at, &value.to_be_bytes())
    }

    /// Stores the length of the data.
    pub(crate) fn put_data_len(mut self, len: u32) -> Self {
        let [_, high, middle, low] = len.to_be_bytes();
        [self.0[5], self.0[6], self.0[7]] = [high, middle, low];
        self
    }

    /// Returns the word at an offset.
    pub(crate) fn word(&self, at: usize) -> u32 {
        let word = self.0.get(at..).and_then(|rest| rest.first_chunk());
        word.map_or(0, |word| u32::from_be_bytes(*word))
    }

    /// Returns the operation, without the bit of immediate ones.
    pub(crate) fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }

    /// Returns the flags.
    pub(crate) fn flags(&self) -> u8 {
        self.0[1]
    }

    /// Returns the length of the additional headers.
    pub(crate) fn additional_len(&self) -> usize {
        usize::from(self.0[4]) * 4
    }

    /// Returns the length of the data.
    pub(crate) fn data_len(&self) -> u32 {
        u32::from_be_bytes([0, self.0[5], self.0[6], self.0[7]])
    }
}

/// Returns whether a sequence number is before another one (RFC 1982).
pub(crate) fn is_before(one: u32, other: u32) -> bool {
    other.wrapping_sub(one) as i32 > 0
}
