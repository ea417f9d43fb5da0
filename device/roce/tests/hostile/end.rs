//! One end of a connection without memory, with conditions that always hold.

use std::collections::{BTreeMap, VecDeque};

use vrnic_packet::Nanos;
use vrnic_roce::Discard;
use vrnic_roce::psn::Psn;
use vrnic_roce::requester::{
    self, Effect, Outcome, Recovery, Remote, Requester, Work, WorkRequest,
};
use vrnic_roce::responder::unreliable::UnreliableResponder;
use vrnic_roce::responder::{self, Arrival, Arriving, Reply, Responder, Slot, Step, Verdict};
use vrnic_roce::time::AckTimeout;
use vrnic_roce::wire::headers::{Feth, Reth};
use vrnic_roce::wire::numbers::Srqn;
use vrnic_roce::wire::opcode::Transport;
use vrnic_roce::wire::syndrome::RnrTimer;
use vrnic_roce::wire::{Mtu, Nak, Packet, Qpn, Rkey, SendEnd};

use crate::choices::{Choices, Shape};

/// Path MTU.
const MTU: Mtu = Mtu::M256;
/// Number of READs and atomics that may be outstanding.
const READS: u8 = 4;
/// Number of accepted READs that are remembered. An answer may read their memory.
const REMEMBERED: usize = 64;
/// Bytes of payload. Each packet contains the first of them.
const PAYLOAD: [u8; 1024] = [7; 1024];

/// Attributes of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) transport: Transport,
    pub(crate) hold: u32,
    pub(crate) recovery: Recovery,
    pub(crate) congestion_control: bool,
}

/// Counts of events by name.
pub(crate) type Events = BTreeMap<&'static str, u64>;

/// The receiving half.
#[derive(Debug)]
enum Receiving {
    Reliable(Box<Responder>),
    Unreliable(Box<UnreliableResponder>),
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) requester: Requester,
    receiving: Receiving,
    held: Vec<(Slot, Shape)>,
    /// All work requests. The identifier of each is its index.
    posted: Vec<WorkRequest>,
    completed: usize,
    /// True if a work request has failed.
    ended: bool,
    /// True if the caller has refused a work request.
    refused: bool,
    /// Memory that the peer may read, the latest READ last.
    reads: VecDeque<Reth>,
    /// The number of the latest message.
    number: u64,
}

impl End {
    pub(crate) fn new(options: Options, psns: [Psn; 2]) -> Self {
        let (transport, destination) = (options.transport, Qpn::new(0x11));
        let requester = Requester::new(requester::Config {
            transport,
            destination,
            mtu: MTU,
            first_psn: psns[0],
            timeout: AckTimeout::new(8),
            retry_count: 2,
            rnr_retry: 2,
            max_rd_atomic: READS,
            window: 16,
            recovery: options.recovery,
            congestion_control: options.congestion_control,
            capacity: 32,
        });
        let receiving = if transport.is_reliable() {
            Receiving::Reliable(Box::new(Responder::new(responder::Config {
                transport,
                destination,
                mtu: MTU,
                first_psn: psns[1],
                min_rnr_timer: RnrTimer::new(2),
                max_dest_rd_atomic: READS,
                hold: options.hold,
            })))
        } else {
            Receiving::Unreliable(Box::new(UnreliableResponder::new(MTU, psns[1])))
        };
        Self {
            requester,
            receiving,
            held: Vec::new(),
            posted: Vec::new(),
            completed: 0,
            ended: false,
            refused: false,
            reads: VecDeque::new(),
            number: 0,
        }
    }

    /// Returns a number that the peer expects or sends.
    pub(crate) fn psn(&self, of_answers: bool) -> Psn {
        match &self.receiving {
            Receiving::Reliable(responder) if !of_answers => responder.expected(),
            _ => self.requester.psn().minus(4),
        }
    }

    /// Posts a work request if there is room.
    pub(crate) fn post(&mut self, choices: &mut Choices<'_>) {
        let remote = Remote { addr: 4096, key: Rkey(9) };
        let (work, length) = match choices.below(8) {
            0..=1 => (Work::Send(SendEnd::Plain), u32::from(choices.byte()) * 8),
            2..=3 => (Work::Write(remote, None), u32::from(choices.byte()) * 8),
            4..=6 => (Work::Read(remote), u32::from(choices.byte()) * 8),
            _ => match choices.below(3) {
                0 => (Work::FetchAdd { word: remote, add: 1 }, 8),
                1 => (Work::AtomicWrite(remote), 8),
                _ => (Work::Flush(Feth(Feth::GLOBAL), remote), u32::from(choices.byte()) * 8),
            },
        };
        let (signaled, fence) = (choices.once_in(2), choices.once_in(8));
        let (id, srqn) = (self.posted.len() as u64, Srqn::new(0));
        let request = WorkRequest { id, work, length, solicited: true, signaled, fence, srqn };
        if self.requester.push(request).is_ok() {
            self.posted.push(request);
        }
    }

