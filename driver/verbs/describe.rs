// SPDX-License-Identifier: GPL-2.0
//! The properties of an object that `rdma resource show` prints in addition to the core's own
//! properties: the adapter's view of it, in words (`-dd`) or as the adapter's record (`-r`,
//! [`abi::admin`]). An adapter that has died gives none.

use abi::admin::{
    ConnectionRecord,
    CqRecord,
    KeyRecord,
    QpRecord,
    RingRecord,
    SrqRecord, //
    fields::{Field, Record, RingAttrs, Show, Value},
};
use kernel::{prelude::*, sync::atomic::Relaxed};

use super::{Ctx, Verbs, memory::mr};
use crate::rdma::{
    memory::mr::Mr,
    queues::cq::Cq,
    queues::qp::Qp,
    queues::srq::Srq,
    restrack::{RawResEntry, ResEntry, ResOperations},
};

/// Returns the adapter's record of an object.
fn record<R: Record>(ctx: &Ctx<'_>, number: impl Into<u32>) -> Option<R> {
    ctx.adapter.inspector().one(number.into()).ok().flatten()
}

/// Adds the record itself. Without one, this returns `EAGAIN`, so that the core leaves the object
/// out (`res_get_common_dumpit` in `nldev.c`).
fn raw<R: Record>(ctx: &Ctx<'_>, number: impl Into<u32>, entry: RawResEntry<'_>) -> Result {
    entry.put(record::<R>(ctx, number).ok_or(EAGAIN)?.as_bytes())
}

/// Attributes of an entry.
struct Attrs<'a, 'b>(&'a mut ResEntry<'b>);

impl Attrs<'_, '_> {
    fn ring(&mut self, [size, produced, consumed]: RingAttrs, ring: &RingRecord) -> Result {
        self.0.number(size, ring.size)?;
        self.0.number(produced, ring.posted)?;
        self.0.number(consumed, ring.next)
    }
}

impl Show for Attrs<'_, '_> {
    type Error = Error;

    fn field(&mut self, field: Field, value: Value) -> Result {
        match (value, field.attr) {
            (Value::Work { ring, attrs, .. }, _) if ring.size.get() != 0 => self.ring(attrs, &ring),
            (Value::Out { ring, attrs: Some(attrs) }, _) => self.ring(attrs, &ring),
            (
                Value::Number(number) | Value::Maybe(Some(number)) | Value::Hex(number),
                Some(name),
            ) => self.0.number(name, number),
            (Value::Key(number) | Value::Code(number, _), Some(name)) => {
                self.0.number(name, number)
            }
            (Value::Flag(flag), Some(name)) => self.0.number(name, flag),
            (Value::Rights(rights), Some(name)) => self.0.bits(name, rights.bits()),
            (Value::Word(word), Some(name)) => self.0.word(name, word),
            _ => Ok(()),
        }
    }
}

/// Adds what the adapter says of an object.
fn show<R: Record>(ctx: &Ctx<'_>, number: impl Into<u32>, entry: &mut ResEntry<'_>) -> Result {
    match record::<R>(ctx, number) {
        Some(record) => record.show(&mut Attrs(entry)),
        None => Ok(()),
    }
}

#[vtable]
impl ResOperations<Cq<Self>> for Verbs {
    fn fill_res_entry(ctx: &Ctx<'_>, cq: &Cq<Self>, entry: &mut ResEntry<'_>) -> Result {
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
        show::<CqRecord>(ctx, cq.cqn, entry)
    }

    fn fill_res_entry_raw(ctx: &Ctx<'_>, cq: &Cq<Self>, entry: RawResEntry<'_>) -> Result {
        raw::<CqRecord>(ctx, cq.cqn, entry)
    }
}

#[vtable]
impl ResOperations<Mr<mr::Mr>> for Verbs {
    fn fill_res_entry(ctx: &Ctx<'_>, mr: &Mr<mr::Mr>, entry: &mut ResEntry<'_>) -> Result {
        show::<KeyRecord>(ctx, mr.key().index(), entry)
    }

    fn fill_res_entry_raw(ctx: &Ctx<'_>, mr: &Mr<mr::Mr>, entry: RawResEntry<'_>) -> Result {
        raw::<KeyRecord>(ctx, mr.key().index(), entry)
    }
}

#[vtable]
impl ResOperations<Srq<Self>> for Verbs {
    fn fill_res_entry(ctx: &Ctx<'_>, srq: &Srq<Self>, entry: &mut ResEntry<'_>) -> Result {
        show::<SrqRecord>(ctx, srq.srqn, entry)
    }

    fn fill_res_entry_raw(ctx: &Ctx<'_>, srq: &Srq<Self>, entry: RawResEntry<'_>) -> Result {
        raw::<SrqRecord>(ctx, srq.srqn, entry)
    }
}

#[vtable]
impl ResOperations<Qp<Self>> for Verbs {
    fn fill_res_entry(ctx: &Ctx<'_>, qp: &Qp<Self>, entry: &mut ResEntry<'_>) -> Result {
        show::<QpRecord>(ctx, qp.qpn, entry)?;
        show::<ConnectionRecord>(ctx, qp.qpn, entry)
    }

    fn fill_res_entry_raw(ctx: &Ctx<'_>, qp: &Qp<Self>, entry: RawResEntry<'_>) -> Result {
        raw::<QpRecord>(ctx, qp.qpn, entry)
    }
}
