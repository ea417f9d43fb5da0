//! The sending half of a QP: takes entries off the send queue and executes them on the peer.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `differences` | attributes that must be the same at both ends, but are not |
//! | `work` | a turn: taking and executing entries |
//! | `outcome` | completions, retries and failures |
//! | `reads` | READs that take more than a turn, and the entries that may pass them |

mod differences;
mod outcome;
mod reads;
mod work;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::Type;

use self::differences::Differences;
use self::work::Work;
use crate::datapath::send_queue::{Turn, not_now};
use crate::datapath::there::There;
use crate::datapath::transport::peers::Network;
use crate::datapath::transport::rules::Rules;
use crate::datapath::transport::{datagram, packets, stream};
use crate::datapath::turn::{Allowance, TurnContext};
use crate::datapath::wqe_fetch::Batch;
use crate::host::Host;
use crate::objects::core::Core;
use crate::objects::qp::{
    Ended, KeyWait, Path, Peer, Qp, Readers, Requester, RequesterConfig, Responder,
};
use crate::slice::{Slice, cost};

/// Maximum number of times in a turn for which a QP waits until an invalidated key is no longer
/// used.
const WAITS: u32 = 16;

/// Executes entries of the send queue of `qp`, a QP of the adapter in `network`, up to the limits
/// of `allowance`. The entries are copied to `batch`.
pub fn run<H: Host>(
    network: Network<'_, H>,
    qp: &Arc<Qp<H>>,
    batch: &mut Batch,
    allowance: &Allowance<'_, H>,
) -> Turn {
    if qp.dead.load(Ordering::Acquire) {
        // A thread that destroys the QP may hold the lock for long, because it zeroes memory.
        return Turn::Idle;
    }
    let mut guard = qp.requester.lock();
    let requester = &mut *guard;
    match requester.path {
        Path::Memory => by_memory(network, qp, requester, batch, allowance, None),
        Path::Packets(_) => packets::run(network, qp, requester, batch, allowance),
        Path::Stream(_) => {
            stream::run(network, qp, requester, batch, allowance, |requester, batch, rules| {
                by_memory(network, qp, requester, batch, allowance, Some(rules))
            })
        }
    }
}

/// Executes entries of a QP on peers in this daemon. `rules` are those of its protocol, unless that
/// is RoCE.
#[inline]
fn by_memory<H: Host>(
    network: Network<'_, H>,
    qp: &Arc<Qp<H>>,
    requester: &mut Requester<H>,
    batch: &mut Batch,
    allowance: &Allowance<'_, H>,
    rules: Option<&dyn Rules<H>>,
) -> Turn {
    let (core, slice) = (network.core(), allowance.slice);
    for _ in 0..WAITS {
        let wait = not_now(core, qp, requester);
        if let Some(turn) = wait
            && (requester.open_reads.is_empty() || matches!(turn, Turn::Idle | Turn::Failed))
        {
            return turn;
        }
        batch.clear();
        if qp.kind.is_datagram() {
            return datagram::run(
                (network, &TurnContext::new(core, qp, slice)),
                qp,
                requester,
                batch,
            );
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
struct How<'a, H: Host> {
    /// The reason for which only outstanding READs continue, if there is one.
    wait: Option<Turn>,
    /// The rules of the QP's protocol, unless that is RoCE.
    rules: Option<&'a dyn Rules<H>>,
}

/// Executes entries of a connected QP.
fn connected<H: Host>(
    network: Network<'_, H>,
    qp: &Arc<Qp<H>>,
    requester: &mut Requester<H>,
    batch: &mut Batch,
    &Allowance { budget, slice }: &Allowance<'_, H>,
    How { wait, rules }: How<'_, H>,
) -> Turn {
    let core = network.core();
    // Taken out of the requester for the turn, because other fields of it change during the turn.
    let found = take_peer(network, requester);
    let there =
        found.as_ref().and_then(|peer| meet(core, qp, requester, peer, rules.is_some(), slice));
    let differences = match &there {
        // Both ends of a TCP connection have the attributes that they have agreed on.
        Some((there, responder)) if rules.is_none() => {
            Differences::between(core, &requester.config, there.turn.core, responder)
        }
        _ => None,
    };
    let met = there.is_some();
    let here = TurnContext::new(core, qp, slice);
    // Messages are reported in the form of RoCE.
    let watcher = network.fabric.watch.of_messages().filter(|_| rules.is_none());
    let watch = watcher.map(|watcher| (network, watcher));
    let examines = rules.is_some() || differences.is_some();
    let mut work =
        Work { here, qp, requester, batch, there, budget, watch, rules, differences, examines };
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
/// held. `by_stream` is true for the ends of a TCP connection, which have its addresses.
#[inline(always)]
fn meet<'a, H: Host>(
    core: &Core<H>,
    qp: &Qp<H>,
    requester: &Requester<H>,
    peer: &'a Peer<H>,
    by_stream: bool,
    slice: &'a Slice<'a, H>,
) -> Option<(There<'a, H>, MutexGuard<'a, Responder>)> {
    let (responder, config) = (peer.qp.responder.lock(), &requester.config);
    let is_peer = peer.qp.kind == qp.peer_kind
        && responder.source_qpn == qp.qpn
        && responder.source_mac == core.mac()
        && (by_stream || responder.route.is_some() && responder.route == config.route)
        // A message of an unreliable connection may begin with any PSN (IBTA volume 1, 9.8.2.2).
        && (qp.kind == Type::Uc || responder.first_psn == config.first_psn);
    is_peer.then(|| (There::new(&peer.core, &peer.qp, slice), responder))
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
    let RequesterConfig { dmac, dest_qpn, .. } = requester.config;
    network.fabric.find(dmac, dest_qpn)
}
