//! The sending half of a QP: takes entries off the send queue and executes them on the peer.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `differences` | attributes that must be the same at both ends, but are not |
//! | `work` | a turn: taking and executing entries |
//! | `slow_path` | entries that faults, a watcher or keys concern |
//! | `outcome` | completions, retries and failures |
//! | `paired` | a turn of a QP with a TCP connection, whose messages may be copied |
//! | `reads` | READs that take more than a turn, and the entries that may pass them |

mod differences;
mod outcome;
mod paired;
mod reads;
mod slow_path;
mod work;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::Type;

use self::differences::Differences;
use self::paired::Rules;
use self::work::Work;
use crate::datapath::constants::MAX_KEY_WAITS;
use crate::datapath::peer_context::PeerContext;
use crate::datapath::send_queue::{Turn, not_now};
use crate::datapath::space::Space;
use crate::datapath::transport::peers::Network;
use crate::datapath::transport::{datagram, packets, raw};
use crate::datapath::turn::{Allowance, TurnContext};
use crate::datapath::wqe_fetch::Batch;
use crate::host::Host;
use crate::objects::core::Core;
use crate::objects::qp::{
    Ended, KeyWait, Path, Peer, Qp, Readers, Requester, RequesterConfig, Responder,
};
use crate::slice::{Slice, cost};

/// Executes entries of the send queue of `qp`, a QP of the adapter in `network`, up to the limits
/// of `allowance`. The entries are copied to `space`.
pub fn run<H: Host>(
    network: Network<'_, H>,
    qp: &Arc<Qp<H>>,
    space: &mut Space,
    allowance: &Allowance<'_, H>,
) -> Turn {
    if qp.dead.load(Ordering::Acquire) {
        // A thread that destroys the QP may hold the lock for long, because it zeroes memory.
        return Turn::Idle;
    }
    if qp.holding {
        qp.let_sender_go_on();
    }
    let mut guard = qp.requester.lock();
    let requester = &mut *guard;
    if qp.kind == Type::RawPacket {
        return raw_packets(network, qp, requester, space, allowance);
    }
    let batch = &mut space.batch;
    match requester.path {
        Path::Memory => by_memory(network, qp, requester, batch, allowance, None),
        Path::Packets(_) => packets::run(network, qp, requester, batch, allowance),
        Path::Tcp(_) => paired::run(network, qp, requester, batch, allowance),
        // The QP has no connection yet.
        Path::Promised(_) => not_now(network.core(), qp, requester).unwrap_or(Turn::Idle),
    }
}

/// Executes entries of a QP of raw packets.
fn raw_packets<H: Host>(
    network: Network<'_, H>,
    qp: &Arc<Qp<H>>,
    requester: &mut Requester<H>,
    space: &mut Space,
    allowance: &Allowance<'_, H>,
) -> Turn {
    let core = network.core();
    if let Some(turn) = not_now(core, qp, requester) {
        return turn;
    }
    space.batch.clear();
    let here = TurnContext::new(core, qp, allowance.slice);
    raw::run(network, &here, qp, requester, space)
}

/// Executes entries of a QP on peers in this daemon. If the QP has a TCP connection, `rules` are
/// the rules of iWARP.
#[inline]
fn by_memory<H: Host>(
    network: Network<'_, H>,
    qp: &Arc<Qp<H>>,
    requester: &mut Requester<H>,
    batch: &mut Batch,
    allowance: &Allowance<'_, H>,
    rules: Option<&Rules>,
) -> Turn {
    let (core, slice) = (network.core(), allowance.slice);
    for _ in 0..MAX_KEY_WAITS {
        let wait = not_now(core, qp, requester);
        if let Some(turn) = wait
            && (requester.open_reads.is_empty() || matches!(turn, Turn::Idle | Turn::Failed))
        {
            return turn;
        }
        batch.clear();
        if qp.kind.is_datagram() {
            let here = TurnContext::patient(core, qp, requester.asker(), slice);
            return datagram::run(network, &here, qp, requester, batch);
        }
        let turn = connected(network, qp, requester, batch, allowance, How { wait, rules });
        if !wait_for_readers(core, requester, slice) {
            return turn;
        }
        if slice.is_over() {
            break;
        }
    }
    Turn::More
}

/// The conditions under which the entries of a connected QP are executed.
struct How<'a> {
    /// The reason for which only outstanding READs continue, if there is one.
    wait: Option<Turn>,
    /// The rules of iWARP, if the QP has a TCP connection.
    rules: Option<&'a Rules>,
}

