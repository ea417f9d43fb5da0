//! A turn of a QP whose peer is reached by packets: answers to the peer, work requests, packets,
//! completions.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use vrnic_abi::cq::Status;
use vrnic_abi::qp::{State, Type};
use vrnic_faults::Site;
use vrnic_packet::Nanos;
use vrnic_roce::requester::{Outcome, Transmit};
use vrnic_roce::responder::Reply;
use vrnic_roce::wire::{Body, Mtu};

use super::message::timer_of;
use super::requests::{Half, read_nak};
use super::{answers, counts, frames};
use crate::datapath::constants::{LONGEST_PAUSE, MAX_FRAMES, MAX_KEY_WAITS, NO_ROOM_PAUSE};
use crate::datapath::inbound::Remote;
use crate::datapath::peer_context::PeerContext;
use crate::datapath::refusal::Refusal;
use crate::datapath::responder::{self, Source, outcome};
use crate::datapath::send_queue::{Turn, drained};
use crate::datapath::sgl::SgList;
use crate::datapath::transport::ended;
use crate::datapath::transport::peers::Network;
use crate::datapath::transport::taking::{Next, take_all};
use crate::datapath::turn::{Allowance, TurnContext};
use crate::datapath::wqe_fetch::Batch;
use crate::host::{HeldMemory, Host};
use crate::memory::tpt::Denied;
use crate::objects::qp::outstanding::End;
use crate::objects::qp::remote::{Engine, Receiver, Sender, Way};
use crate::objects::qp::{Path, Qp, Requester, Responder};
use crate::slice::{Slice, cost};
use crate::stats::Counter;

