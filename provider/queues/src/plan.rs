// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Which rings a queue pair or completion queue needs, and the request for them to the kernel.

use std::str::FromStr;

use rustix::io::Errno;
use vrnic_abi as abi;

use abi::admin::{NO_QUEUE, TagForm};
use abi::cq::{CQE_LEN, LOG_CQES_MAX};
use abi::sq::{CommandSeg, LOG_WQES_MAX, Sge};
use abi::uverbs::{CQ_ANY_VECTOR, ContextResp, CqReq, QpReq, QpReqFlags, SrqReq};

use crate::mapping::Mapping;
use crate::ring::Shape;

/// What the adapter offers to a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Work requests outstanding on a queue.
    pub max_wr: u32,
    /// Segments of a work request.
    pub max_sge: u32,
    /// Bytes of inline data.
    pub max_inline: u32,
    /// Entries of a completion queue.
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

/// What the application asks of a queue pair (`struct ibv_qp_cap`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpCap {
    /// Sends outstanding.
    pub max_send_wr: u32,
    /// Receives outstanding.
    pub max_recv_wr: u32,
    /// Segments of a send.
    pub max_send_sge: u32,
    /// Segments of a receive.
    pub max_recv_sge: u32,
    /// Bytes of inline data of a send.
    pub max_inline: u32,
}

/// Where send queues are put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SqPolicy {
    /// In the adapter's memory for queue pairs that ask for inline data, so that a small message
    /// travels with its WQE; in this process' memory for the others and when the adapter's
    /// is used up.
    #[default]
    Auto,
    /// Always in this process' memory.
    Guest,
    /// Always in the adapter's memory.
    Device,
}

impl FromStr for SqPolicy {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "auto" => Ok(Self::Auto),
            "guest" => Ok(Self::Guest),
            "device" => Ok(Self::Device),
            _ => Err(()),
        }
    }
}

/// What the completion vector 0 means, which programs name that do not care.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VectorPolicy {
    /// The first vector, as verbs say.
    #[default]
    Asked,
    /// One that the driver chooses.
    Any,
}

impl FromStr for VectorPolicy {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "asked" => Ok(Self::Asked),
            "any" => Ok(Self::Any),
            _ => Err(()),
        }
    }
}

/// What a queue pair is beside its sizes: its type, and what verbs cannot ask (`vrnicdv_create_qp`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpExtras {
    /// What each send names.
    pub form: SendForm,
    /// A refused memory operation stops the send queue alone ([`abi::admin::QpFlags::REACTIVE`]).
    pub reactive: bool,
    /// Where the key of a command stands, or `None` when the queue pair has no commands.
    pub commands: Option<CommandTag>,
    /// Data segments of a command; zero without commands.
    pub max_command_sge: u32,
}

/// What each send of a queue pair names, beside its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendForm {
    /// Nothing: the queue pair has a connection.
    #[default]
    Connected,
    /// Its destination ([`abi::qp::Type::is_datagram`]).
    Datagram,
    /// The shared receive queue at the other end of the connection ([`abi::sq::XrcSeg`]).
    Xrc,
}

impl SendForm {
    /// The stride in bytes that holds so many segments and bytes of inline data, if one does.
    fn stride(self, max_sge: u32, max_inline: u32) -> Option<u32> {
        match self {
            Self::Connected => abi::sq::stride(max_sge, max_inline),
            Self::Datagram => abi::sq::datagram_stride(max_sge, max_inline),
            Self::Xrc => abi::sq::xrc_stride(max_sge, max_inline),
        }
    }

    /// The inline bytes that fit a stride.
    pub(crate) fn inline_capacity(self, stride: u32) -> u32 {
        match self {
            Self::Connected => abi::sq::inline_capacity(stride),
            Self::Datagram => abi::sq::datagram_inline_capacity(stride),
            Self::Xrc => abi::sq::xrc_inline_capacity(stride),
        }
    }
}

/// Where the key of a command stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandTag {
    /// Commands and responses are iSCSI PDUs, else any.
    pub iscsi: bool,
    /// Where in a message: the iSCSI header, or the key of a response.
    pub offset: u32,
}

/// The rings of a queue pair to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpPlan {
    /// The send queue, if it has one.
    pub send: Option<Shape>,
    /// The receive queue, if it has one.
    pub recv: Option<Shape>,
    /// Whether the send queue lies in the adapter's memory.
    pub send_in_device: bool,
    /// What else is asked.
    pub extras: QpExtras,
}

