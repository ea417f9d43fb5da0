//! Tests of duplicates that arrive many packets after the last READ or atomic, up to a whole circle
//! of sequence numbers.
//!
//! Shows: roce

use proptest::prelude::*;

use super::{Config, Reply, Responder, Step, Verdict};
use crate::discard::Discard;
use crate::psn::{MAX_OUTSTANDING, Psn};
use crate::wire::headers::{AtomicEth, Reth};
use crate::wire::opcode::Transport;
use crate::wire::syndrome::RnrTimer;
use crate::wire::{
    Aeth, Body, Head, Mtu, Nak, Packet, Part, Qpn, Request, Response, Rkey, SendEnd, Syndrome,
};

const MTU: Mtu = Mtu::M256;
const CAPACITY: usize = 3;
/// Number of packets after which the sequence numbers repeat.
const LAP: u64 = 1 << 24;

const SEND: Request = Request::Send(Part::Only((), SendEnd::Plain));
const ADD: Request =
    Request::FetchAdd(AtomicEth { addr: 8, key: Rkey(1), swap_or_add: 1, compare: 0 });

/// Returns a READ of this many packets. Its address identifies it.
const fn read(addr: u64, packets: u32) -> Request {
    Request::Read(Reth { addr, key: Rkey(1), length: packets * MTU.bytes() })
}

/// A responder, and the position of its next packet in the connection, which does not wrap.
struct Connection {
    responder: Responder,
    next: u64,
}

impl Connection {
    fn new(first: Psn) -> Self {
        let config = Config {
            transport: Transport::Rc,
            destination: Qpn::new(5),
            mtu: MTU,
            first_psn: first,
            min_rnr_timer: RnrTimer::new(1),
            max_dest_rd_atomic: CAPACITY as u8,
            hold: 0,
        };
        Self { responder: Responder::new(config), next: first.get().into() }
    }

    fn receive(&mut self, at: u64, request: Request) -> Result<Step, Discard> {
        let mut head = Head::new(Transport::Rc, Qpn::new(5), psn(at));
        head.ack_request = true;
        let body = Body::Request(request);
        self.responder.receive(&Packet { head, body, payload: &[] })
    }

    /// Executes the next request, which has `count` sequence numbers, and takes all answers.
    fn execute(&mut self, request: Request, count: u32, verdict: Verdict) {
        let step = self.receive(self.next, request);
        assert!(matches!(step, Ok(Step::Execute(_))), "{step:?}");
        assert_eq!(self.responder.end(verdict), None);
        self.next += u64::from(count);
        self.answer_all();
    }

    /// Ends all answers, as if they had been sent.
    fn answer_all(&mut self) {
        self.responder.resources.stop();
        while self.responder.next_reply().is_some() {}
    }

    /// Executes this many SENDs. For most of them, it only sets the state that they would lead to.
    fn sends(&mut self, count: u64) {
        let mut left = count;
        while left > 0 {
            let step = left.min(MAX_OUTSTANDING.into());
            self.next += step - 1;
            self.responder.expected = psn(self.next);
            self.execute(SEND, 1, Verdict::Executed);
            left -= step;
        }
    }

    /// Repeats an earlier request and returns the first answer.
    fn repeat(&mut self, at: u64, request: Request) -> Option<Reply> {
        let known = self.receive(at, request);
        let reply = self.responder.next_reply();
        self.answer_all();
        assert!(matches!(known, Ok(Step::Duplicate) | Err(Discard::UnknownDuplicate)), "{known:?}");
        reply
    }
}

/// Returns the number of the packet at a position.
fn psn(at: u64) -> Psn {
    Psn::new((at % LAP) as u32)
}

fn acknowledged(reply: Option<Reply>) -> Option<Psn> {
    match reply.map(|reply| (reply.head.psn, reply.body)) {
        Some((psn, Body::Response(Response::Acknowledge(_)))) => Some(psn),
        _ => None,
    }
}

