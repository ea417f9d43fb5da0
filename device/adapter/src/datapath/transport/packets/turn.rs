//! A turn of a QP whose peer is reached by packets: answers to the peer, work requests, packets,
//! completions.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vrnic_abi::Qpn;
use vrnic_abi::cq::Status;
use vrnic_abi::qp::State;
use vrnic_packet::Nanos;
use vrnic_roce::requester::{Outcome, Transmit};
use vrnic_roce::responder::Reply;
use vrnic_roce::wire::Body;

use super::requests::read_nak;
use super::{counts, frames};
use crate::datapath::inbound::Remote;
use crate::datapath::refusal::Refusal;
use crate::datapath::responder::{self, Source, outcome};
use crate::datapath::send_queue::{Turn, drained};
use crate::datapath::sgl::SgList;
use crate::datapath::there::There;
use crate::datapath::transport::ended;
use crate::datapath::transport::peers::Network;
use crate::datapath::turn::{Allowance, TurnContext};
use crate::datapath::wqe_fetch::Batch;
use crate::ethernet::Frame;
use crate::host::Host;
use crate::memory::tpt::Denied;
use crate::objects::qp::outstanding::{CarriedKey, End};
use crate::objects::qp::remote::{Engine, Receiver, Sender, Way};
use crate::objects::qp::{Path, Qp, Requester, Responder};
use crate::slice::{Slice, cost};
use crate::stats::Counter;

/// Maximum number of frames that a QP sends in one turn: answers and requests each.
const FRAMES: usize = 64;
/// Time in nanoseconds before a QP tries again when the network has no room for its packets.
const PAUSE_NS: u64 = 10_000;
/// Maximum number of times in a turn for which a QP waits until an invalidated key is no longer
/// used.
const WAITS: u32 = 16;

/// How a turn continues.
pub(super) enum Next {
    /// Packets can be sent. `more` work requests may be posted.
    GoOn { more: bool },
    /// The work request with this index waits until a key is no longer used.
    Readers(u32),
    /// The turn ends.
    End(Turn),
}

/// Whether there are more packets to send.
enum Leaves {
    /// There are none.
    None,
    /// They can be sent in the next turn.
    Soon,
    /// They can be sent at this time.
    Later(u64),
}

impl Leaves {
    /// Returns a turn that sends these packets too if the QP otherwise continues with `turn`.
    fn go_on(&self, turn: Turn) -> Turn {
        match (self, turn) {
            (Self::Soon, Turn::Idle | Turn::Wait(_)) => Turn::More,
            (Self::Later(at), Turn::Idle) => Turn::Wait(*at),
            (Self::Later(at), Turn::Wait(other)) => Turn::Wait(other.min(*at)),
            (_, turn) => turn,
        }
    }
}

/// The sending half of a QP in its turn.
pub(super) struct Sending<'a, H: Host> {
    pub(super) network: Network<'a, H>,
    pub(super) here: TurnContext<'a, H>,
    pub(super) qp: &'a Arc<Qp<H>>,
    pub(super) requester: &'a mut Requester<H>,
    pub(super) sender: &'a mut Sender,
    pub(super) batch: &'a mut Batch,
}

/// Sends answers, requests and completions of a QP, up to the limits of `allowance`.
pub(crate) fn run<H: Host>(
    network: Network<'_, H>,
    qp: &Arc<Qp<H>>,
    requester: &mut Requester<H>,
    batch: &mut Batch,
    allowance: &Allowance<'_, H>,
) -> Turn {
    let (core, slice) = (network.core(), allowance.slice);
    let answers = answer(network, qp, slice);
    for _ in 0..WAITS {
        let Path::Packets(mut sender) = std::mem::take(&mut requester.path) else {
            return Turn::Idle;
        };
        batch.clear();
        let here = TurnContext::new(core, qp, slice);
        let mut sending = Sending { network, here, qp, requester, sender: &mut sender, batch };
        let next = sending.run();
        drop(sending);
        send_off(network, qp.qpn, &mut sender.outbox);
        let turn = match next {
            Next::Readers(index) => {
                core.wait_for_readers(slice);
                sender.outstanding.end(index.into(), End::Done);
                None
            }
            Next::GoOn { more: true } => Some(Turn::More),
            Next::GoOn { more: false } => {
                let at = sender.deadline(|| core.host().now());
                Some(at.map_or(Turn::Idle, Turn::Wait))
            }
            Next::End(turn) => Some(turn),
        };
        requester.path = Path::Packets(sender);
        match turn {
            Some(turn) => return answers.go_on(turn),
            None if slice.is_over() => break,
            None => {}
        }
    }
    Turn::More
}

/// Returns approximately how many frames can be sent to a destination before some are dropped.
fn room<H: Host>(network: Network<'_, H>, way: &Way) -> usize {
    network.fabric.room(network.core().mac(), way.path.ethernet.destination)
}