impl QpPlan {
    /// The rings for `cap`.
    ///
    /// # Errors
    /// `EINVAL` when `cap` exceeds `limits` or what the formats can express.
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
            || extras.form != SendForm::Connected && extras.commands.is_some()
        {
            return Err(Errno::INVAL);
        }
        let body = cap.max_inline.max(command_len(cap, extras.max_command_sge));
        let send_stride = extras.form.stride(cap.max_send_sge, body);
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

    /// The same with the send queue in this process' memory.
    #[must_use]
    pub fn in_guest(self) -> Self {
        Self { send_in_device: false, ..self }
    }
}

/// Bytes behind the header of the longest command.
fn command_len(cap: &QpCap, data_segments: u32) -> u32 {
    if data_segments == 0 {
        return 0;
    }
    // Both checked against limits: no overflow.
    let (segment, sge) = (size_of::<CommandSeg>() as u32, size_of::<Sge>() as u32);
    segment + data_segments * sge + cap.max_inline.max(cap.max_send_sge * sge)
}

fn ring_of(entries: u32, stride: Option<u32>) -> Result<Option<Shape>, Errno> {
    if entries == 0 {
        return Ok(None);
    }
    let shape = stride.and_then(|stride| Shape::holding(entries, stride, LOG_WQES_MAX));
    shape.ok_or(Errno::INVAL).map(Some)
}

/// The memory of a planned queue pair, before the kernel knows it.
#[derive(Debug)]
pub struct QpRings {
    pub(crate) plan: QpPlan,
    pub(crate) send: Option<Mapping>,
    pub(crate) recv: Option<Mapping>,
}

impl QpRings {
    /// Allocates what `plan` puts into this process.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn allocate(plan: QpPlan) -> Result<Self, Errno> {
        let in_guest = plan.send.filter(|_| !plan.send_in_device);
        let send = in_guest.map(|shape| Mapping::anonymous(shape.bytes())).transpose()?;
        let recv = plan.recv.map(|shape| Mapping::anonymous(shape.bytes())).transpose()?;
        Ok(Self { plan, send, recv })
    }

    /// What they were made for.
    #[must_use]
    pub fn plan(&self) -> &QpPlan {
        &self.plan
    }

    /// What the kernel is asked for.
    #[must_use]
    pub fn request(&self) -> QpReq {
        let log_size = |shape: Option<Shape>| shape.map_or(NO_QUEUE, |shape| shape.log_size);
        let log_stride = |shape: Option<Shape>| shape.map_or(0, |shape| shape.log_stride);
        let address = |memory: &Option<Mapping>| memory.as_ref().map_or(0, Mapping::address);
        let extras = &self.plan.extras;
        let mut flags = QpReqFlags::empty();
        flags.set(QpReqFlags::SQ_IN_DEVICE, self.plan.send_in_device);
        flags.set(QpReqFlags::REACTIVE, extras.reactive);
        let tag_form = match extras.commands {
            None => TagForm::None,
            Some(CommandTag { iscsi: false, .. }) => TagForm::General,
            Some(CommandTag { iscsi: true, .. }) => TagForm::Iscsi,
        };
        QpReq {
            sq_buf: address(&self.send).into(),
            rq_buf: address(&self.recv).into(),
            sq_log_size: log_size(self.plan.send),
            sq_log_stride: log_stride(self.plan.send),
            rq_log_size: log_size(self.plan.recv),
            rq_log_stride: log_stride(self.plan.recv),
            flags: flags.bits().into(),
            tag_form: tag_form as u8,
            tag_offset: extras.commands.map_or(0, |tag| tag.offset).into(),
            ..QpReq::default()
        }
    }
}

/// The memory of a completion queue, before the kernel knows it.
#[derive(Debug)]
pub struct CqRing {
    pub(crate) shape: Shape,
    pub(crate) memory: Mapping,
}

impl CqRing {
    /// Allocates a ring of at least `entries` entries.
    ///
    /// # Errors
    /// `EINVAL` when there are none or more than `limits` allows; `ENOMEM`.
    pub fn allocate(entries: u32, limits: &Limits) -> Result<Self, Errno> {
        if entries > limits.max_cqe {
            return Err(Errno::INVAL);
        }
        let shape = Shape::holding(entries, CQE_LEN, LOG_CQES_MAX).ok_or(Errno::INVAL)?;
        Ok(Self { shape, memory: Mapping::anonymous(shape.bytes())? })
    }

