// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The rings that each kind of queue needs, and the request to the kernel for the queue.

#[cfg(test)]
mod tests;

use rustix::io::Errno;
use vrnic_abi as abi;

use abi::admin::{NO_QUEUE, TagForm};
use abi::cq::{CQE_LEN, LOG_CQES_MAX};
use abi::qp::{Destination, Service, Type};
use abi::sq::{CommandSeg, LOG_WQES_MAX, Sge};
use abi::uverbs::{CQ_ANY_VECTOR, CQ_HOLDING, ContextResp, CqReq, QpReq, QpReqFlags, SrqReq};

use crate::mapping::Mapping;
use crate::policy::{SqPolicy, VectorPolicy};
use crate::ring::Shape;
use crate::source::Source;

/// The limits of the adapter for a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of outstanding work requests of a queue.
    pub max_wr: u32,
    /// Maximum number of segments of a work request.
    pub max_sge: u32,
    /// Maximum number of bytes of inline data.
    pub max_inline: u32,
    /// Maximum number of entries of a completion queue.
    pub max_cqe: u32,
}

impl From<&ContextResp> for Limits {
    fn from(response: &ContextResp) -> Self {
        Self {
            max_wr: response.max_wr.get(),
            max_sge: response.max_sge.get(),
            max_inline: response.max_inline.get(),
            max_cqe: response.max_cqe.get(),
        }
    }
}

/// The header of each send WQE of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WqeHeader {
    /// The common header, for a queue pair with a connection.
    #[default]
    Connected,
    /// The header with a destination ([`abi::sq::DatagramSeg`]).
    Datagram,
    /// The header with a shared receive queue at the other end of the connection
    /// ([`abi::sq::XrcSeg`]).
    Xrc,
    /// The common header, for a queue pair of raw packets, whose SEGMENTs have the headers of a
    /// frame after it ([`abi::sq::SegmentSeg`]).
    Raw,
}

impl WqeHeader {
    /// Returns the header of queue pairs of this type.
    #[must_use]
    pub fn of(kind: Type) -> Self {
        let info = kind.info();
        match info.destination {
            Destination::None if info.service == Service::RawPacket => Self::Raw,
            Destination::None => Self::Connected,
            Destination::Address => Self::Datagram,
            Destination::Srq => Self::Xrc,
        }
    }

    /// Returns the stride in bytes for this number of segments, bytes of inline data and bytes
    /// of a SEGMENT's headers, or `None` if no stride is large enough.
    fn stride(self, max_sge: u32, max_inline: u32, max_headers: u32) -> Option<u32> {
        match self {
            Self::Raw => abi::sq::raw_stride(max_sge, max_inline, max_headers),
            _ => abi::sq::stride(self.destination(), max_sge, max_inline),
        }
    }

    /// Returns the number of inline bytes that fit a stride.
    pub(crate) fn inline_capacity(self, stride: u32) -> u32 {
        abi::sq::inline_capacity(self.destination(), stride)
    }

    /// Returns the segment after the header.
    fn destination(self) -> Destination {
        match self {
            Self::Connected | Self::Raw => Destination::None,
            Self::Datagram => Destination::Address,
            Self::Xrc => Destination::Srq,
        }
    }
}

/// The sizes that the application asks for (`struct ibv_qp_cap`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpCap {
    /// Number of outstanding sends.
    pub max_send_wr: u32,
    /// Number of outstanding receives.
    pub max_recv_wr: u32,
    /// Number of segments of a send.
    pub max_send_sge: u32,
    /// Number of segments of a receive.
    pub max_recv_sge: u32,
    /// Number of bytes of inline data of a send.
    pub max_inline: u32,
}

/// The header of a queue pair's WQEs, and properties that verbs cannot ask for
/// (`vrnicdv_create_qp`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpExtras {
    /// The header of each send WQE.
    pub header: WqeHeader,
    /// A refused memory operation stops only the send queue ([`abi::admin::QpFlags::REACTIVE`]).
    pub reactive: bool,
    /// The queue pair has a TCP connection that carries bytes ([`abi::qp::Type::Toe`]).
    pub toe: bool,
    /// True if receives also complete at PSH ([`abi::admin::QpFlags::PUSH`]).
    pub push: bool,
    /// The send queue makes no keys valid ([`abi::admin::QpFlags::NO_SQ_KEYS`]).
    pub no_sq_keys: bool,
    /// The peer reaches memory by windows and command regions only
    /// ([`abi::admin::QpFlags::WINDOWS_ONLY`]).
    pub windows_only: bool,
    /// True if sends complete by the length of TCP's queue ([`abi::admin::QpFlags::QUEUE_LENGTH`]).
    pub by_length: bool,
    /// True if nothing completes before its acknowledgement
    /// ([`abi::admin::QpOptions::ACKNOWLEDGED`]).
    pub acknowledged: bool,
    /// True if datagrams to a group go to no queue pair of the function that sends them
    /// ([`abi::admin::QpOptions::BLOCK_LOOPBACK`]).
    pub block_loopback: bool,
    /// The position of a command's key; `None` if the queue pair has no commands.
    pub commands: Option<CommandTag>,
    /// Number of data segments of a command; zero without commands.
    pub max_command_sge: u32,
    /// Number of bytes of a SEGMENT's headers; zero without SEGMENTs.
    pub max_headers: u32,
}

