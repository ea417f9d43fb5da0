//! The layouts of vfio-user messages, as in the protocol's specification. Numbers are in the host's
//! byte order.

use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Maximum length of the data of a region access in bytes; sent to the VMM as `max_data_xfer_size`.
pub const TRANSFER_MAX: usize = 1 << 20;
/// Maximum number of descriptors in a message; sent to the VMM as `max_msg_fds`.
pub const FDS_MAX: usize = 8;
/// Maximum length of the data of a message if the VMM does not say another one.
pub const TRANSFER_DEFAULT: usize = 1 << 20;
/// Maximum length of a message's body, which the longest write has.
pub const BODY_MAX: usize = size_of::<RegionAccess>() + TRANSFER_MAX;
/// Length of a header.
pub const HEADER_LEN: usize = size_of::<Header>();

/// Flags of a header: the type of the message.
const TYPE_MASK: u32 = 0xf;
const TYPE_COMMAND: u32 = 0;
const TYPE_REPLY: u32 = 1;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

/// Header of every message.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// Identifies a command and its reply.
    pub id: u16,
    /// The number of the command.
    pub command: u16,
    /// Length of the message in bytes, the header included.
    pub size: u32,
    /// The type of the message, and whether a reply is wanted.
    pub flags: u32,
    /// The error number in a reply that reports an error.
    pub error: u32,
}

impl Header {
    /// Returns the length of the body, unless the message exceeds the maximum length.
    #[must_use]
    pub fn body_len(&self) -> Option<usize> {
        let len = usize::try_from(self.size).ok()?.checked_sub(HEADER_LEN)?;
        (len <= BODY_MAX).then_some(len)
    }

    /// Returns whether the message is a command.
    #[must_use]
    pub fn is_command(&self) -> bool {
        self.flags & TYPE_MASK == TYPE_COMMAND
    }

    /// Returns whether the message is a reply.
    #[must_use]
    pub fn is_reply(&self) -> bool {
        self.flags & TYPE_MASK == TYPE_REPLY
    }

    /// Returns the error number of a reply that reports an error.
    #[must_use]
    pub fn error(&self) -> Option<u32> {
        (self.flags & ERROR != 0).then_some(self.error)
    }

    /// Returns the header of a command with a body of `len` bytes, whose sender waits for a reply.
    #[must_use]
    pub fn command(id: u16, command: u16, len: usize) -> Self {
        // Bodies are much shorter than `BODY_MAX`.
        let size = u32::try_from(HEADER_LEN + len).unwrap_or(u32::MAX);
        Self { id, command, size, flags: TYPE_COMMAND, error: 0 }
    }

    /// Returns whether the sender waits for a reply.
    #[must_use]
    pub fn wants_reply(&self) -> bool {
        self.flags & NO_REPLY == 0
    }

    /// Returns the header of the reply with a body of `len` bytes.
    #[must_use]
    pub fn reply(&self, len: usize) -> Self {
        // Bodies are much shorter than `BODY_MAX`.
        let size = u32::try_from(HEADER_LEN + len).unwrap_or(u32::MAX);
        Self { size, flags: TYPE_REPLY, error: 0, ..*self }
    }

    /// Returns the reply that refuses the command with this error.
    #[must_use]
    pub fn refusal(&self, error: rustix::io::Errno) -> Self {
        let error = error.raw_os_error().unsigned_abs();
        Self { flags: TYPE_REPLY | ERROR, error, ..self.reply(0) }
    }
}

/// VERSION, in both directions. Capabilities as JSON follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Version {
    /// Versions with different major numbers are incompatible.
    pub major: u16,
    /// Versions that differ only in the minor number are compatible.
    pub minor: u16,
}

/// The data of a DMA_MAP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DmaMap {
    /// Length of this structure.
    pub argsz: u32,
    /// `VFIO_DMA_MAP_FLAG_*`.
    pub flags: u32,
    /// Offset in the file.
    pub offset: u64,
    /// First guest address.
    pub iova: u64,
    /// Length in bytes.
    pub size: u64,
}

/// DMA_UNMAP, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DmaUnmap {
    /// Length of this structure.
    pub argsz: u32,
    /// `VFIO_DMA_UNMAP_FLAG_*`.
    pub flags: u32,
    /// First guest address.
    pub iova: u64,
    /// Length in bytes.
    pub size: u64,
}

/// DEVICE_GET_INFO, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DeviceInfo {
    /// Length of this structure.
    pub argsz: u32,
    /// `VFIO_DEVICE_FLAGS_*`.
    pub flags: u32,
    /// Number of regions.
    pub regions: u32,
    /// Number of interrupt indices.
    pub irqs: u32,
}

/// DEVICE_GET_REGION_INFO, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RegionInfo {
    /// The room for the reply in a request, the length that is needed in a reply.
    pub argsz: u32,
    /// `VFIO_REGION_INFO_FLAG_*`.
    pub flags: u32,
    /// Number of the region.
    pub index: u32,
    /// Offset of the capabilities; 0 if there are none.
    pub cap_offset: u32,
    /// Length of the region in bytes.
    pub size: u64,
    /// Offset in the file that is sent with the reply.
    pub offset: u64,
}

/// The capability that says which part of a region can be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SparseMmap {
    /// `VFIO_REGION_INFO_CAP_SPARSE_MMAP`.
    pub id: u16,
    /// Version of the capability: 1.
    pub version: u16,
    /// Offset of the next capability; 0 when there is none.
    pub next: u32,
    /// Number of areas: 1.
    pub areas: u32,
    /// Zero.
    pub reserved: u32,
    /// Offset of the area.
    pub offset: u64,
    /// The length of the area.
    pub size: u64,
}

/// DEVICE_GET_IRQ_INFO, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct IrqInfo {
    /// Length of this structure.
    pub argsz: u32,
    /// `VFIO_IRQ_INFO_*`.
    pub flags: u32,
    /// Interrupt index.
    pub index: u32,
    /// Number of vectors.
    pub count: u32,
}

/// The head of DEVICE_SET_IRQS. The data follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct IrqSet {
    /// Length of this structure and what follows.
    pub argsz: u32,
    /// `VFIO_IRQ_SET_*`.
    pub flags: u32,
    /// Interrupt index.
    pub index: u32,
    /// First vector.
    pub start: u32,
    /// Number of vectors.
    pub count: u32,
}

/// REGION_READ and REGION_WRITE, in both directions. The data follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RegionAccess {
    /// Offset in the region.
    pub offset: u64,
    /// Number of the region.
    pub region: u32,
    /// Length of the data.
    pub count: u32,
}

/// DMA_READ and DMA_WRITE, in both directions. The data follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DmaAccess {
    /// First guest address.
    pub addr: u64,
    /// Length of the data.
    pub count: u64,
}