/// Executes entries of a connected QP.
fn connected<H: Host>(
    network: Network<'_, H>,
    qp: &Arc<Qp<H>>,
    requester: &mut Requester<H>,
    batch: &mut Batch,
    &Allowance { budget, slice }: &Allowance<'_, H>,
    How { wait, rules }: How<'_>,
) -> Turn {
    let core = network.core();
    // Taken out of the requester for the turn, because other fields of it change during the turn.
    let found = take_peer(network, requester);
    let there = found.as_ref().and_then(|peer| meet(network, qp, requester, peer, slice));
    let differences = match &there {
        // Both ends of a TCP connection have the attributes that they have agreed on.
        Some((there, responder)) if rules.is_none() => {
            Differences::between(core, &requester.config, there.turn.core, responder)
        }
        _ => None,
    };
    let met = there.is_some();
    let here = TurnContext::patient(core, qp, requester.asker(), slice);
    // Messages are reported in the form of RoCE.
    let watcher = network.fabric.watch.of_all().filter(|_| rules.is_none());
    let watch = watcher.map(|watcher| (network, watcher));
    let slow_path = here.slow_path || rules.is_some() || differences.is_some() || watch.is_some();
    let mut work =
        Work { here, qp, requester, batch, there, budget, watch, rules, differences, slow_path };
    let turn = catch_unwind(AssertUnwindSafe(|| work.run(wait))).unwrap_or_else(|panic| {
        match &work.there {
            Some((there, _)) => there.charge(panic),
            None => resume_unwind(panic),
        }
        // The entry in progress is lost, and so is the peer.
        qp.failed(core, Kind::QpFatal);
        Turn::Failed
    });
    drop(work);
    // A QP that is no longer the peer must not be kept alive by this reference.
    requester.peer = found.filter(|_| met);
    turn
}

/// Locks the receiving half of the QP that was found if it is the peer. The number may have been
/// reused for another connection or an unrelated QP. Only for the peer is its adapter's memory
/// held.
#[inline(always)]
fn meet<'a, H: Host>(
    network: Network<'_, H>,
    qp: &Qp<H>,
    requester: &Requester<H>,
    peer: &'a Peer<H>,
    slice: &'a Slice<'a, H>,
) -> Option<(PeerContext<'a, H>, MutexGuard<'a, Responder>)> {
    let (responder, config) = (peer.qp.responder.lock(), &requester.config);
    let is_peer = peer.qp.kind == qp.kind.info().peer
        && responder.source_qpn == qp.qpn
        && responder.route == config.route
        && config.route.is_some_and(|route| network.has_address(route.sender()))
        // A message of an unreliable connection may begin with any PSN (IBTA volume 1, 9.8.2.2).
        && (qp.kind == Type::Uc || responder.first_psn == config.first_psn);
    is_peer.then(|| {
        let asker = responder.asker();
        (PeerContext::patient(&peer.core, &peer.qp, asker, slice), responder)
    })
}

/// If the entry in progress has invalidated a key, waits for the threads that may still use it.
/// Returns whether it waited. The caller holds no memory.
fn wait_for_readers<H: Host>(
    core: &Core<H>,
    requester: &mut Requester<H>,
    slice: &Slice<'_, H>,
) -> bool {
    let Some(keys) = &mut requester.keys else { return false };
    let KeyWait::Due(readers) = keys.wait else { return false };
    keys.wait = KeyWait::Over;
    match (readers, &requester.peer) {
        (Readers::Own, _) => core.host().drain(),
        (Readers::Peer, Some(peer)) => {
            peer.core.host().drain();
            if let Some(Ended::Command(key)) = keys.ended {
                peer.qp.tpt.finish_command(key);
            }
        }
        // A message of the peer is in use.
        (Readers::Peer, None) => {}
    }
    slice.charge(cost::readers(core.workers()));
    true
}

/// Takes the peer out of the requester, or looks it up.
fn take_peer<H: Host>(network: Network<'_, H>, requester: &mut Requester<H>) -> Option<Peer<H>> {
    if let Some(peer) = requester.peer.take()
        && !peer.qp.dead.load(Ordering::Acquire)
    {
        return Some(peer);
    }
    let RequesterConfig { dest_qpn, route, .. } = requester.config;
    network.fabric.find(route?.receiver(), dest_qpn)
}