/// The position of a command's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandTag {
    /// Commands and responses are iSCSI PDUs.
    pub iscsi: bool,
    /// The offset of the iSCSI header in a message, or else of the key in a response.
    pub offset: u32,
}

/// The rings of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpLayout {
    /// The send queue, if it has one.
    pub send: Option<Shape>,
    /// The receive queue, if it has one.
    pub recv: Option<Shape>,
    /// True if the send queue is in the adapter's memory.
    pub send_in_device: bool,
    /// The other properties.
    pub extras: QpExtras,
}

impl QpLayout {
    /// Lays out the rings for `cap`.
    ///
    /// # Errors
    /// `EINVAL` if `cap` exceeds `limits` or what the formats can express.
    pub fn new(
        cap: &QpCap,
        limits: &Limits,
        policy: SqPolicy,
        extras: QpExtras,
    ) -> Result<Self, Errno> {
        if cap.max_send_wr.max(cap.max_recv_wr) > limits.max_wr
            || cap.max_send_sge.max(cap.max_recv_sge) > limits.max_sge
            || cap.max_inline > limits.max_inline
            || extras.max_command_sge > limits.max_sge
            || extras.commands.is_some() != (extras.max_command_sge > 0)
            || extras.header != WqeHeader::Connected && extras.commands.is_some()
            || extras.header != WqeHeader::Raw && extras.max_headers > 0
        {
            return Err(Errno::INVAL);
        }
        let body = cap.max_inline.max(command_len(cap, extras.max_command_sge));
        let send_stride = extras.header.stride(cap.max_send_sge, body, extras.max_headers);
        let recv_stride = abi::rq::stride(cap.max_recv_sge);
        let send = ring_of(cap.max_send_wr, send_stride)?;
        let recv = ring_of(cap.max_recv_wr, recv_stride)?;
        let wanted = match policy {
            SqPolicy::Auto => cap.max_inline > 0,
            SqPolicy::Guest => false,
            SqPolicy::Device => true,
        };
        Ok(Self { send, recv, send_in_device: wanted && send.is_some(), extras })
    }

    /// Moves the send queue into this process' memory.
    #[must_use]
    pub fn in_guest(self) -> Self {
        Self { send_in_device: false, ..self }
    }
}

/// Returns the number of bytes after the header of the longest command.
fn command_len(cap: &QpCap, data_segments: u32) -> u32 {
    if data_segments == 0 {
        return 0;
    }
    // CAST: both were checked against limits, so nothing overflows.
    let (segment, sge) = (size_of::<CommandSeg>() as u32, size_of::<Sge>() as u32);
    segment + data_segments * sge + cap.max_inline.max(cap.max_send_sge * sge)
}

/// The memory of a queue pair's rings, before the kernel knows it.
#[derive(Debug)]
pub struct QpRings {
    pub(crate) layout: QpLayout,
    pub(crate) send: Option<Mapping>,
    pub(crate) recv: Option<Mapping>,
}

