// SPDX-License-Identifier: GPL-2.0
//! The properties that `rdma resource show` tells of an object beside what the core knows: the
//! adapter's own view of it, in words (`-dd`) or as the record that the adapter gives (`-r`, see
//! [`abi::admin`]). Of an adapter that has died there is none.

use abi::{
    Qpn, Srqn,
    admin::{CqRecord, KeyKind, KeyRecord, NONE, QpRecord, RingRecord, SrqRecord},
};
use kernel::{prelude::*, str::CStr, sync::atomic::Relaxed};
use zerocopy::Immutable;

use super::{Ctx, Verbs, mr::Mr};
use crate::{
    debugfs::query::Record,
    rdma::{
        self,
        restrack::{RawResEntry, ResEntry},
    },
};

/// Returns the adapter's record of an object.
fn record<R: Record>(ctx: &Ctx<'_>, number: impl Into<u32>) -> Option<R> {
    ctx.adapter.inspector().one(number.into()).ok().flatten()
}

/// The record itself. Without one the core is to leave the object out, by `EAGAIN`
/// (`res_get_common_dumpit` in `nldev.c`).
pub(super) fn raw<R: Record + Immutable>(
    ctx: &Ctx<'_>,
    number: impl Into<u32>,
    entry: RawResEntry<'_>,
) -> Result {
    entry.put(record::<R>(ctx, number).ok_or(EAGAIN)?.as_bytes())
}

/// Names of a queue's three numbers.
struct Names {
    size: &'static CStr,
    producer: &'static CStr,
    consumer: &'static CStr,
}

const SEND: Names = Names { size: c"sq_size", producer: c"sq_pi", consumer: c"sq_ci" };
const RECV: Names = Names { size: c"rq_size", producer: c"rq_pi", consumer: c"rq_ci" };

fn ring(entry: &mut ResEntry<'_>, names: &Names, ring: &RingRecord) -> Result {
    if ring.size.get() == 0 {
        return Ok(());
    }
    entry.number(names.size, ring.size)?;
    entry.number(names.producer, ring.posted)?;
    entry.number(names.consumer, ring.next)
}

pub(super) fn qp(ctx: &Ctx<'_>, qpn: Qpn, entry: &mut ResEntry<'_>) -> Result {
    let Some(qp) = record::<QpRecord>(ctx, qpn) else { return Ok(()) };
    entry.number(c"send_cqn", qp.send_cqn.get())?;
    entry.number(c"recv_cqn", qp.recv_cqn.get())?;
    if qp.srqn.get() != NONE {
        entry.number(c"srqn", qp.srqn.get())?;
    }
    entry.number(c"uar", qp.uar.get())?;
    entry.number(c"slot", qp.slot.get())?;
    entry.number(c"worker", u32::from(qp.worker))?;
    entry.number(c"path_mtu", qp.path_mtu)?;
    let place = if qp.sq_in_device == 0 { c"guest" } else { c"device" };
    entry.word(c"sq_memory", place)?;
    ring(entry, &SEND, &qp.sq)?;
    ring(entry, &RECV, &qp.rq)
}

pub(super) fn cq(ctx: &Ctx<'_>, cq: &rdma::cq::Cq<Verbs>, entry: &mut ResEntry<'_>) -> Result {
    let handler = &ctx.adapter.handlers().get(cq.handler)?.handler;
    entry.number(c"cqn", cq.cqn.get())?;
    entry.number(c"handler", cq.handler)?;
    if let Some(cpu) = handler.cpu() {
        entry.number(c"cpu", cpu)?;
    }
    entry.number(c"events", cq.link().reports())?;
    let moderation = cq.moderation.load(Relaxed);
    entry.number(c"moderation_count", moderation >> 16)?;
    entry.number(c"moderation_usec", moderation & 0xffff)?;
    let Some(cq) = record::<CqRecord>(ctx, cq.cqn) else { return Ok(()) };
    entry.number(c"size", cq.size)?;
    entry.number(c"pi", cq.produced)?;
    entry.number(c"ci", cq.consumed)?;
    entry.number(c"armed", cq.armed)?;
    entry.number(c"failed", cq.failed)
}

pub(super) fn srq(ctx: &Ctx<'_>, srqn: Srqn, entry: &mut ResEntry<'_>) -> Result {
    let Some(srq) = record::<SrqRecord>(ctx, srqn) else { return Ok(()) };
    entry.number(c"uar", srq.uar.get())?;
    entry.number(c"slot", srq.slot.get())?;
    ring(entry, &RECV, &srq.ring)?;
    entry.number(c"users", srq.users)?;
    entry.number(c"limit", srq.limit)?;
    entry.number(c"failed", srq.failed)
}

pub(super) fn mr(ctx: &Ctx<'_>, mr: &Mr, entry: &mut ResEntry<'_>) -> Result {
    let Some(key) = record::<KeyRecord>(ctx, mr.key().index()) else { return Ok(()) };
    // CAST: the enum's number.
    let kind = if key.kind == KeyKind::Fast as u8 { c"fast_region" } else { c"region" };
    entry.word(c"kind", kind)?;
    entry.word(c"state", if key.valid == 0 { c"free" } else { c"valid" })?;
    if key.valid != 0 {
        entry.bits(c"access", key.access.get())?;
        if key.page_shift != 0 {
            entry.number(c"page_size", 1u64 << key.page_shift.min(63))?;
        }
    }
    entry.number(c"windows", key.windows)
}
