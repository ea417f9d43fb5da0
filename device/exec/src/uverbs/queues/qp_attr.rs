//! Attributes of queue pairs. The adapter itself checks which ones a change of state needs and
//! permits (IBTA volume 1, 11.2.5.2).

use rustix::io::Errno;
use vrnic_abi::qp::{Attr, AttrMask, Type};

use crate::uverbs::address;
use crate::uverbs::device::PORT;
use crate::uverbs::file::OpenFile;
use crate::uverbs::request::Request;
use crate::uverbs::wire::device::CORE_OUT;
use crate::uverbs::write::{ModifyQp, QueryQp, QueryQpResp};

/// The attributes of the specification (`IB_QP_ATTR_STANDARD_BITS` in rdma/ib_verbs.h).
const STANDARD: u32 = (1 << 21) - 1;

/// `IB_QP_ALT_PATH`.
const ALT_PATH: u32 = 1 << 14;

/// The answer to the extended form of MODIFY_QP (`struct ib_uverbs_ex_modify_qp_resp`).
#[derive(Clone, Copy, zerocopy_derive::IntoBytes, zerocopy_derive::Immutable)]
#[repr(C)]
struct Modified {
    comp_mask: u32,
    response_length: u32,
}

/// Sets attributes (`ib_uverbs_modify_qp` and `ib_uverbs_ex_modify_qp`).
///
/// # Errors
/// The kernel's, and the adapter's refusal.
pub fn modify(
    file: &OpenFile,
    request: &Request<'_>,
    command: &ModifyQp,
    extended: bool,
) -> Result<(), Errno> {
    let known = STANDARD | if extended { AttrMask::RATE_LIMIT.bits() } else { 0 };
    if command.attr_mask & !known != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    if command.attr_mask & ALT_PATH != 0 {
        // Ethernet has no alternate paths (`_ib_modify_qp` in drivers/infiniband/core/verbs.c).
        return Err(Errno::INVAL);
    }
    let mask = AttrMask::from_bits(command.attr_mask).ok_or(Errno::OPNOTSUPP)?;
    let qp = file.objects.qp(command.qp_handle)?;
    let mask = mask.difference(ignored(qp.kind));
    if mask.contains(AttrMask::PORT) && command.port_num != PORT {
        return Err(Errno::INVAL);
    }
    let current = || file.device().driver().query_qp(qp.qpn).map(|attr| attr.state);
    let from = if mask.contains(AttrMask::CUR_STATE) { command.cur_qp_state } else { current()? };
    let to = if mask.contains(AttrMask::STATE) { command.qp_state } else { from };
    let mut attr = encode(command, from, to);
    if mask.contains(AttrMask::AV) {
        attr.av = address::encode(file.device(), &command.dest)?;
    }
    file.device().driver().modify_qp(qp.qpn, mask, &attr)?;
    let answer = Modified { comp_mask: 0, response_length: 8 };
    if extended { request.respond_or_zero(CORE_OUT, &answer) } else { Ok(()) }
}

/// Returns the attributes that a queue pair of this type does not have, and which programs may name
/// all the same (`modify_qp_mask` in drivers/infiniband/core/uverbs_cmd.c).
fn ignored(kind: Type) -> AttrMask {
    match kind {
        Type::XrcIni => AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER,
        Type::XrcTgt => AttrMask::MAX_QP_RD_ATOMIC | AttrMask::RETRY_CNT | AttrMask::RNR_RETRY,
        _ => AttrMask::empty(),
    }
}

/// Returns the attributes that are numbers, for the adapter.
fn encode(command: &ModifyQp, from: u8, to: u8) -> Attr {
    Attr {
        state: to,
        cur_state: from,
        path_mtu: command.path_mtu,
        path_mig_state: command.path_mig_state,
        port: PORT,
        access: command.qp_access_flags.into(),
        pkey_index: command.pkey_index.into(),
        max_rd_atomic: command.max_rd_atomic,
        max_dest_rd_atomic: command.max_dest_rd_atomic,
        min_rnr_timer: command.min_rnr_timer,
        timeout: command.timeout,
        retry_cnt: command.retry_cnt,
        rnr_retry: command.rnr_retry,
        qkey: command.qkey.into(),
        rq_psn: command.rq_psn.into(),
        sq_psn: command.sq_psn.into(),
        dest_qpn: command.dest_qp_num.into(),
        en_sqd_async_notify: command.en_sqd_async_notify,
        rate_limit: command.rate_limit.into(),
        ..Attr::default()
    }
}

/// Returns attributes (`ib_uverbs_query_qp`).
///
/// # Errors
/// The adapter's refusal.
pub fn query(file: &OpenFile, request: &Request<'_>, command: &QueryQp) -> Result<(), Errno> {
    let qp = file.objects.qp(command.qp_handle)?;
    let attr = file.device().driver().query_qp(qp.qpn)?;
    request.respond_or_zero(
        CORE_OUT,
        &QueryQpResp {
            dest: address::decode(&attr.av),
            cap: qp.cap,
            qkey: attr.qkey.get(),
            rq_psn: attr.rq_psn.get(),
            sq_psn: attr.sq_psn.get(),
            dest_qp_num: attr.dest_qpn.get(),
            qp_access_flags: attr.access.get(),
            pkey_index: attr.pkey_index.get(),
            qp_state: attr.state,
            cur_qp_state: attr.state,
            path_mtu: attr.path_mtu,
            path_mig_state: attr.path_mig_state,
            sq_draining: attr.sq_draining,
            max_rd_atomic: attr.max_rd_atomic,
            max_dest_rd_atomic: attr.max_dest_rd_atomic,
            min_rnr_timer: attr.min_rnr_timer,
            port_num: PORT,
            timeout: attr.timeout,
            retry_cnt: attr.retry_cnt,
            rnr_retry: attr.rnr_retry,
            sq_sig_all: u8::from(qp.signals_all),
            ..QueryQpResp::default()
        },
    )
}