impl QpRings {
    /// Allocates the rings that are in this process according to `layout`.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn allocate(layout: QpLayout, source: &Source) -> Result<Self, Errno> {
        let in_guest = layout.send.filter(|_| !layout.send_in_device);
        let send = in_guest.map(|shape| source.map(shape.bytes())).transpose()?;
        let recv = layout.recv.map(|shape| source.map(shape.bytes())).transpose()?;
        Ok(Self { layout, send, recv })
    }

    /// Returns the layout.
    #[must_use]
    pub fn layout(&self) -> &QpLayout {
        &self.layout
    }

    /// Returns the request to the kernel.
    #[must_use]
    pub fn request(&self) -> QpReq {
        let log_size = |shape: Option<Shape>| shape.map_or(NO_QUEUE, |shape| shape.log_size);
        let log_stride = |shape: Option<Shape>| shape.map_or(0, |shape| shape.log_stride);
        let address = |memory: &Option<Mapping>| memory.as_ref().map_or(0, Mapping::address);
        let extras = &self.layout.extras;
        let mut flags = QpReqFlags::empty();
        flags.set(QpReqFlags::SQ_IN_DEVICE, self.layout.send_in_device);
        flags.set(QpReqFlags::REACTIVE, extras.reactive);
        flags.set(QpReqFlags::PUSH, extras.push);
        flags.set(QpReqFlags::NO_SQ_KEYS, extras.no_sq_keys);
        flags.set(QpReqFlags::WINDOWS_ONLY, extras.windows_only);
        flags.set(QpReqFlags::QUEUE_LENGTH, extras.by_length);
        flags.set(QpReqFlags::ACKNOWLEDGED, extras.acknowledged);
        flags.set(QpReqFlags::BLOCK_LOOPBACK, extras.block_loopback);
        let tag_form = match extras.commands {
            None => TagForm::None,
            Some(CommandTag { iscsi: false, .. }) => TagForm::General,
            Some(CommandTag { iscsi: true, .. }) => TagForm::Iscsi,
        };
        QpReq {
            sq_buf: address(&self.send).into(),
            rq_buf: address(&self.recv).into(),
            sq_log_size: log_size(self.layout.send),
            sq_log_stride: log_stride(self.layout.send),
            rq_log_size: log_size(self.layout.recv),
            rq_log_stride: log_stride(self.layout.recv),
            flags: flags.bits().into(),
            tag_form: tag_form as u8,
            tag_offset: extras.commands.map_or(0, |tag| tag.offset).into(),
            ..QpReq::default()
        }
    }
}

/// The memory of a shared receive queue, before the kernel knows it.
#[derive(Debug)]
pub struct SrqRing {
    pub(crate) shape: Shape,
    pub(crate) max_sge: u32,
    pub(crate) memory: Mapping,
}

impl SrqRing {
    /// Allocates a ring of at least `entries` entries of up to `max_sge` segments.
    ///
    /// # Errors
    /// `EINVAL` when there are none or more than `limits` allows; `ENOMEM`.
    pub fn allocate(
        entries: u32,
        max_sge: u32,
        limits: &Limits,
        source: &Source,
    ) -> Result<Self, Errno> {
        if entries > limits.max_wr || max_sge > limits.max_sge {
            return Err(Errno::INVAL);
        }
        let shape = ring_of(entries, abi::rq::stride(max_sge))?.ok_or(Errno::INVAL)?;
        Ok(Self { shape, max_sge, memory: source.map(shape.bytes())? })
    }

    /// Returns the request to the kernel.
    #[must_use]
    pub fn request(&self) -> SrqReq {
        SrqReq {
            buf: self.memory.address().into(),
            log_size: self.shape.log_size,
            log_stride: self.shape.log_stride,
            ..SrqReq::default()
        }
    }
}

/// The memory of a completion queue, before the kernel knows it.
#[derive(Debug)]
pub struct CqRing {
    pub(crate) shape: Shape,
    pub(crate) memory: Mapping,
    /// For a holding CQ, the number of free entries at which few are left.
    pub(crate) holding: Option<u32>,
}

impl CqRing {
    /// Allocates a ring of at least `entries` entries.
    ///
    /// # Errors
    /// `EINVAL` when there are none or more than `limits` allows; `ENOMEM`.
    pub fn allocate(entries: u32, limits: &Limits, source: &Source) -> Result<Self, Errno> {
        if entries > limits.max_cqe {
            return Err(Errno::INVAL);
        }
        let shape = Shape::holding(entries, CQE_LEN, LOG_CQES_MAX).ok_or(Errno::INVAL)?;
        Ok(Self { shape, memory: source.map(shape.bytes())?, holding: None })
    }

    /// Returns the memory of a holding CQ, if `holding` is set: the number of free entries at which
    /// few are left.
    #[must_use]
    pub fn holding(self, holding: Option<u32>) -> Self {
        Self { holding, ..self }
    }

    /// Returns the request to the kernel for a queue on completion vector `vector`.
    #[must_use]
    pub fn request(&self, vector: u32, policy: VectorPolicy) -> CqReq {
        let any = policy == VectorPolicy::Any && vector == 0;
        let vector = if any { CQ_ANY_VECTOR } else { 0 };
        let holding = if self.holding.is_some() { CQ_HOLDING } else { 0 };
        CqReq {
            buf: self.memory.address().into(),
            log_size: self.shape.log_size,
            flags: vector | holding,
            few: self.holding.unwrap_or_default().into(),
            ..CqReq::default()
        }
    }
}

/// Returns the ring of a work queue; `None` for no entries.
fn ring_of(entries: u32, stride: Option<u32>) -> Result<Option<Shape>, Errno> {
    if entries == 0 {
        return Ok(None);
    }
    let shape = stride.and_then(|stride| Shape::holding(entries, stride, LOG_WQES_MAX));
    shape.ok_or(Errno::INVAL).map(Some)
}