    /// Refuses a work request that has not completed.
    pub(crate) fn refuse(&mut self, choices: &mut Choices<'_>) {
        let id = self.completed + usize::from(choices.below(4));
        self.requester.refuse(id as u64);
        self.refused = true;
    }

    /// Returns the next packet to send.
    pub(crate) fn next(&mut self, now: Nanos) -> Option<Shape> {
        self.complete();
        let Some(transmit) = self.requester.next(now) else {
            let outstanding = !self.requester.is_quiet() && !self.requester.has_failed();
            let waits = self.requester.deadline().is_some() || self.refused;
            assert!(!outstanding || waits, "it waits for ever: {self:?}");
            return None;
        };
        let request = &self.posted[transmit.id as usize];
        let length = transmit.range.len();
        assert!(transmit.id as usize >= self.completed, "{transmit:?}");
        assert!(transmit.range.end <= request.length.max(transmit.range.start), "{transmit:?}");
        assert!(length <= MTU.bytes() as usize && transmit.body.allows(length), "{transmit:?}");
        Some(Shape { head: transmit.head, body: transmit.body, length })
    }

    /// Takes an answer.
    pub(crate) fn answer(&mut self, now: Nanos, shape: &Shape, choices: &mut Choices<'_>) {
        let (completed, posted) = (self.completed, &self.posted);
        let known = |id: u64| posted.get(id as usize).filter(|_| id as usize >= completed);
        let id = match self.requester.receive(now, &packet(shape)) {
            Ok(Effect::Place { id, offset, bytes }) => {
                let request = known(id).expect("it has not completed");
                let end = offset.checked_add(bytes.len() as u32);
                assert!(request.work.is_read() && end.is_some_and(|end| end <= request.length));
                id
            }
            Ok(Effect::Old { id, .. }) => {
                let request = known(id).expect("it has not completed");
                assert!(request.work.is_atomic());
                id
            }
            Ok(Effect::Nothing) | Err(_) => return,
        };
        if choices.byte() == 1 {
            self.requester.refuse(id);
            self.refused = true;
        }
    }

    /// Takes completions. Checks that they are in order, and that all after a failure are flushed.
    pub(crate) fn complete(&mut self) {
        while let Some(completion) = self.requester.next_completion() {
            assert_eq!(completion.id, self.completed as u64);
            self.completed += 1;
            match completion.outcome {
                Outcome::Success => assert!(!self.ended, "success behind a failure"),
                outcome => {
                    assert!(!self.ended || outcome == Outcome::Flushed, "{outcome:?}");
                    self.ended = true;
                }
            }
        }
        assert!(self.completed <= self.posted.len());
    }

    /// Returns whether all work requests have completed.
    pub(crate) const fn is_done(&self) -> bool {
        self.completed == self.posted.len()
    }

    /// Receives a request, and the requests that were held after it.
    pub(crate) fn request(&mut self, shape: &Shape, choices: &mut Choices<'_>) {
        let mut next = Some(*shape);
        while let Some(shape) = next {
            match &mut self.receiving {
                Receiving::Unreliable(responder) => {
                    if let Ok(arrival) = responder.receive(&packet(&shape)) {
                        responder.end(verdict(&arrival, choices));
                        self.accept(&arrival, &shape, false);
                    }
                }
                Receiving::Reliable(_) => self.reliable(&shape, choices),
            }
            next = self.next_held();
        }
    }

    fn next_held(&mut self) -> Option<Shape> {
        let Receiving::Reliable(responder) = &mut self.receiving else { return None };
        let expected = responder.expected();
        let slot = responder.next_held()?;
        let at = self.held.iter().position(|(of, _)| *of == slot).expect("a packet that was kept");
        let (_, shape) = self.held.swap_remove(at);
        assert_eq!(shape.head.psn, expected);
        Some(shape)
    }

    fn reliable(&mut self, shape: &Shape, choices: &mut Choices<'_>) {
        let Receiving::Reliable(responder) = &mut self.receiving else { return };
        let (psn, expected, failed) =
            (shape.head.psn, responder.expected(), responder.has_failed());
        let step = responder.receive(&packet(shape));
        assert!(!failed || step.is_err(), "it has failed");
        match step {
            Ok(Step::Execute(arrival)) => {
                assert_eq!(psn, expected);
                let verdict = verdict(&arrival, choices);
                let nak = responder.end(verdict);
                let moved = expected.is_before(responder.expected());
                let atomic =
                    matches!(arrival.work, Arriving::CompareSwap(_) | Arriving::FetchAdd(_));
                let good = if atomic { Verdict::Old(5) } else { Verdict::Executed };
                assert_eq!(
                    (moved, nak.is_some()),
                    match verdict {
                        Verdict::NotReady | Verdict::Absent(_) => (false, false),
                        verdict => (verdict == good, verdict != good),
                    }
                );
                self.accept(&arrival, shape, moved);
            }
            Ok(Step::Keep(slot)) => {
                self.held.retain(|(of, _)| *of != slot);
                self.held.push((slot, *shape));
            }
            Ok(Step::Duplicate) => assert!(psn.is_before(expected)),
            Ok(Step::Refused(_)) => assert!(responder.has_failed() && psn == expected),
            Err(_) => assert_eq!(responder.expected(), expected),
        }
    }