    /// What the kernel is asked for, for a queue on completion vector `vector`.
    #[must_use]
    pub fn request(&self, vector: u32, policy: VectorPolicy) -> CqReq {
        let any = policy == VectorPolicy::Any && vector == 0;
        CqReq {
            buf: self.memory.address().into(),
            log_size: self.shape.log_size,
            flags: if any { CQ_ANY_VECTOR } else { 0 },
            ..CqReq::default()
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
    pub fn allocate(entries: u32, max_sge: u32, limits: &Limits) -> Result<Self, Errno> {
        if entries > limits.max_wr || max_sge > limits.max_sge {
            return Err(Errno::INVAL);
        }
        let shape = ring_of(entries, abi::rq::stride(max_sge))?.ok_or(Errno::INVAL)?;
        Ok(Self { shape, max_sge, memory: Mapping::anonymous(shape.bytes())? })
    }

    /// What the kernel is asked for.
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

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { max_wr: 1 << 15, max_sge: 16, max_inline: 480, max_cqe: 1 << 20 };
    const CAP: QpCap =
        QpCap { max_send_wr: 100, max_recv_wr: 3, max_send_sge: 1, max_recv_sge: 2, max_inline: 0 };

    fn plan(cap: &QpCap, policy: SqPolicy) -> Result<QpPlan, Errno> {
        QpPlan::new(cap, &LIMITS, policy, QpExtras::default())
    }

    #[test]
    fn the_driver_chooses_the_vector_of_those_that_do_not_care() {
        let ring = CqRing::allocate(10, &LIMITS).expect("a ring");
        assert_eq!("any".parse(), Ok(VectorPolicy::Any));
        for (vector, policy, flags) in [
            (0, VectorPolicy::Asked, 0),
            (1, VectorPolicy::Asked, 0),
            (0, VectorPolicy::Any, CQ_ANY_VECTOR),
            (1, VectorPolicy::Any, 0),
        ] {
            assert_eq!(ring.request(vector, policy).flags, flags, "{vector} {policy:?}");
        }
    }

    #[test]
    fn commands_make_room_for_their_data() {
        let commands = Some(CommandTag { iscsi: true, offset: 4 });
        let extras =
            QpExtras { reactive: true, commands, max_command_sge: 4, ..QpExtras::default() };
        let of = |cap: &QpCap, extras| QpPlan::new(cap, &LIMITS, SqPolicy::Guest, extras);
        let plan = of(&QpCap { max_inline: 48, ..CAP }, extras).expect("valid");
        // 32 of header, 16, 4 segments of 16, 48 inline.
        assert_eq!(plan.send.map(Shape::stride), Some(256));
        let request = QpRings::allocate(plan).expect("memory").request();
        assert_eq!(request.flags.get(), QpReqFlags::REACTIVE.bits());
        assert_eq!((request.tag_form, request.tag_offset.get()), (TagForm::Iscsi as u8, 4));
        for bad in [
            QpExtras { max_command_sge: 17, ..extras },
            QpExtras { max_command_sge: 0, ..extras },
            QpExtras { commands: None, ..extras },
            QpExtras { form: SendForm::Datagram, ..extras },
        ] {
            assert_eq!(of(&CAP, bad), Err(Errno::INVAL), "{bad:?}");
        }
        let long = QpCap { max_inline: 420, ..CAP };
        assert_eq!(of(&long, extras), Err(Errno::INVAL), "too long for any stride");
    }

    #[test]
    fn rings_are_rounded_up() {
        let plan = plan(&CAP, SqPolicy::Auto).expect("valid");
        assert_eq!(plan.send, Some(Shape { log_size: 7, log_stride: 6 }));
        assert_eq!(plan.recv, Some(Shape { log_size: 2, log_stride: 6 }));
        assert!(!plan.send_in_device);
        let request = QpRings::allocate(plan).expect("memory").request();
        assert_ne!(request.sq_buf.get(), 0);
        assert_eq!(request.rq_buf.get() % 4096, 0);
        assert_eq!(request.flags.get(), 0);
    }

    #[test]
    fn inline_data_asks_for_device_memory() {
        let cap = QpCap { max_inline: 220, ..CAP };
        let plan = plan(&cap, SqPolicy::Auto).expect("valid");
        assert!(plan.send_in_device);
        assert_eq!(plan.send.map(Shape::stride), Some(256));
        let request = QpRings::allocate(plan).expect("memory").request();
        assert_eq!(request.sq_buf.get(), 0);
        assert_eq!(request.flags.get(), QpReqFlags::SQ_IN_DEVICE.bits());
        assert_eq!(QpRings::allocate(plan.in_guest()).expect("memory").request().flags.get(), 0);
    }

    #[test]
    fn datagrams_need_room_for_their_destination() {
        let plan = |cap| {
            let extras = QpExtras { form: SendForm::Datagram, ..QpExtras::default() };
            QpPlan::new(&cap, &LIMITS, SqPolicy::Auto, extras)
        };
        assert_eq!(plan(CAP).expect("valid").send.map(Shape::stride), Some(128));
        let inline = QpCap { max_inline: 432, ..CAP };
        assert_eq!(plan(inline).expect("valid").send.map(Shape::stride), Some(512));
        assert_eq!(plan(QpCap { max_inline: 433, ..CAP }), Err(Errno::INVAL));
        assert_eq!(
            plan(QpCap { max_send_sge: 16, ..CAP }).expect("valid").send.map(Shape::stride),
            Some(512)
        );
    }

    #[test]
    fn xrc_needs_room_for_the_shared_queue() {
        let plan = |cap| {
            let extras = QpExtras { form: SendForm::Xrc, ..QpExtras::default() };
            QpPlan::new(&cap, &LIMITS, SqPolicy::Guest, extras)
        };
        // An atomic has 32 bytes of operands and place, whatever was asked for.
        assert_eq!(plan(CAP).expect("valid").send.map(Shape::stride), Some(128));
        let inline = QpCap { max_inline: 464, ..CAP };
        assert_eq!(plan(inline).expect("valid").send.map(Shape::stride), Some(512));
        assert_eq!(plan(QpCap { max_inline: 465, ..CAP }), Err(Errno::INVAL));
    }

    #[test]
    fn the_policy_overrides() {
        let inline = QpCap { max_inline: 1, ..CAP };
        let guest = plan(&inline, SqPolicy::Guest).expect("valid");
        assert!(!guest.send_in_device);
        assert!(plan(&CAP, SqPolicy::Device).expect("valid").send_in_device);
        assert_eq!("device".parse(), Ok(SqPolicy::Device));
        assert_eq!("Device".parse::<SqPolicy>(), Err(()));
    }

    #[test]
    fn queues_may_be_absent() {
        let cap = QpCap { max_send_wr: 0, max_recv_wr: 0, ..CAP };
        let plan = plan(&cap, SqPolicy::Device).expect("valid");
        assert!(!plan.send_in_device);
        let request = QpRings::allocate(plan).expect("nothing").request();
        assert_eq!((request.sq_log_size, request.rq_log_size), (NO_QUEUE, NO_QUEUE));
        assert_eq!((request.sq_buf.get(), request.rq_buf.get()), (0, 0));
    }

    #[test]
    fn too_much_is_refused() {
        for cap in [
            QpCap { max_send_wr: (1 << 15) + 1, ..CAP },
            QpCap { max_recv_wr: u32::MAX, ..CAP },
            QpCap { max_send_sge: 17, ..CAP },
            QpCap { max_recv_sge: 17, ..CAP },
            QpCap { max_inline: 481, ..CAP },
        ] {
            assert_eq!(plan(&cap, SqPolicy::Auto), Err(Errno::INVAL), "{cap:?}");
        }
        for (entries, sges) in [(0, 1), ((1 << 15) + 1, 1), (1, 17)] {
            let refused = SrqRing::allocate(entries, sges, &LIMITS).expect_err("bad");
            assert_eq!(refused, Errno::INVAL, "{entries} of {sges}");
        }
        assert_eq!(CqRing::allocate(0, &LIMITS).expect_err("none"), Errno::INVAL);
        assert_eq!(CqRing::allocate((1 << 20) + 1, &LIMITS).expect_err("many"), Errno::INVAL);
        let ring = CqRing::allocate(1000, &LIMITS).expect("fits");
        assert_eq!(ring.request(0, VectorPolicy::Asked).log_size, 10);
    }
}