/// Sends frames. If the port is down, they are lost, as with an unplugged cable.
fn send_off<H: Host>(network: Network<'_, H>, from: Qpn, outbox: &mut Vec<Frame>) {
    if outbox.is_empty() {
        return;
    }
    if network.core().carries() {
        network.transmit(from, outbox);
    }
    outbox.clear();
}

impl<H: Host> Sending<'_, H> {
    fn run(&mut self) -> Next {
        if self.qp.dead.load(Ordering::Acquire) {
            return Next::End(Turn::Idle);
        }
        match self.qp.state() {
            State::Rts | State::Sqd => {}
            State::Err | State::Sqe => return Next::End(Turn::Failed),
            _ => return Next::End(Turn::Idle),
        }
        let now = Nanos(self.here.now());
        let room = room(self.network, &self.sender.way);
        // Without room, the packets may still be on their way to the peer, or cannot be repeated.
        if room > 0 && self.sender.engine.deadline().is_some_and(|at| at <= now) {
            self.sender.engine.expire(now);
        }
        if let Some(turn) = self.complete() {
            return Next::End(turn);
        }
        let more = match self.take() {
            Next::GoOn { more } => more,
            Next::Readers(index) => return Next::Readers(index),
            Next::End(turn) => return Next::End(turn),
        };
        let leaves = self.transmit(now, room);
        let Sender { engine, counted, .. } = &mut *self.sender;
        counts::of_requester(&self.here, counted, engine.counters());
        if let Some(turn) = self.complete() {
            return Next::End(turn);
        }
        if self.qp.state() == State::Sqd
            && self.sender.outstanding.is_empty()
            && self.requester.current.is_none()
        {
            return Next::End(drained(self.here.core, self.qp, self.requester));
        }
        // A work request that waited for all before it may continue now.
        let freed = self.requester.current.is_some()
            && self.sender.outstanding.is_empty()
            && !self.qp.held.load(Ordering::Relaxed);
        match leaves {
            Leaves::Later(at) => Next::End(Turn::Wait(at)),
            Leaves::Soon => Next::GoOn { more: true },
            Leaves::None => Next::GoOn { more: more || freed },
        }
    }

    /// Builds as many frames as may be sent now. Returns whether and when more may be sent.
    fn transmit(&mut self, now: Nanos, room: usize) -> Leaves {
        for nth in 0..FRAMES {
            if nth >= room {
                return Leaves::Later(now.0.saturating_add(PAUSE_NS));
            }
            let Some(transmit) = self.sender.engine.next(now) else { return Leaves::None };
            if self.frame(&transmit).is_err() {
                self.sender.engine.refuse(transmit.id);
            }
            if self.here.slice.is_over() {
                break;
            }
        }
        Leaves::Soon
    }

    /// Builds the frame of a packet.
    fn frame(&mut self, transmit: &Transmit) -> Result<(), Denied> {
        let Self { here, qp, sender, .. } = self;
        let mut outbox = std::mem::take(&mut sender.outbox);
        let length = transmit.range.end.saturating_sub(transmit.range.start) as usize;
        if is_too_long(here, length) {
            return Ok(());
        }
        let parts = frames::Parts {
            path: &sender.way.path,
            head: &transmit.head,
            body: &transmit.body,
            length,
        };
        let built = frames::add(&mut outbox, &parts, |payload| {
            if payload.is_empty() {
                return Ok(());
            }
            let (posted, raw) = sender.outstanding.find(transmit.id).ok_or(Denied::Memory)?;
            let mut side = SgList::default();
            side.add_source((here, qp.pdn), &posted.send, raw)?;
            let at = u64::from(transmit.range.start);
            side.read::<H>(&here.memory, at, payload).map_err(|_| Denied::Memory)?;
            if let Some(CarriedKey { key, place }) = posted.command {
                insert_key(payload, at, place, key.get().to_be_bytes());
            }
            Ok(())
        });
        sender.outbox = outbox;
        here.slice.charge(cost::PACKET);
        here.slice.charge_copy(length as u64);
        here.moved(length as u64);
        here.step(Counter::TxPkts);
        here.add(Counter::TxBytes, length as u64);
        built
    }

    /// Completes work requests that have ended, in order. Returns the result of the turn if one of
    /// them has failed.
    fn complete(&mut self) -> Option<Turn> {
        while let Some(done) = self.sender.engine.next_completion() {
            self.sender.outstanding.end(done.id, end_of(done.outcome));
        }
        ended::complete(&self.here, self.qp, &mut self.sender.outstanding)
    }
}

