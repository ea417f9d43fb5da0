//! Queue pairs: RC, UC, UD, and initiators of XRC.

use rustix::io::Errno;
use vrnic_abi::admin::{
    CreateQp, DeviceCaps, DeviceFeatures, NO_QUEUE, Pages, QpFlags, QpOptions, QpResult, command,
};
use vrnic_abi::qp::Type;
use vrnic_abi::uar::SQ_MEMORY_UNIT;
use vrnic_abi::uverbs::{QpReq, QpReqFlags, QpResp};
use vrnic_abi::{Pdn, UarIndex, sq};

use super::cq::ring;
use super::srq::is_recv_queue;
use super::xrc;
use crate::uverbs::file::OpenFile;
use crate::uverbs::objects::{Object, Qp};
use crate::uverbs::region::forget;
use crate::uverbs::request::Request;
use crate::uverbs::ring::Rings;
use crate::uverbs::routes::{Route, Source};
use crate::uverbs::wire::{HANDLE, UHW_IN, UHW_OUT, qp};
use crate::uverbs::write::QpCap;

/// The adapter's flags for those of the plugin.
const FLAGS: [(QpReqFlags, QpFlags); 4] = [
    (QpReqFlags::SQ_IN_DEVICE, QpFlags::SQ_IN_DEVICE),
    (QpReqFlags::REACTIVE, QpFlags::REACTIVE),
    (QpReqFlags::NO_SQ_KEYS, QpFlags::NO_SQ_KEYS),
    (QpReqFlags::WINDOWS_ONLY, QpFlags::WINDOWS_ONLY),
];

/// A checked request for the queues of a queue pair.
struct Plan {
    kind: Type,
    asked: QpReq,
    flags: QpFlags,
    options: QpOptions,
    /// The sizes that it gets.
    cap: QpCap,
}

