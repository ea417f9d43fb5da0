// SPDX-License-Identifier: GPL-2.0
//! Work queues, over which queue pairs of raw packets spread frames. To the adapter a work queue is
//! a queue pair of raw packets without a send queue.

use abi::{
    Qpn,
    admin::command,
    qp::{Attr, AttrMask, State},
    rss::LOG_ENTRIES_MAX,
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::Mutex, //
};

use super::{
    Ctx, Verbs,
    qp::{modify_command, params, user, user::UserQp},
};
use crate::{
    pairing::PORT,
    rdma::{
        self, Device,
        qp_attr::{QpCap, QpType},
        queues::wq::{NewWq, WqChange, WqInit, WqOperations, WqState},
        user::ucontext::User,
    },
};

/// The adapter's part of a work queue.
pub(crate) struct Wq {
    /// The number of the queue, which is that of a queue pair.
    pub(super) qpn: Qpn,
    /// The state of the queue; also serialises changes.
    state: Pin<KBox<Mutex<WqState>>>,
    _memory: UserQp,
}

#[vtable]
impl WqOperations for Verbs {
    fn create_wq(
        ctx: &Ctx<'_>,
        device: &Device<Self>,
        pd: &rdma::pd::Pd<Self>,
        init: &mut WqInit<'_, Self>,
        user: &User<'_, Self>,
    ) -> Result<NewWq<Wq>> {
        let caps = ctx.adapter.caps();
        if !ctx.has_work_queues() || init.flags() != 0 {
            return Err(EOPNOTSUPP);
        }
        let cap =
            QpCap { max_recv_wr: init.max_wr(), max_recv_sge: init.max_sge(), ..QpCap::default() };
        if !init.is_of_receives()
            || cap.max_recv_wr == 0
            || cap.max_recv_wr > caps.max_wr.get()
            || cap.max_recv_sge > caps.max_sge.get()
        {
            return Err(EINVAL);
        }
        let state = KBox::pin_init(new_mutex!(WqState::Reset, "vrnic::Wq"), GFP_KERNEL)?;
        let params = params::without_queues(pd, QpType::RAW_PACKET, init.cq().cqn)?;
        let created = user::create_wq(ctx, device, params, &cap, user)?;
        init.set_max_wr(created.cap.max_recv_wr);
        let qpn = created.qpn;
        Ok(NewWq { number: qpn.get(), driver: Wq { qpn, state, _memory: created.queues } })
    }

    fn modify_wq(
        ctx: &Ctx<'_>,
        wq: &rdma::queues::wq::Wq<Self>,
        change: WqChange,
        done: impl FnOnce(WqState),
    ) -> Result {
        if change.changes_flags {
            return Err(EOPNOTSUPP);
        }
        let mut state = wq.state.lock();
        if change.from.is_some_and(|from| from != *state) {
            return Err(EINVAL);
        }
        let Some(to) = change.to else { return Ok(()) };
        match (*state, to) {
            (WqState::Error, WqState::Ready) => return Err(EINVAL),
            (from, to) if from == to => {}
            (_, WqState::Ready) => {
                let port = u8::try_from(PORT)?;
                set_state(ctx, wq.qpn, State::Init, AttrMask::PORT, port)?;
                let ready = set_state(ctx, wq.qpn, State::Rtr, AttrMask::empty(), 0);
                ready.inspect_err(|_| {
                    // If that fails, too, the adapter has died.
                    let _ = set_state(ctx, wq.qpn, State::Reset, AttrMask::empty(), 0);
                })?;
            }
            (_, WqState::Reset) => end(ctx, wq.qpn, State::Reset)?,
            (_, WqState::Error) => end(ctx, wq.qpn, State::Err)?,
        }
        *state = to;
        done(to);
        Ok(())
    }

    fn destroy_wq(ctx: &Ctx<'_>, wq: &rdma::queues::wq::Wq<Self>) -> Result {
        ctx.destroy::<command::DestroyQp>(&wq.qpn)
    }

    fn create_wq_table(_ctx: &Ctx<'_>, log_entries: u32) -> Result {
        if log_entries > LOG_ENTRIES_MAX.into() { Err(EINVAL) } else { Ok(()) }
    }
}

/// Changes the state of a work queue to one in which it receives nothing.
fn end(ctx: &Ctx<'_>, qpn: Qpn, to: State) -> Result {
    match set_state(ctx, qpn, to, AttrMask::empty(), 0) {
        // An adapter that has died does nothing more for the work queue, as these states want.
        Err(error) if !ctx.adapter.is_dead() => Err(error),
        _ => Ok(()),
    }
}

fn set_state(ctx: &Ctx<'_>, qpn: Qpn, to: State, more: AttrMask, port: u8) -> Result {
    // CAST: the enum's number.
    let attr = Attr { state: to as u8, port, ..Attr::default() };
    modify_command::execute(ctx, qpn, &attr, AttrMask::STATE | more)
}