/// Whether there are more packets to send.
enum Leaves {
    /// There are no more packets.
    None,
    /// More packets can be sent in the next turn.
    Soon,
    /// More packets can be sent at this time.
    Later(Nanos),
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
pub(super) struct Sending<'a, 't, H: Host> {
    pub(super) network: Network<'a, H>,
    pub(super) here: &'a TurnContext<'t, H>,
    pub(super) qp: &'a Arc<Qp<H>>,
    pub(super) requester: &'a mut Requester<H>,
    pub(super) sender: &'a mut Sender,
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
    for _ in 0..MAX_KEY_WAITS {
        let Path::Packets(mut sender) = std::mem::take(&mut requester.path) else {
            return Turn::Idle;
        };
        batch.clear();
        let here = TurnContext::patient(core, qp, requester.asker(), slice);
        let next = Sending { network, here: &here, qp, requester, sender: &mut sender }.run(batch);
        drop(here);
        network.send_off(qp.qpn, &mut sender.outbox, slice);
        let turn = match next {
            Err(turn) => Some(turn),
            Ok(Next::Readers(index)) => {
                core.wait_for_readers(slice);
                sender.outstanding.end(index.into(), End::Done);
                None
            }
            Ok(Next::More) => Some(Turn::More),
            Ok(next @ (Next::Done | Next::Later(_))) => {
                let at = sender.deadline(|| core.host().now());
                let at = at.into_iter().chain(next.until()).min();
                Some(at.map_or(Turn::Idle, Turn::Wait))
            }
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
    network.fabric.room(network.core().mac(), way.heading())
}

impl<H: Host> Sending<'_, '_, H> {
    /// Takes work requests, sends packets and completes work requests. Returns how the turn
    /// continues.
    ///
    /// # Errors
    /// The result of the turn, if it ends here.
    fn run(&mut self, batch: &mut Batch) -> Result<Next, Turn> {
        if self.qp.dead.load(Ordering::Acquire) {
            return Err(Turn::Idle);
        }
        match self.qp.state() {
            State::Rts | State::Sqd => {}
            State::Err | State::Sqe => return Err(Turn::Failed),
            _ => return Err(Turn::Idle),
        }
        let now = self.here.now();
        let room = room(self.network, &self.sender.way);
        if self.sender.late.is_some() {
            answers::go_on(self.here, self.qp, self.sender);
        }
        // Without room, the packets may still be on their way to the peer, or cannot be repeated.
        // While an answer waits, none is missing.
        if room > 0
            && self.sender.late.is_none()
            && self.sender.engine.deadline().is_some_and(|at| at <= now)
        {
            self.sender.engine.expire(now);
        }
        self.complete()?;
        let next = take_all(self, self.here, batch).ok_or(Turn::Failed)?;
        if matches!(next, Next::Readers(_)) {
            return Ok(next);
        }
        let leaves = self.transmit(now, room);
        let Sender { engine, counted, .. } = &mut *self.sender;
        counts::of_requester(self.here, counted, engine.counters());
        self.complete()?;
        if self.qp.state() == State::Sqd
            && self.sender.outstanding.is_empty()
            && self.requester.current.is_none()
        {
            return Err(drained(self.here.core, self.qp, self.requester));
        }
        // A work request that waited for all before it may continue now.
        let freed = self.requester.current.is_some()
            && self.requester.not_before.is_none()
            && self.sender.outstanding.is_empty()
            && !self.qp.held.load(Ordering::Relaxed);
        match leaves {
            Leaves::Later(at) => Err(Turn::Wait(next.until().map_or(at, |until| at.min(until)))),
            Leaves::Soon => Ok(Next::More),
            Leaves::None if freed => Ok(Next::More),
            Leaves::None => Ok(next),
        }
    }

    /// Builds as many frames as may be sent now. Returns whether and when more may be sent.
    fn transmit(&mut self, now: Nanos, room: usize) -> Leaves {
        for nth in 0..MAX_FRAMES {
            if nth >= room {
                return Leaves::Later(now.plus(NO_ROOM_PAUSE));
            }
            // A packet of an unreliable connection cannot be taken back.
            if self.qp.kind == Type::Uc && self.here.memory.may_wait() && self.hold(now) {
                return Leaves::None;
            }
            let Some(transmit) = self.sender.engine.next(now) else { return Leaves::None };
            match self.frame(&transmit) {
                Ok(()) => {}
                Err(Denied::Absent) => self.wait_for_pages(&transmit),
                Err(why) => {
                    self.sender.engine.not_sent(&transmit);
                    self.sender.outstanding.end(transmit.id, End::Failed(why.into()));
                    self.sender.engine.refuse(transmit.id);
                }
            }
            if self.here.slice.is_over() {
                break;
            }
        }
        Leaves::Soon
    }

    /// Sends nothing for some time if the bytes of the next packet are on their way. Returns true
    /// if it does so.
    #[cold]
    fn hold(&mut self, now: Nanos) -> bool {
        let Some((id, range)) = self.sender.engine.upcoming_bytes(now) else { return false };
        match self.look_ahead(id, u64::from(range.start)..u64::from(range.end)) {
            Ok(()) => false,
            Err(Denied::Absent) => {
                let until = self.later();
                self.sender.engine.hold_until(until);
                true
            }
            Err(_) => {
                self.sender.engine.refuse(id);
                false
            }
        }
    }

    /// Looks for the bytes `range` of a work request's message, if the host has to move them first.
    ///
    /// # Errors
    /// The reason for which they are not there.
    fn look_ahead(&self, id: u64, range: Range<u64>) -> Result<(), Denied> {
        let Self { here, qp, sender, .. } = self;
        let Some((posted, raw)) = sender.outstanding.find(id) else { return Ok(()) };
        let mut bytes = [0; Mtu::MAX.bytes() as usize];
        let len = usize::try_from(range.end.saturating_sub(range.start));
        let Some(bytes) = len.ok().and_then(|len| bytes.get_mut(..len)) else { return Ok(()) };
        let mut side = SgList::default();
        side.add_source(here, qp.user(), &posted.send, raw)?;
        if side.is_immediate::<H>(&here.memory, range.clone()) {
            return Ok(());
        }
        here.memory.of_message(id);
        side.read_part::<H>(&here.memory, range.start, bytes).map_err(|_| side.fault(here, range))
    }

    /// Returns the time at which memory that is absent now is tried again.
    fn later(&mut self) -> Nanos {
        let host = self.here.host();
        match host.moves_for() {
            Duration::ZERO => self.requester.pages_until(host.now()),
            wait => host.now().plus(wait.min(LONGEST_PAUSE)),
        }
    }

    /// Sends a packet later whose memory has absent pages, or loses it if its connection is
    /// unreliable.
    #[cold]
    fn wait_for_pages(&mut self, transmit: &Transmit) {
        let until = self.later();
        self.sender.engine.not_sent(transmit);
        if !self.sender.engine.stall(transmit.head.psn, until) {
            self.here.step(Counter::TxRoceDiscards);
        }
    }

    /// Builds the frame of a packet.
    fn frame(&mut self, transmit: &Transmit) -> Result<(), Denied> {
        let Self { here, qp, sender, .. } = self;
        let length = transmit.range.end.saturating_sub(transmit.range.start) as usize;
        if is_too_long(here, length) {
            return Ok(());
        }
        let mut outbox = std::mem::take(&mut sender.outbox);
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
            side.add_source(here, qp.user(), &posted.send, raw)?;
            let at = u64::from(transmit.range.start);
            here.memory.of_message(transmit.id);
            side.announce::<H>(&here.memory, at..posted.send.length, payload.len() as u64);
            side.read::<H>(&here.memory, at, payload)
                .map_err(|_| side.fault(here, at..transmit.range.end.into()))?;
            if let Some(carried) = posted.command {
                carried.insert(payload, at);
            }
            Ok(())
        });
        sender.outbox = outbox;
        if here.core.injection.looks_at(Site::Packet) {
            // CAST: the name of a work request is its index, of 32 bits.
            let index = transmit.id as u32;
            here.core.injection.trace_packet(here.faults_here(), qp.qpn, index, transmit.head.psn);
        }
        here.slice.charge(cost::PACKET);
        here.slice.charge_copy(length as u64);
        here.moved(length as u64);
        here.step(Counter::TxPkts);
        here.add(Counter::TxBytes, length as u64);
        built
    }

