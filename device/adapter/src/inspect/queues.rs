//! Views of queues.

use std::sync::atomic::Ordering;

use vrnic_abi::qp::{State, Type};

use super::{Page, mac};
use crate::adapter::Adapter;
use crate::host::Host;
use crate::objects::qp::{Qp, SendRing};
use crate::objects::views::{CqView, EqView, QpView, QueueView, SrqView};

impl<H: Host> Adapter<H> {
    /// Up to `most` queue pairs, from number `from` on.
    #[must_use]
    pub fn qp_views(&self, from: u32, most: usize) -> Page<QpView> {
        let mut qps = self.objects.all_qps();
        qps.retain(|qp| qp.qpn.get() >= from);
        qps.sort_unstable_by_key(|qp| qp.qpn);
        Page::of(qps.iter().map(|qp| (qp.qpn.get(), self.qp_view(qp))), most)
    }

    fn qp_view(&self, qp: &Qp<H>) -> QpView {
        let attr = *qp.attr.lock();
        let send = |size, in_device| {
            let next = qp.next_send.load(Ordering::Relaxed);
            let posted = self.host().bar_load32(qp.doorbell.sq_pi());
            Some(QueueView { size, posted, next, in_device })
        };
        let recv = |size| QueueView {
            size,
            posted: self.host().bar_load32(qp.doorbell.rq_pi()),
            next: qp.responder.try_lock().map_or(0, |responder| responder.ci),
            in_device: false,
        };
        let connected = qp.is_connected();
        QpView {
            qpn: qp.qpn.get(),
            kind: kind(qp.kind).to_owned(),
            state: state(qp.state()).to_owned(),
            context: qp.context.get(),
            pdn: qp.pdn.get(),
            send_cqn: qp.send_cq.cqn.get(),
            recv_cqn: qp.recv_cq.cqn.get(),
            srqn: qp.srq.as_ref().map(|srq| srq.srqn.get()),
            worker: qp.worker,
            uar: qp.doorbell.uar().get(),
            slot: qp.doorbell.slot().get(),
            peer: connected.then(|| (mac(attr.av.dmac), attr.dest_qpn.get())),
            path_mtu: attr.path_mtu,
            send: match &qp.sq {
                SendRing::None => None,
                SendRing::Guest(ring) => send(ring.size(), false),
                SendRing::Device(ring) => send(ring.size(), true),
            },
            recv: qp.rq.as_ref().map(|ring| recv(ring.size())),
        }
    }

    /// Up to `most` completion queues, from number `from` on.
    #[must_use]
    pub fn cq_views(&self, from: u32, most: usize) -> Page<CqView> {
        let cqs = self.objects.cqs.all();
        let views = cqs
            .iter()
            .filter(|cq| cq.cqn.get() >= from)
            .map(|cq| (cq.cqn.get(), cq.view(self.host())));
        Page::of(views, most)
    }

    /// Up to `most` event queues, from number `from` on; 0 is the asynchronous one.
    #[must_use]
    pub fn eq_views(&self, from: u32, most: usize) -> Page<EqView> {
        let asynchronous = self.core().asynchronous.read().clone();
        let eqs = asynchronous.into_iter().chain(self.objects.eqs.all());
        let views =
            eqs.filter(|eq| eq.eqn.get() >= from).map(|eq| (eq.eqn.get(), eq.view(self.host())));
        Page::of(views, most)
    }

    /// Up to `most` shared receive queues, from number `from` on.
    #[must_use]
    pub fn srq_views(&self, from: u32, most: usize) -> Page<SrqView> {
        let srqs = self.objects.srqs.all();
        let views = srqs.iter().filter(|srq| srq.srqn.get() >= from);
        Page::of(views.map(|srq| (srq.srqn.get(), srq.view(self.host()))), most)
    }
}

fn kind(kind: Type) -> &'static str {
    match kind {
        Type::Gsi => "gsi",
        Type::Rc => "rc",
        Type::Uc => "uc",
        Type::Ud => "ud",
        Type::XrcIni => "xrc_ini",
        Type::XrcTgt => "xrc_tgt",
    }
}

fn state(state: State) -> &'static str {
    match state {
        State::Reset => "reset",
        State::Init => "init",
        State::Rtr => "rtr",
        State::Rts => "rts",
        State::Sqd => "sqd",
        State::Sqe => "sqe",
        State::Err => "err",
    }
}
