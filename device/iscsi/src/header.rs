//! The basic header segment (RFC 7143, 11.2). All fields are big-endian.

/// Number of bytes of a basic header segment.
pub const BHS_LEN: usize = 48;
/// The tag of a PDU that belongs to no task.
pub const NO_TAG: u32 = u32::MAX;

const OPCODE_MASK: u8 = 0x3f;
const FINAL: u8 = 0x80;
const STATUS: u8 = 0x01;
const ADDITIONAL_LENGTH: usize = 4;
const TASK_TAG: usize = 16;
const EXPECTED_LENGTH: usize = 20;
const STATUS_NUMBER: usize = 24;
const EXPECTED_STATUS_NUMBER: usize = 28;
const DATA_NUMBER: usize = 36;
const OFFSET: usize = 40;
const DESIRED_LENGTH: usize = 44;

/// The opcodes that this crate distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// NOP-Out.
    NopOut = 0x00,
    /// SCSI Command.
    ScsiCommand = 0x01,
    /// Task Management Function Request.
    TaskManagement = 0x02,
    /// Text Request.
    Text = 0x04,
    /// SCSI Data-Out.
    DataOut = 0x05,
    /// Logout Request.
    Logout = 0x06,
    /// SNACK Request.
    Snack = 0x10,
    /// SCSI Response.
    ScsiResponse = 0x21,
    /// SCSI Data-In.
    DataIn = 0x25,
    /// Ready To Transfer.
    R2t = 0x31,
}

impl Opcode {
    const ALL: [Self; 10] = [
        Self::NopOut,
        Self::ScsiCommand,
        Self::TaskManagement,
        Self::Text,
        Self::DataOut,
        Self::Logout,
        Self::Snack,
        Self::ScsiResponse,
        Self::DataIn,
        Self::R2t,
    ];
}

/// A basic header segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bhs(pub [u8; BHS_LEN]);

impl Default for Bhs {
    fn default() -> Self {
        Self([0; BHS_LEN])
    }
}

impl Bhs {
    /// Returns the header at the beginning of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().map(|bytes| Self(*bytes))
    }

    fn byte(&self, at: usize) -> u8 {
        self.0.get(at).copied().unwrap_or_default()
    }

    fn word(&self, at: usize) -> u32 {
        let bytes = self.0.get(at..).and_then(|rest| rest.first_chunk());
        u32::from_be_bytes(bytes.copied().unwrap_or_default())
    }

    fn set(&mut self, at: usize, bytes: &[u8]) {
        if let Some(field) = self.0.get_mut(at..at + bytes.len()) {
            field.copy_from_slice(bytes);
        }
    }

    /// Returns the opcode, if it is one of [`Opcode`].
    #[must_use]
    pub fn opcode(&self) -> Option<Opcode> {
        let raw = self.byte(0) & OPCODE_MASK;
        Opcode::ALL.into_iter().find(|opcode| *opcode as u8 == raw)
    }

    /// Returns the flags of the opcode.
    #[must_use]
    pub fn flags(&self) -> u8 {
        self.byte(1)
    }

    /// Returns whether a Data-In also has the status of its command.
    #[must_use]
    pub fn has_status(&self) -> bool {
        self.flags() & STATUS != 0
    }

    /// Returns the number of bytes of additional header segments.
    #[must_use]
    pub fn additional_len(&self) -> usize {
        usize::from(self.byte(ADDITIONAL_LENGTH)) * 4
    }

    /// Returns the number of bytes of data, without padding.
    #[must_use]
    pub fn data_len(&self) -> u32 {
        self.word(ADDITIONAL_LENGTH) & 0x00ff_ffff
    }

    /// Returns the initiator task tag.
    #[must_use]
    pub fn task_tag(&self) -> u32 {
        self.word(TASK_TAG)
    }

    /// Sets the initiator task tag.
    pub fn set_task_tag(&mut self, tag: u32) {
        self.set(TASK_TAG, &tag.to_be_bytes());
    }

    /// Returns the expected data transfer length of a SCSI Command.
    #[must_use]
    pub fn expected_len(&self) -> u32 {
        self.word(EXPECTED_LENGTH)
    }

    /// Returns the first byte of the command descriptor block of a SCSI Command.
    #[must_use]
    pub fn operation(&self) -> u8 {
        self.byte(32)
    }

    /// Returns the status sequence number of a PDU of the target.
    #[must_use]
    pub fn status_number(&self) -> u32 {
        self.word(STATUS_NUMBER)
    }

    /// Returns the buffer offset of a Data-In or R2T.
    #[must_use]
    pub fn offset(&self) -> u32 {
        self.word(OFFSET)
    }

    /// Returns the desired data transfer length of an R2T.
    #[must_use]
    pub fn desired_len(&self) -> u32 {
        self.word(DESIRED_LENGTH)
    }

    /// Returns the header of a Data-Out that answers the R2T `request`.
    #[must_use]
    pub fn data_out(request: &Self, number: u32, offset: u32, length: u32, is_last: bool) -> Self {
        let mut it = Self::default();
        it.set(0, &[Opcode::DataOut as u8, if is_last { FINAL } else { 0 }]);
        it.set(ADDITIONAL_LENGTH, &(length & 0x00ff_ffff).to_be_bytes());
        // The logical unit and both tags.
        it.set(8, request.0.get(8..24).unwrap_or_default());
        it.set(EXPECTED_STATUS_NUMBER, &request.status_number().to_be_bytes());
        it.set(DATA_NUMBER, &number.to_be_bytes());
        it.set(OFFSET, &offset.to_be_bytes());
        it
    }
}