    /// Completes work requests that have ended, in order.
    ///
    /// # Errors
    /// The result of the turn, if one of them has failed.
    fn complete(&mut self) -> Result<(), Turn> {
        while let Some(done) = self.sender.engine.next_completion() {
            self.sender.outstanding.end(done.id, end_of(done.outcome));
        }
        match ended::complete(self.here, self.qp, &mut self.sender.outstanding) {
            Some(turn) => Err(turn),
            None => Ok(()),
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
    let mut due = None;
    if receiver.window.is_some() {
        due = Half { core: network.core(), qp, responder, slice }.go_on(&mut receiver);
        if std::mem::take(&mut responder.event_due) {
            slice.charge(cost::EVENT);
            qp.recv_cq.fire(&network.core().caller(slice.lane()));
        }
    }
    let left = answers(network, qp, responder, &mut receiver, slice);
    network.send_off(qp.qpn, &mut receiver.outbox, slice);
    responder.packets = Some(receiver);
    match (due, left) {
        (Some(due), Leaves::None) => Leaves::Later(due),
        (Some(due), Leaves::Later(at)) => Leaves::Later(due.min(at)),
        (_, left) => left,
    }
}

/// Returns the number of frames with answers that may leave. Acknowledgements are short, and are
/// sent unless their class is paused, so that the peer can continue.
fn room_for_answers<H: Host>(network: Network<'_, H>, way: &Way, is_reading: bool) -> usize {
    if is_reading {
        return room(network, way);
    }
    let is_paused = network.fabric.pauses(network.core().mac(), || way.heading().service);
    if is_paused { 0 } else { MAX_FRAMES }
}

fn answers<H: Host>(
    network: Network<'_, H>,
    qp: &Arc<Qp<H>>,
    responder: &mut Responder,
    receiver: &mut Receiver,
    slice: &Slice<'_, H>,
) -> Leaves {
    let Receiver { engine: Engine::Reliable(engine), way, outbox, counted, .. } = receiver else {
        return Leaves::None;
    };
    // A NAK with which the connection has failed is sent after the answers before it.
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
    let there = PeerContext::patient(network.core(), qp, responder.asker(), slice);
    let room = room_for_answers(network, way, engine.is_reading());
    for _ in 0..MAX_FRAMES.min(room) {
        let Some(reply) = engine.next_reply() else { break };
        let length = reply.read.map_or(0, |read| read.length as usize);
        if is_too_long(&there.turn, length) {
            continue;
        }
        let (head, body) = (&reply.head, &reply.body);
        let parts = frames::Parts { path: &way.path, head, body, length };
        let built = frames::add(outbox, &parts, |payload| read(&there, responder, &reply, payload));
        if built == Err(Refusal::Absent) {
            engine.postpone(&reply, timer_of(network.core().host().moves_for()));
            continue;
        }
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
    } else if room == 0 {
        Leaves::Later(there.turn.now().plus(NO_ROOM_PAUSE))
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
    there: &PeerContext<'_, H>,
    responder: &Responder,
    reply: &Reply,
    payload: &mut [u8],
) -> Result<(), Refusal> {
    let Some(read) = reply.read.filter(|read| read.length > 0) else { return Ok(()) };
    let source = Source {
        remote: Remote { addr: read.addr, key: read.key.0.into() },
        at: 0,
        left: read.left.into(),
        message: responder.message(read.number),
        last: matches!(reply.body, Body::Response(response) if response.is_last()),
    };
    responder::read_on(there, responder, &source, payload)
}