/// Writes the part of a command's key that is inside of the bytes of a message from `at` on.
#[cold]
fn insert_key(payload: &mut [u8], at: u64, place: u64, key: [u8; 4]) {
    for (nth, byte) in (0..).zip(key) {
        let offset = (place + nth).checked_sub(at).and_then(|at| usize::try_from(at).ok());
        if let Some(to) = offset.and_then(|offset| payload.get_mut(offset)) {
            *to = byte;
        }
    }
}

fn end_of(outcome: Outcome) -> End {
    let status = match outcome {
        Outcome::Success => return End::Done,
        Outcome::Local => return End::Failed(Denied::Memory.into()),
        Outcome::Flushed => Status::WrFlushErr,
        Outcome::LocalLength => Status::LocLenErr,
        Outcome::BadResponse => Status::BadRespErr,
        Outcome::RemoteInvalidRequest => Status::RemInvReqErr,
        Outcome::RemoteAccess => Status::RemAccessErr,
        Outcome::RemoteOperational => Status::RemOpErr,
        Outcome::RetryExceeded => Status::RetryExcErr,
        Outcome::RnrRetryExceeded => Status::RnrRetryExcErr,
    };
    End::Failed(status.into())
}

/// Sends some of the answers that are due to the peer. Returns whether and when more can be sent.
fn answer<H: Host>(network: Network<'_, H>, qp: &Arc<Qp<H>>, slice: &Slice<'_, H>) -> Leaves {
    let mut guard = qp.responder.lock();
    let responder = &mut *guard;
    let Some(mut receiver) = responder.packets.take() else { return Leaves::None };
    let left = answers(network, qp, (responder, &mut receiver), slice);
    send_off(network, qp.qpn, &mut receiver.outbox);
    responder.packets = Some(receiver);
    left
}

fn answers<H: Host>(
    network: Network<'_, H>,
    qp: &Arc<Qp<H>>,
    (responder, receiver): (&mut Responder, &mut Receiver),
    slice: &Slice<'_, H>,
) -> Leaves {
    let Receiver { engine: Engine::Reliable(engine), way, outbox, counted, .. } = receiver else {
        return Leaves::None;
    };
    // A NAK with which the connection has failed is sent behind the answers before it.
    if qp.state() == State::Err && !engine.has_failed() {
        if qp.has_given_up() {
            engine.give_up();
        } else {
            engine.stop_answers();
        }
    }
    if !engine.has_reply() {
        return Leaves::None;
    }
    let there = There::new(network.core(), qp, slice);
    // Acknowledgements are short and always sent, so that the peer can continue.
    let room = if engine.is_reading() { room(network, way) } else { FRAMES };
    for _ in 0..FRAMES.min(room) {
        let Some(reply) = engine.next_reply() else { break };
        let length = reply.read.map_or(0, |read| read.length as usize);
        if is_too_long(&there.turn, length) {
            continue;
        }
        let (head, body) = (&reply.head, &reply.body);
        let parts = frames::Parts { path: &way.path, head, body, length };
        let built = frames::add(outbox, &parts, |payload| read(&there, responder, &reply, payload));
        if let Err(refusal) = built {
            engine.fail_reply(&reply, read_nak(refusal));
            outcome::fail(&there, responder, refusal);
            continue;
        }
        slice.charge(cost::PACKET);
        slice.charge_copy(length as u64);
        there.turn.moved(length as u64);
        there.turn.step(Counter::TxPkts);
        there.turn.add(Counter::TxBytes, length as u64);
        if slice.is_over() {
            break;
        }
    }
    counts::of_responder(&there.turn, counted, engine.counters());
    if !engine.has_reply() {
        Leaves::None
    } else if room == 0 && engine.is_reading() {
        Leaves::Later(there.turn.now().saturating_add(PAUSE_NS))
    } else {
        Leaves::Soon
    }
}

/// Returns whether the port, whose MTU may have been lowered since the QP was connected, does not
/// carry a packet with a payload of this length. Counts the packet if it is lost.
#[inline]
fn is_too_long<H: Host>(turn: &TurnContext<'_, H>, length: usize) -> bool {
    let lost = length as u64 > turn.core.mtu_bytes();
    if lost {
        turn.step(Counter::TxRoceDiscards);
    }
    lost
}

/// Copies the bytes of a packet that answers a READ.
fn read<H: Host>(
    there: &There<'_, H>,
    responder: &Responder,
    reply: &Reply,
    payload: &mut [u8],
) -> Result<(), Refusal> {
    let Some(read) = reply.read.filter(|read| read.length > 0) else { return Ok(()) };
    let source = Source {
        remote: Remote { addr: read.addr, key: read.key.0.into() },
        at: 0,
        message: responder.message(read.number),
        last: matches!(reply.body, Body::Response(response) if response.is_last()),
    };
    responder::read_on(there, responder, &source, payload)
}
