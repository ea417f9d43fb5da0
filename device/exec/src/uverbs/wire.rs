//! The formats of requests (rdma/rdma_user_ioctl_cmds.h), and the numbers of objects, methods and
//! attributes (rdma/ib_user_ioctl_cmds.h). Modules have the names of the objects.

use zerocopy_derive::{FromBytes, Immutable, IntoBytes};

/// Flag of an attribute that the kernel must know (`UVERBS_ATTR_F_MANDATORY`).
pub const MANDATORY: u16 = 1 << 0;
/// Flag that the kernel sets when it has written an attribute (`UVERBS_ATTR_F_VALID_OUTPUT`).
pub const VALID_OUTPUT: u16 = 1 << 1;
/// Attribute with the driver's own part of a request (`UVERBS_ATTR_UHW_IN`).
pub const UHW_IN: u16 = 1 << 12;
/// Attribute with the driver's own part of an answer (`UVERBS_ATTR_UHW_OUT`).
pub const UHW_OUT: u16 = UHW_IN + 1;
/// Maximum length of a request: a page.
pub const LENGTH_MAX: u16 = 4096;

/// `struct ib_uverbs_ioctl_hdr`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Header {
    /// Length of the request in bytes.
    pub length: u16,
    /// The object that the method is of.
    pub object: u16,
    /// The method.
    pub method: u16,
    /// Number of attributes.
    pub attributes: u16,
    /// Zero.
    pub reserved1: u64,
    /// The driver that the program expects.
    pub driver: u32,
    /// Zero.
    pub reserved2: u32,
}

/// `struct ib_uverbs_attr`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Attribute {
    /// The number of the attribute.
    pub id: u16,
    /// Number of bytes; zero for objects and descriptors.
    pub len: u16,
    /// [`MANDATORY`] and [`VALID_OUTPUT`].
    pub flags: u16,
    /// Zero.
    pub reserved: u16,
    /// The address of the bytes; the bytes themselves if there are at most eight; a handle; or a
    /// descriptor.
    pub data: u64,
}

/// Length of a header in bytes.
pub const HEADER_LEN: u64 = size_of::<Header>() as u64;
/// Length of an attribute in bytes.
pub const ATTRIBUTE_LEN: u64 = size_of::<Attribute>() as u64;
const _: () = assert!(HEADER_LEN == 24 && ATTRIBUTE_LEN == 16);

/// The device itself.
pub mod device {
    /// Number of the object.
    pub const OBJECT: u16 = 0;
    /// A command that was a system call write once.
    pub const INVOKE_WRITE: u16 = 0;
    /// Attributes of [`INVOKE_WRITE`].
    pub const CORE_IN: u16 = 0;
    /// The answer.
    pub const CORE_OUT: u16 = 1;
    /// The number of the command.
    pub const WRITE_COMMAND: u16 = 2;
    /// The state of a port.
    pub const QUERY_PORT: u16 = 2;
    /// Attributes of [`QUERY_PORT`].
    pub const PORT_NUMBER: u16 = 0;
    /// The answer.
    pub const PORT_RESPONSE: u16 = 1;
    /// A new context.
    pub const GET_CONTEXT: u16 = 3;
    /// Attributes of [`GET_CONTEXT`].
    pub const COMPLETION_VECTORS: u16 = 0;
    /// What the kernel's core offers.
    pub const CORE_SUPPORT: u16 = 1;
    /// All GIDs.
    pub const QUERY_GID_TABLE: u16 = 5;
    /// Attributes of [`QUERY_GID_TABLE`].
    pub const ENTRY_SIZE: u16 = 0;
    /// Zero.
    pub const TABLE_FLAGS: u16 = 1;
    /// The answer.
    pub const ENTRIES: u16 = 2;
    /// The number of entries in it.
    pub const ENTRY_COUNT: u16 = 3;
    /// One GID.
    pub const QUERY_GID_ENTRY: u16 = 6;
    /// Attributes of [`QUERY_GID_ENTRY`].
    pub const ENTRY_PORT: u16 = 0;
    /// The index.
    pub const ENTRY_INDEX: u16 = 1;
    /// Zero.
    pub const ENTRY_FLAGS: u16 = 2;
    /// The answer.
    pub const ENTRY: u16 = 3;
}

/// Attribute of each method that destroys an object: its handle.
pub const HANDLE: u16 = 0;
/// Attribute of some of them: the number of events that the program will acknowledge.
pub const EVENTS_REPORTED: u16 = 1;

/// Protection domains.
pub mod pd {
    /// Number of the object.
    pub const OBJECT: u16 = 1;
    /// The method.
    pub const DESTROY: u16 = 0;
}

/// Completion queues.
pub mod cq {
    /// Number of the object.
    pub const OBJECT: u16 = 3;
    /// The methods.
    pub const CREATE: u16 = 0;
    /// The other one.
    pub const DESTROY: u16 = 1;
    /// Attributes of [`CREATE`].
    pub const ENTRIES: u16 = 1;
    /// The program's number for it.
    pub const USER_HANDLE: u16 = 2;
    /// The descriptor of a channel.
    pub const CHANNEL: u16 = 3;
    /// The completion vector.
    pub const VECTOR: u16 = 4;
    /// Flags.
    pub const FLAGS: u16 = 5;
    /// The number of entries that it got.
    pub const RESP_ENTRIES: u16 = 6;
    /// The descriptor of a channel for asynchronous events.
    pub const EVENT_FD: u16 = 7;
}