#[test]
fn duplicates_are_acknowledged_for_a_whole_lap_after_a_read() {
    for packets in [1, 4, MAX_OUTSTANDING / 2] {
        let mut connection = Connection::new(Psn::new(0));
        connection.execute(read(0, packets), packets, Verdict::Executed);
        for _ in 0..40 {
            connection.sends(LAP / 32 + 10);
            let last = connection.next - 1;
            assert_eq!(acknowledged(connection.repeat(last, SEND)), Some(psn(last)), "{last:x}");
        }
    }
}

#[test]
fn a_repeated_atomic_is_answered_with_its_own_value_and_not_that_of_the_lap_before() {
    let mut connection = Connection::new(Psn::new(7));
    connection.execute(ADD, 1, Verdict::Old(100));
    connection.sends(LAP - 1);
    connection.execute(ADD, 1, Verdict::Old(200));
    let at = connection.next - 1;
    assert_eq!(psn(at), Psn::new(7), "one lap later");
    let reply = connection.repeat(at, ADD).expect("an answer");
    assert!(matches!(reply.body, Body::Response(Response::Atomic(_, 200))), "{reply:?}");
}

#[test]
fn a_repeated_read_is_found_one_lap_after_another_one() {
    let mut connection = Connection::new(Psn::new(0xff_fff0));
    connection.execute(read(0, 9), 9, Verdict::Executed);
    connection.sends(LAP - 9);
    connection.execute(read(1 << 20, 9), 9, Verdict::Executed);
    let reply = connection.repeat(connection.next - 9, read(1 << 20, 9)).expect("an answer");
    assert_eq!(reply.read.map(|read| read.addr), Some(1 << 20));
}

/// An event of a connection.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// This many SENDs are executed.
    Sends(u64),
    /// A READ of this many packets is executed.
    Read(u32),
    /// An atomic is executed.
    Atomic,
    /// The SEND of this many packets ago is repeated.
    RepeatSend(u64),
    /// The READ or atomic at this distance from the latest one is repeated.
    RepeatOther(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let half = u64::from(MAX_OUTSTANDING);
    let near = (half - 20..half + 20, 1..3_u64).prop_map(|(near, times)| near * times);
    let back = prop_oneof![1..20_u64, half - 20..=half, 1..half];
    prop_oneof![
        prop_oneof![1..20_u64, near, 1..LAP].prop_map(Event::Sends),
        prop_oneof![1..20_u32, MAX_OUTSTANDING / 4..MAX_OUTSTANDING / 2].prop_map(Event::Read),
        Just(Event::Atomic),
        back.prop_map(Event::RepeatSend),
        (0..CAPACITY + 1).prop_map(Event::RepeatOther),
    ]
}