impl Plan {
    /// Compares what the plugin asks for with what the program gave libibverbs (`Plan` in
    /// driver/verbs/qp/user.rs).
    fn new(file: &OpenFile, request: &Request<'_>) -> Result<Self, Errno> {
        let asked: QpReq = request.value(UHW_IN);
        let kind = kind(request.value(qp::TYPE))?;
        let wanted = QpReqFlags::from_bits(asked.flags.get()).ok_or(Errno::OPNOTSUPP)?;
        let known = FLAGS.iter().fold(QpReqFlags::BLOCK_LOOPBACK, |known, (flag, _)| known | *flag);
        if asked.reserved != [0; 3] || !known.contains(wanted) {
            return Err(Errno::OPNOTSUPP);
        }
        let mut flags = QpFlags::empty();
        FLAGS.iter().for_each(|(of_plugin, flag)| flags.set(*flag, wanted.contains(*of_plugin)));
        let creation: u64 = request.value(qp::FLAGS);
        if creation & !qp::SIGNAL_ALL != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        flags.set(QpFlags::SIGNAL_ALL, creation & qp::SIGNAL_ALL != 0);
        let mut options = QpOptions::empty();
        options.set(QpOptions::BLOCK_LOOPBACK, wanted.contains(QpReqFlags::BLOCK_LOOPBACK));
        let caps = file.device().driver().caps();
        let needs_keys = flags.intersects(QpFlags::NO_SQ_KEYS | QpFlags::WINDOWS_ONLY);
        if needs_keys && !caps.has(DeviceFeatures::KEY_OPTIONS) {
            return Err(Errno::OPNOTSUPP);
        }
        let mut cap: QpCap = request.value(qp::CAP);
        if request.has(qp::SRQ) {
            // It has no receive queue of its own.
            (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
        }
        if kind == Type::XrcIni {
            (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
        }
        let this = Self { kind, asked, flags, options, cap };
        check_sizes(caps, &cap)?;
        this.check(request.has(qp::SRQ))?;
        Ok(this.sized())
    }

    fn check(&self, shares: bool) -> Result<(), Errno> {
        let strides = sq::STRIDE_MIN.trailing_zeros()..=sq::STRIDE_MAX.trailing_zeros();
        let is_send_queue = |log_size: u8, log_stride: u8| {
            u32::from(log_size) <= sq::LOG_WQES_MAX && strides.contains(&log_stride.into())
        };
        let QpReq { sq_log_size, sq_log_stride, rq_log_size, rq_log_stride, .. } = self.asked;
        let (sends, receives) = (sq_log_size != NO_QUEUE, rq_log_size != NO_QUEUE);
        if sends && !is_send_queue(sq_log_size, sq_log_stride)
            || receives && (shares || !is_recv_queue(rq_log_size, rq_log_stride))
        {
            return Err(Errno::INVAL);
        }
        let too_many = self.cap.max_send_wr > entries(sq_log_size)
            || self.cap.max_recv_wr > entries(rq_log_size);
        let misplaced = self.in_device() && (!sends || self.asked.sq_buf.get() != 0);
        if too_many || misplaced { Err(Errno::INVAL) } else { Ok(()) }
    }

    fn sized(mut self) -> Self {
        let QpReq { sq_log_size, sq_log_stride, rq_log_size, .. } = self.asked;
        self.cap.max_send_wr = entries(sq_log_size);
        self.cap.max_recv_wr = entries(rq_log_size);
        self.cap.max_inline_data = match sq_log_size {
            NO_QUEUE => 0,
            _ => sq::inline_capacity(self.kind.info().destination, 1 << sq_log_stride),
        };
        self
    }

    fn in_device(&self) -> bool {
        self.flags.contains(QpFlags::SQ_IN_DEVICE)
    }

    /// Returns the length of the send queue in bytes.
    fn send_len(&self) -> u64 {
        u64::from(entries(self.asked.sq_log_size)) << (self.asked.sq_log_stride & 31)
    }

    /// Returns the length of the receive queue in bytes.
    fn recv_len(&self) -> u64 {
        u64::from(entries(self.asked.rq_log_size)) << (self.asked.rq_log_stride & 31)
    }

    /// Returns the adapter's parameters, without CQs and an SRQ.
    fn params(
        &self,
        file: &OpenFile,
        request: &Request<'_>,
        pdn: Pdn,
        rings: &mut Rings,
    ) -> Result<CreateQp, Errno> {
        let asked = &self.asked;
        let mut queue = |log_size, addr, len| match log_size {
            NO_QUEUE => Ok(Pages::default()),
            _ => ring(file, request, rings, addr, len, false),
        };
        let sends = match self.in_device() {
            true => Pages::default(),
            false => queue(asked.sq_log_size, asked.sq_buf.get(), self.send_len())?,
        };
        let receives = queue(asked.rq_log_size, asked.rq_buf.get(), self.recv_len())?;
        Ok(CreateQp {
            sq_table: sends.table,
            sq_page_shift: sends.page_shift,
            sq_log_size: asked.sq_log_size,
            sq_log_stride: stride_of(asked.sq_log_size, asked.sq_log_stride),
            rq_table: receives.table,
            rq_page_shift: receives.page_shift,
            rq_log_size: asked.rq_log_size,
            rq_log_stride: stride_of(asked.rq_log_size, asked.rq_log_stride),
            pdn,
            // CAST: the enum's number.
            qp_type: self.kind as u8,
            flags: self.flags.bits(),
            options: self.options.bits(),
            tag_form: asked.tag_form,
            tag_offset: asked.tag_offset,
            ..CreateQp::default()
        })
    }
}

/// Checks that the adapter has queues of these sizes.
///
/// # Errors
/// `EINVAL`.
fn check_sizes(caps: &DeviceCaps, cap: &QpCap) -> Result<(), Errno> {
    let wrs = cap.max_send_wr.max(cap.max_recv_wr);
    let sges = cap.max_send_sge.max(cap.max_recv_sge);
    let fits = wrs <= caps.max_wr.get()
        && sges <= caps.max_sge.get()
        && cap.max_inline_data <= caps.max_inline.get();
    if fits { Ok(()) } else { Err(Errno::INVAL) }
}

/// Returns the log of the stride of a queue; zero if there is no queue.
fn stride_of(log_size: u8, log_stride: u8) -> u8 {
    if log_size == NO_QUEUE { 0 } else { log_stride }
}

/// Returns the number of entries of a queue.
fn entries(log_size: u8) -> u32 {
    if log_size == NO_QUEUE { 0 } else { 1u32.checked_shl(log_size.into()).unwrap_or(0) }
}

/// Returns the type of a queue pair.
///
/// # Errors
/// `EOPNOTSUPP` for one that this interface does not offer.
fn kind(number: u64) -> Result<Type, Errno> {
    match u8::try_from(number).ok().and_then(Type::from_raw) {
        Some(kind @ (Type::Rc | Type::Uc | Type::Ud | Type::XrcIni | Type::XrcTgt)) => Ok(kind),
        _ => Err(Errno::OPNOTSUPP),
    }
}

/// Creates a queue pair (`UVERBS_METHOD_QP_CREATE`, and `create_qp` of the driver).
///
/// # Errors
/// The kernel's, and the adapter's refusal.
pub fn create(file: &mut OpenFile, request: &Request<'_>) -> Result<(), Errno> {
    file.objects.check_room()?;
    let kind = kind(request.value(qp::TYPE))?;
    if kind == Type::XrcTgt {
        return xrc::create_target(file, request);
    }
    let initiates = kind == Type::XrcIni;
    if request.has(qp::XRCD) || initiates && request.has(qp::SRQ) {
        return Err(Errno::INVAL);
    }
    let handle_of = |id| request.handle(id)?.ok_or(Errno::NOENT);
    let pdn = file.objects.pd(handle_of(qp::PD)?)?;
    let (send_cqn, _) = file.objects.cq(handle_of(qp::SEND_CQ)?)?;
    let recv_cqn = match initiates {
        // It has no other.
        true => send_cqn,
        false => file.objects.cq(handle_of(qp::RECV_CQ)?)?.0,
    };
    let srq = request.handle(qp::SRQ)?.map(|handle| file.objects.srq(handle)).transpose()?;
    let events = match request.file(qp::EVENT_FD)? {
        Some(channel) => Some(file.channel(channel)?),
        None => file.events().cloned(),
    };
    let plan = Plan::new(file, request)?;
    let mut rings = Rings::new();
    let params = CreateQp {
        send_cqn,
        recv_cqn,
        srqn: srq.map(|srq| srq.srqn).unwrap_or_default(),
        ..plan.params(file, request, pdn, &mut rings)?
    };
    let uar = file.take_slot()?;
    let created = file.device().driver().command::<command::CreateQp>(&CreateQp { uar, ..params });
    let result = created.inspect_err(|_| file.release_slot(uar))?;
    file.keep_rings(Source::Qp, result.qpn.get(), rings);
    let user_handle = request.value(qp::USER_HANDLE);
    let route = Route { user_handle, events, ..Route::default() };
    let key = (file.device().number(), Source::Qp, result.qpn.get());
    file.device().routes().insert(key, route);
    let device_sq = plan
        .in_device()
        .then(|| (result.sq_offset.get(), plan.send_len().next_multiple_of(SQ_MEMORY_UNIT.into())));
    let object = Object::Qp(Qp {
        qpn: result.qpn,
        kind,
        uar,
        cap: plan.cap,
        signals_all: plan.flags.contains(QpFlags::SIGNAL_ALL),
        device_sq,
        target: None,
    });
    let handle = file.objects.insert(object);
    answer(file, request, uar, &result, &plan.cap, device_sq)
        .and_then(|()| request.respond_handle(HANDLE, handle.into()))
        .inspect_err(|_| forget(file, handle, &object))
}

/// Tells the process of a new queue pair.
fn answer(
    file: &OpenFile,
    request: &Request<'_>,
    uar: UarIndex,
    result: &QpResult,
    cap: &QpCap,
    device_sq: Option<(u64, u64)>,
) -> Result<(), Errno> {
    let (sq_mmap, len) = device_sq.unwrap_or((0, 0));
    if len != 0 {
        file.place(sq_mmap, len)?;
    }
    let response = QpResp {
        qpn: result.qpn,
        slot: result.slot,
        uar,
        sq_mmap_len: u32::try_from(len).map_err(|_| Errno::INVAL)?.into(),
        uar_mmap: uar.offset().into(),
        sq_mmap: sq_mmap.into(),
    };
    request.respond_or_zero(UHW_OUT, &response)?;
    request.respond(qp::RESP_CAP, cap)?;
    request.respond(qp::RESP_NUMBER, &result.qpn.get())
}