/// Queue pairs.
pub mod qp {
    /// Number of the object.
    pub const OBJECT: u16 = 4;
    /// The methods.
    pub const CREATE: u16 = 0;
    /// The other one.
    pub const DESTROY: u16 = 1;
    /// Attributes of [`CREATE`]: the XRC domain.
    pub const XRCD: u16 = 1;
    /// The PD.
    pub const PD: u16 = 2;
    /// The SRQ.
    pub const SRQ: u16 = 3;
    /// The CQ of the send queue.
    pub const SEND_CQ: u16 = 4;
    /// The CQ of the receive queue.
    pub const RECV_CQ: u16 = 5;
    /// The program's number for it.
    pub const USER_HANDLE: u16 = 7;
    /// The sizes of the queues.
    pub const CAP: u16 = 8;
    /// The type of the queue pair.
    pub const TYPE: u16 = 9;
    /// Flags.
    pub const FLAGS: u16 = 10;
    /// The descriptor of a channel for asynchronous events.
    pub const EVENT_FD: u16 = 12;
    /// The sizes that it got.
    pub const RESP_CAP: u16 = 13;
    /// The number of the queue pair.
    pub const RESP_NUMBER: u16 = 14;
    /// In [`FLAGS`]: each send work request is signaled.
    pub const SIGNAL_ALL: u64 = 1 << 12;
}

/// Shared receive queues.
pub mod srq {
    /// Number of the object.
    pub const OBJECT: u16 = 5;
    /// The methods.
    pub const CREATE: u16 = 0;
    /// The other one.
    pub const DESTROY: u16 = 1;
    /// Attributes of [`CREATE`]: the PD.
    pub const PD: u16 = 1;
    /// The XRC domain.
    pub const XRCD: u16 = 2;
    /// The CQ, of one for XRC.
    pub const CQ: u16 = 3;
    /// The program's number for it.
    pub const USER_HANDLE: u16 = 4;
    /// The number of receives.
    pub const MAX_WR: u16 = 5;
    /// The number of segments of one.
    pub const MAX_SGE: u16 = 6;
    /// The limit, which creation ignores.
    pub const LIMIT: u16 = 7;
    /// The type of the SRQ.
    pub const TYPE: u16 = 9;
    /// The descriptor of a channel for asynchronous events.
    pub const EVENT_FD: u16 = 10;
    /// The number of receives that it got.
    pub const RESP_MAX_WR: u16 = 11;
    /// The number of segments.
    pub const RESP_MAX_SGE: u16 = 12;
    /// The number of the SRQ.
    pub const RESP_NUMBER: u16 = 13;
}

/// Address handles.
pub mod ah {
    /// Number of the object.
    pub const OBJECT: u16 = 6;
    /// The method.
    pub const DESTROY: u16 = 0;
}

/// Memory regions.
pub mod mr {
    /// Number of the object.
    pub const OBJECT: u16 = 7;
    /// The methods: a region in device memory.
    pub const REG_DM: u16 = 0;
    /// The other one.
    pub const DESTROY: u16 = 1;
    /// Attributes of [`REG_DM`]: the first byte.
    pub const OFFSET: u16 = 1;
    /// The number of bytes.
    pub const LENGTH: u16 = 2;
    /// The PD.
    pub const PD: u16 = 3;
    /// The rights.
    pub const ACCESS: u16 = 4;
    /// The device memory.
    pub const DM: u16 = 5;
    /// The key for work requests of the program.
    pub const RESP_LKEY: u16 = 6;
    /// The key for those of peers.
    pub const RESP_RKEY: u16 = 7;
    /// The method for advice on use.
    pub const ADVISE: u16 = 2;
    /// Attributes of [`ADVISE`]: the PD.
    pub const ADVISE_PD: u16 = 0;
    /// The advice.
    pub const ADVICE: u16 = 1;
    /// Whether the program waits.
    pub const FLAGS: u16 = 2;
    /// The parts of regions.
    pub const PARTS: u16 = 3;
}

/// Device memory.
pub mod dm {
    /// Number of the object.
    pub const OBJECT: u16 = 14;
    /// The methods.
    pub const ALLOC: u16 = 0;
    /// The other one.
    pub const FREE: u16 = 1;
    /// Attributes of [`ALLOC`]: the number of bytes.
    pub const LENGTH: u16 = 1;
    /// log2 of the alignment.
    pub const ALIGNMENT: u16 = 2;
}

/// Memory windows.
pub mod mw {
    /// Number of the object.
    pub const OBJECT: u16 = 8;
    /// The method.
    pub const DESTROY: u16 = 0;
}

/// XRC domains.
pub mod xrcd {
    /// Number of the object.
    pub const OBJECT: u16 = 10;
    /// The method.
    pub const DESTROY: u16 = 0;
}

/// Files of asynchronous events.
pub mod async_event {
    /// Number of the object.
    pub const OBJECT: u16 = 16;
    /// The method.
    pub const ALLOC: u16 = 0;
}
