// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The rings of a queue pair.

use rustix::io::Errno;
use vrnic_abi as abi;

use abi::admin::{NO_QUEUE, TagForm};
use abi::sq::{CommandSeg, Sge};
use abi::uverbs::{QpReq, QpReqFlags};

use super::{Limits, SendForm, SqPolicy, ring_of};
use crate::mapping::Mapping;
use crate::ring::Shape;

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