    /// Checks an arrival.
    fn accept(&mut self, arrival: &Arrival, shape: &Shape, executed: bool) {
        assert_eq!(arrival.bytes as usize, shape.length);
        assert!(arrival.bytes <= MTU.bytes());
        let end = arrival.at.checked_add(arrival.bytes).expect("a length");
        assert!(arrival.number >= self.number, "numbers of messages do not go back");
        match arrival.work {
            Arriving::Write(reth, last) => {
                assert!(end <= reth.length && (last.is_none() || end == reth.length));
            }
            Arriving::Read(reth) if executed => {
                if self.reads.len() == REMEMBERED {
                    self.reads.pop_front();
                }
                self.reads.push_back(reth);
            }
            _ => assert!(end <= 1 << 31),
        }
        if executed {
            self.number = arrival.number;
        }
    }

    /// Returns the next answer. Checks that the memory that it reads is a part of an accepted
    /// READ's.
    pub(crate) fn reply(&mut self, choices: &mut Choices<'_>) -> Option<Shape> {
        let Receiving::Reliable(responder) = &mut self.receiving else { return None };
        let has = responder.has_reply();
        let reply = responder.next_reply();
        assert_eq!(has, reply.is_some());
        let reply = reply?;
        let Some(segment) = reply.read else { return Some(answer(&reply, 0)) };
        let within = |reth: &Reth| {
            let before = segment.addr.checked_sub(reth.addr);
            let end = before.map(|before| before + u64::from(segment.length));
            end.is_some_and(|end| end <= u64::from(reth.length))
        };
        assert!(segment.length <= MTU.bytes() && self.reads.iter().any(within), "{segment:?}");
        if choices.byte() == 1 {
            responder.fail_reply(&reply, Nak::RemoteOperational);
            assert!(responder.has_failed());
            return self.reply(choices);
        }
        Some(answer(&reply, segment.length as usize))
    }
}

impl End {
    /// Adds the counters of both halves.
    pub(crate) fn note(&self, events: &mut Events) {
        let sender = self.requester.counters();
        let mut discards = vec![&sender.discards];
        let mut add = |name, count: u64| *events.entry(name).or_default() += count;
        add("resent", sender.resent);
        add("timeouts", sender.timeouts);
        add("sequence NAKs", sender.sequence_naks);
        add("implied NAKs", sender.implied_naks);
        add("receivers not ready", sender.not_ready);
        add("probes", sender.probes);
        add("notifications", sender.notified);
        add("completed", self.completed as u64);
        match &self.receiving {
            Receiving::Unreliable(responder) => discards.push(responder.discards()),
            Receiving::Reliable(responder) => {
                let receiver = responder.counters();
                discards.push(&receiver.discards);
                add("executed", receiver.executed);
                add("duplicates", receiver.duplicates);
                add("held", receiver.held);
                add("refusals", receiver.refusals);
            }
        }
        for (name, reason) in DISCARDS {
            add(name, discards.iter().map(|discards| discards.of(reason)).sum());
        }
    }
}

/// Reasons that packets can have after the parsers have accepted them.
const DISCARDS: [(&str, Discard); 13] = [
    ("transport", Discard::Transport),
    ("opcode", Discard::Opcode),
    ("state", Discard::State),
    ("early", Discard::Early),
    ("behind one that was not ready", Discard::BehindNotReady),
    ("unknown duplicate", Discard::UnknownDuplicate),
    ("stale answer", Discard::StaleAnswer),
    ("unsent answer", Discard::UnsentAnswer),
    ("answer gap", Discard::AnswerGap),
    ("answer in wait", Discard::AnswerInWait),
    ("broken message", Discard::BrokenMessage),
    ("refused", Discard::Refused),
    ("busy", Discard::Busy),
];

fn answer(reply: &Reply, length: usize) -> Shape {
    Shape { head: reply.head, body: reply.body, length }
}

/// Returns the packet of a shape.
fn packet(shape: &Shape) -> Packet<'static> {
    Packet { head: shape.head, body: shape.body, payload: &PAYLOAD[..shape.length] }
}

/// Returns the result of a request, which is usually a success.
fn verdict(arrival: &Arrival, choices: &mut Choices<'_>) -> Verdict {
    match choices.byte() {
        1..=7 => Verdict::NotReady,
        8 => Verdict::Absent(RnrTimer::new(choices.byte())),
        9 => Verdict::Invalid,
        10 => Verdict::Access,
        11 => Verdict::Operational,
        12 => Verdict::Executed,
        _ => match arrival.work {
            Arriving::CompareSwap(_) | Arriving::FetchAdd(_) => Verdict::Old(5),
            _ => Verdict::Executed,
        },
    }
}
