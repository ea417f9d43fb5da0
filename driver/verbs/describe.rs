// SPDX-License-Identifier: GPL-2.0
//! What `rdma resource show` tells of an object beside what the core knows: the adapter's own view of it, in words
//! (`-dd`) or as the record that the adapter gives (`-r`, see [`abi::admin`]). Of an adapter that has died there is none.

use abi::admin::{CqRecord, KeyKind, KeyRecord, NONE, QpRecord, RingRecord, SrqRecord};
use kernel::{prelude::*, str::CStr, sync::atomic::Relaxed};
use zerocopy::Immutable;

use super::{Hca, mr::Mr, ops::Verbs};
use crate::{
    debugfs::query::Record,
    rdma::{
        self,
        details::{Details, Raw},
    },
};

/// What the adapter knows of an object.
fn record<R: Record>(hca: &Hca<'_>, number: u32) -> Option<R> {
    hca.adapter.inspector().one(number).ok().flatten()
}

/// The record itself. Without one the core is to leave the object out, by `EAGAIN` (`res_get_common_dumpit` in `nldev.c`).
pub(super) fn raw<R: Record + Immutable>(hca: &Hca<'_>, number: u32, raw: Raw<'_>) -> Result {
    raw.put(record::<R>(hca, number).ok_or(EAGAIN)?.as_bytes())
}

/// Names of a queue's three numbers.
struct Names {
    size: &'static CStr,
    producer: &'static CStr,
    consumer: &'static CStr,
}

const SEND: Names = Names { size: c"sq_size", producer: c"sq_pi", consumer: c"sq_ci" };
const RECV: Names = Names { size: c"rq_size", producer: c"rq_pi", consumer: c"rq_ci" };

fn ring(details: &mut Details<'_>, names: &Names, ring: &RingRecord) -> Result {
    if ring.size.get() == 0 {
        return Ok(());
    }
    details.number(names.size, ring.size)?;
    details.number(names.producer, ring.posted)?;
    details.number(names.consumer, ring.next)
}

pub(super) fn qp(hca: &Hca<'_>, qpn: u32, details: &mut Details<'_>) -> Result {
    let Some(qp) = record::<QpRecord>(hca, qpn) else { return Ok(()) };
    details.number(c"send_cqn", qp.send_cqn)?;
    details.number(c"recv_cqn", qp.recv_cqn)?;
    if qp.srqn.get() != NONE {
        details.number(c"srqn", qp.srqn)?;
    }
    details.number(c"uar", qp.uar)?;
    details.number(c"slot", qp.slot)?;
    details.number(c"worker", u32::from(qp.worker))?;
    details.number(c"path_mtu", qp.path_mtu)?;
    let place = if qp.sq_in_device == 0 { c"guest" } else { c"device" };
    details.word(c"sq_memory", place)?;
    ring(details, &SEND, &qp.sq)?;
    ring(details, &RECV, &qp.rq)
}

pub(super) fn cq(hca: &Hca<'_>, cq: &rdma::cq::Cq<Verbs>, details: &mut Details<'_>) -> Result {
    let handler = &hca.adapter.handlers().get(cq.handler)?.handler;
    details.number(c"cqn", cq.cqn)?;
    details.number(c"handler", cq.handler)?;
    if let Some(cpu) = handler.cpu() {
        details.number(c"cpu", cpu)?;
    }
    details.number(c"events", cq.link().reports())?;
    let moderation = cq.moderation.load(Relaxed);
    details.number(c"moderation_count", moderation >> 16)?;
    details.number(c"moderation_usec", moderation & 0xffff)?;
    let Some(cq) = record::<CqRecord>(hca, cq.cqn) else { return Ok(()) };
    details.number(c"size", cq.size)?;
    details.number(c"pi", cq.produced)?;
    details.number(c"ci", cq.consumed)?;
    details.number(c"armed", cq.armed)?;
    details.number(c"failed", cq.failed)
}

pub(super) fn srq(hca: &Hca<'_>, srqn: u32, details: &mut Details<'_>) -> Result {
    let Some(srq) = record::<SrqRecord>(hca, srqn) else { return Ok(()) };
    details.number(c"uar", srq.uar)?;
    details.number(c"slot", srq.slot)?;
    ring(details, &RECV, &srq.ring)?;
    details.number(c"users", srq.users)?;
    details.number(c"limit", srq.limit)?;
    details.number(c"failed", srq.failed)
}

pub(super) fn mr(hca: &Hca<'_>, mr: &Mr, details: &mut Details<'_>) -> Result {
    let Some(key) = record::<KeyRecord>(hca, mr.key() >> 8) else { return Ok(()) };
    // CAST: the enum's number.
    let kind = if key.kind == KeyKind::Fast as u8 { c"fast_region" } else { c"region" };
    details.word(c"kind", kind)?;
    details.word(c"state", if key.valid == 0 { c"free" } else { c"valid" })?;
    if key.valid != 0 {
        details.bits(c"access", key.access.get())?;
        if key.page_shift != 0 {
            details.number(c"page_size", 1u64 << key.page_shift.min(63))?;
        }
    }
    details.number(c"windows", key.windows)
}