/// A READ or atomic that was executed.
#[derive(Clone, Copy, Debug)]
struct Executed {
    at: u64,
    count: u32,
    request: Request,
    old: Option<u64>,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The model stores PSNs in 64 bits, without their wrap, so that it knows the age of each
    /// request.
    #[test]
    fn duplicates_are_answered_as_a_model_with_ages_answers_them(
        first in 0..LAP as u32,
        events in prop::collection::vec(event(), 1..40),
    ) {
        let mut connection = Connection::new(Psn::new(first));
        let begin = connection.next;
        let mut done: Vec<Executed> = Vec::new();
        for (nth, event) in (1..).zip(events) {
            match event {
                Event::Sends(count) => connection.sends(count),
                Event::Read(packets) => {
                    let request = read(nth << 32, packets);
                    let executed = Executed { at: connection.next, count: packets, request, old: None };
                    done.push(executed);
                    connection.execute(request, packets, Verdict::Executed);
                }
                Event::Atomic => {
                    let old = Some(nth);
                    done.push(Executed { at: connection.next, count: 1, request: ADD, old });
                    connection.execute(ADD, 1, Verdict::Old(nth));
                }
                Event::RepeatSend(back) => {
                    let Some(at) = connection.next.checked_sub(back).filter(|at| *at >= begin) else {
                        continue;
                    };
                    let inside = |it: &Executed| (it.at..it.at + u64::from(it.count)).contains(&at);
                    if done.iter().any(inside) {
                        continue;
                    }
                    let behind = done.iter().any(|executed| executed.at > at);
                    let expected = (!behind).then(|| psn(connection.next - 1));
                    prop_assert_eq!(acknowledged(connection.repeat(at, SEND)), expected);
                }
                Event::RepeatOther(back) => {
                    let Some(it) = done.len().checked_sub(back + 1).and_then(|at| done.get(at)) else {
                        continue;
                    };
                    if connection.next - it.at > MAX_OUTSTANDING.into() {
                        continue;
                    }
                    let reply = connection.repeat(it.at, it.request);
                    let stored = back < CAPACITY;
                    prop_assert_eq!(reply.is_some(), stored, "{:?}", it);
                    if let (Some(reply), Some(old)) = (reply, it.old) {
                        let Body::Response(Response::Atomic(_, value)) = reply.body else {
                            return Err(TestCaseError::fail(format!("{reply:?}")));
                        };
                        prop_assert_eq!(value, old);
                    } else if let (Some(reply), Request::Read(reth)) = (reply, it.request) {
                        prop_assert_eq!(reply.read.map(|read| read.addr), Some(reth.addr));
                    }
                }
            }
        }
    }
}

#[test]
fn answers_that_are_stopped_leave_no_acknowledgement_of_their_requests() {
    let mut it = Connection::new(psn(5));
    for (count, request) in [(3, read(0, 3)), (1, SEND)] {
        let step = it.receive(it.next, request);
        assert!(matches!(step, Ok(Step::Execute(_))), "{step:?}");
        assert_eq!(it.responder.end(Verdict::Executed), None);
        it.next += count;
    }
    assert!(it.responder.next_reply().is_some_and(|reply| reply.read.is_some()));
    it.responder.stop_answers();
    assert_eq!(it.responder.next_reply(), None);
    // If there are no such answers, an acknowledgement is sent.
    assert!(matches!(it.receive(it.next, SEND), Ok(Step::Execute(_))));
    assert_eq!(it.responder.end(Verdict::Executed), None);
    it.responder.stop_answers();
    assert!(it.responder.next_reply().is_some());
}

/// Takes the next answer, which must be a NAK. Returns its number and its reason.
fn nak(responder: &mut Responder) -> Option<(Psn, Nak)> {
    let reply = responder.next_reply()?;
    match reply.body {
        Body::Response(Response::Acknowledge(Aeth { syndrome: Syndrome::Nak(nak), .. })) => {
            Some((reply.head.psn, nak))
        }
        _ => None,
    }
}

#[test]
fn a_responder_that_gives_up_refuses_the_first_request_without_an_answer() {
    let mut it = Connection::new(psn(5));
    it.execute(SEND, 1, Verdict::Executed);
    // A requester without outstanding requests ignores the first NAK.
    for _ in 0..3 {
        it.responder.give_up();
        assert_eq!(nak(&mut it.responder), Some((psn(6), Nak::RemoteOperational)));
        assert!(!it.responder.has_reply());
        assert_eq!(it.receive(6, SEND), Err(Discard::State));
    }
    // If one answer of a READ has been sent, the READ is refused from the second answer on.
    let mut it = Connection::new(psn(5));
    for (count, request) in [(3, read(0, 3)), (1, SEND)] {
        assert!(matches!(it.receive(it.next, request), Ok(Step::Execute(_))));
        assert_eq!(it.responder.end(Verdict::Executed), None);
        it.next += count;
    }
    assert!(it.responder.next_reply().is_some_and(|reply| reply.read.is_some()));
    for _ in 0..2 {
        it.responder.give_up();
        assert_eq!(nak(&mut it.responder), Some((psn(6), Nak::RemoteOperational)));
        assert!(!it.responder.has_reply());
    }
}
