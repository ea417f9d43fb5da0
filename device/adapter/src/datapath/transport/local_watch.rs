//! Reports copied messages to the daemon's watcher, because no frames carry them.

use std::time::Duration;

use vrnic_abi::sq::Class;
use vrnic_roce::Psn;
use vrnic_roce::responder::Verdict;
use vrnic_roce::wire::syndrome::RnrTimer;
use vrnic_roce::wire::{Mtu, Qpn};

use crate::datapath::local_wr::key_place;
use crate::datapath::refusal::Refusal;
use crate::datapath::sgl::SgList;
use crate::datapath::transport::local::{Exchange, Stop};
use crate::datapath::transport::packets::connect::{Ends, path, transport};
use crate::datapath::transport::packets::message::{request, verdict};
use crate::datapath::transport::peers::Network;
use crate::host::{CopyFault, Host};
use crate::objects::faults::trace::Noted;
use crate::objects::qp::Responder;
use crate::objects::qp::outstanding::CarriedKey;
use crate::watch::{Exchanged, Watcher};

/// Reports a message of a connected QP that the peer has executed.
#[cold]
pub(crate) fn executed<H: Host>(
    network: Network<'_, H>,
    watcher: &dyn Watcher,
    exchange: &Exchange<'_, '_, H>,
    responder: &Responder,
) {
    exchanged(network, watcher, exchange, Verdict::Executed, responder);
}

/// Reports a message of a connected QP that the peer has refused. A message that waits for a
/// receive is reported only the first time, not if `again` is true.
#[cold]
pub(crate) fn stopped<H: Host>(
    network: Network<'_, H>,
    watcher: &dyn Watcher,
    exchange: &Exchange<'_, '_, H>,
    stop: &Stop,
    again: bool,
    responder: &Responder,
) {
    match stop {
        Stop::Local(..) | Stop::Absent | Stop::Remote(Refusal::Unexpected) => {}
        Stop::Remote(Refusal::NotReady) if again => {}
        Stop::Remote(refusal) => exchanged(
            network,
            watcher,
            exchange,
            verdict(Err(*refusal), Duration::default),
            responder,
        ),
    }
}

/// Reports a message with its answer. Reports nothing if the message's memory is no longer
/// accessible.
fn exchanged<H: Host>(
    network: Network<'_, H>,
    watcher: &dyn Watcher,
    exchange: &Exchange<'_, '_, H>,
    verdict: Verdict,
    responder: &Responder,
) {
    let Exchange { here, qp, send, raw, there, message, .. } = *exchange;
    let functions = [network.core().name(), there.turn.core.name()];
    if !watcher.wants(functions, send.length) {
        return;
    }
    let attr = *qp.attr.lock();
    let ends = Ends { own: qp.qpn, peer: there.qp.qpn };
    let (Some(transport), Some(mtu)) = (transport(qp.kind), Mtu::from_code(attr.path_mtu)) else {
        return;
    };
    let Some(request) = request(qp, send, raw) else { return };
    let Some(path) = path(network.own, &attr.av, ends) else { return };
    here.slice.charge_copy(send.length);
    let mut payload = vec![0; usize::try_from(send.length).unwrap_or(0)];
    if verdict != Verdict::NotReady && read(exchange, &mut payload).is_none() {
        return;
    }
    let old = payload.first_chunk().filter(|_| send.opcode.info().class == Class::Atomic);
    let verdict = match (verdict, old) {
        (Verdict::Executed, Some(old)) => Verdict::Old(u64::from_le_bytes(*old)),
        (verdict, _) => verdict,
    };
    let exchanged = Exchanged {
        // CAST: takes the upper half, which is the number of the connection.
        connection: (message >> 32) as u32,
        transport,
        mtu,
        ends: [ends.own, ends.peer].map(|qpn| Qpn::new(qpn.get())),
        first_psn: Psn::new(attr.sq_psn.get()),
        path,
        min_rnr_timer: RnrTimer::new(responder.min_rnr_timer),
        request,
        verdict,
        payload,
        note: note(exchange),
    };
    watcher.exchanged(functions, exchanged);
}

/// Returns the comment of captures on a message, if one of its QPs is traced.
fn note<H: Host>(Exchange { here, qp, send, there, .. }: &Exchange<'_, '_, H>) -> Option<String> {
    let of = Noted::Copy { index: send.index };
    let own = here.core.injection.note(here.core.here(), qp.qpn, &of);
    let core = there.turn.core;
    own.or_else(|| core.injection.note(core.here(), there.qp.qpn, &Noted::CopyOfPeer))
}

/// Reads the bytes of a message from the requester's memory, where they were read or written.
fn read<H: Host>(exchange: &Exchange<'_, '_, H>, payload: &mut [u8]) -> Option<()> {
    let Exchange { here, qp, send, raw, keys, .. } = *exchange;
    let mut side = SgList::default();
    side.add_own(here, qp.user(), send, raw).ok()?;
    side.read::<H>(&here.memory, 0, payload).map_err(|_: CopyFault| ()).ok()?;
    if let Some(key) = keys.command {
        CarriedKey { key, place: key_place(qp, send, raw)? }.insert(payload, 0);
    }
    Some(())
}
