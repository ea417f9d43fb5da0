//! A requester with the peculiarities of Linux' software RoCE, written from a description of its
//! behaviour (rxe_req.c and rxe_comp.c, Linux 7.3). It shares no code with the requester of this
//! crate.
//!
//! | peculiarity | place |
//! | --- | --- |
//! | at most 129 packets are outstanding; a READ may exceed this | rxe_req.c:732 |
//! | each last packet asks for an acknowledgement, and each 66th that has not | rxe_req.c:450 |
//! | all packets from the oldest on are sent again; a message goes on in its middle | rxe_req.c:37 |
//! | packets that wait to be sent again ignore their acknowledgements | rxe_comp.c:153 |
//! | answers ahead of a READ's next one are dropped | rxe_comp.c:211 |
//! | any answer that is after a READ or atomic makes it send again | rxe_comp.c:184 |
//! | an old acknowledgement within a READ's answer loses the place of that answer | rxe_comp.c:205 |
//! | new packets follow while the responder is not ready | rxe_comp.c:802, rxe_req.c:695 |
//! | one retransmission until there is progress, unless the timer has run out | rxe_comp.c:770 |
//! | a count of 7 means that it retries without limit | rxe_comp.c:775 |
//! | it waits while many of its packets are in the network card's queue | rxe_req.c:740 |
//! | if no packet follows the last acknowledgement, it never sends again | rxe_comp.c:619 |
//! | times are whole jiffies of 4 ms, at least one; activity prolongs the timer | rxe_comp.c:627 |
//!
//! | module | contents |
//! | --- | --- |
//! | `send` | the next packet |
//! | `complete` | answers and time-outs |

mod complete;
mod send;

use std::collections::VecDeque;

use vrnic_roce::Psn;
use vrnic_roce::requester::{Completion, Transmit, WorkRequest};
use vrnic_roce::wire::{Body, Mtu, Packet, Qpn, ReadPart, Response};

/// Time in nanoseconds after which the network card has sent the packets of a burst.
const BURST_TIME: u64 = 20_000;

/// A tick of the kernel's clock with 250 ticks a second, in nanoseconds.
const JIFFY: u64 = 4_000_000;

/// Attributes of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    pub(crate) destination: Qpn,
    pub(crate) mtu: Mtu,
    pub(crate) first_psn: Psn,
    pub(crate) timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) max_rd_atomic: u32,
}

/// A task for the host.
#[derive(Debug)]
pub(crate) enum Event {
    Send(Transmit),
    Place { id: u64, offset: u32, bytes: Vec<u8> },
    Old { id: u64, value: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The entry must be sent, or sent again.
    Posted,
    /// Some of the entry's packets have been sent.
    Processing,
    /// All of the entry's packets have been sent.
    Pending,
}

#[derive(Debug)]
struct Wqe {
    request: WorkRequest,
    state: State,
    first: Psn,
    last: Psn,
    /// Number of bytes that were sent, or that a READ has received.
    done: u32,
    /// True if the entry counts as an outstanding READ or atomic.
    counted: bool,
}

#[derive(Debug)]
struct Answer {
    psn: Psn,
    response: Response,
    bytes: Vec<u8>,
}

impl Answer {
    const fn is_plain(&self) -> bool {
        matches!(self.response, Response::Acknowledge(_))
    }

    const fn ends(&self) -> bool {
        !matches!(self.response, Response::Read(ReadPart::First(_) | ReadPart::Middle))
    }

    const fn starts(&self) -> bool {
        !matches!(self.response, Response::Read(ReadPart::Middle | ReadPart::Last(_)))
    }
}

/// A requester that works as rxe's does.
#[derive(Debug)]
pub(crate) struct RxeRequester {
    config: Config,
    queue: VecDeque<Wqe>,
    /// The index of the entry to send from, and its next packet.
    at: usize,
    next: Psn,
    unasked: u32,
    /// Number of READs and atomics that may still be sent.
    slots: u32,
    /// True if everything must be sent again.
    go_back: bool,
    /// The time at which everything is sent again because the responder was not ready.
    not_ready_until: Option<u64>,
    /// The next number without an answer.
    acked: Psn,
    /// True if the last answer was FIRST or MIDDLE.
    in_answer: bool,
    retries: u8,
    rnr_retries: u8,
    /// True if packets were sent again, and there has been no progress since.
    retrying: bool,
    timed_out: bool,
    timer: Option<u64>,
    /// The time at which the network card accepts packets again.
    burst_end: Option<u64>,
    answers: VecDeque<Answer>,
    /// True if the task has to run.
    scheduled: bool,
    failed: bool,
    completions: VecDeque<Completion>,
    /// Packets that were sent.
    pub(crate) sent: u64,
    /// Number of packets that the network card takes at once.
    pub(crate) burst: usize,
}

impl RxeRequester {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            queue: VecDeque::new(),
            at: 0,
            next: config.first_psn,
            unasked: 0,
            slots: config.max_rd_atomic,
            go_back: false,
            not_ready_until: None,
            acked: config.first_psn,
            in_answer: false,
            retries: config.retry_count,
            rnr_retries: config.rnr_retry,
            retrying: false,
            timed_out: false,
            timer: None,
            burst_end: None,
            answers: VecDeque::new(),
            scheduled: false,
            failed: false,
            completions: VecDeque::new(),
            sent: 0,
            burst: usize::MAX,
            config,
        }
    }

    /// Posts a work request.
    pub(crate) fn post(&mut self, request: WorkRequest) {
        let (first, last) = (Psn::default(), Psn::default());
        let state = State::Posted;
        self.queue.push_back(Wqe { request, state, first, last, done: 0, counted: false });
        self.scheduled = true;
    }

    /// Queues an answer.
    pub(crate) fn receive(&mut self, packet: &Packet<'_>) {
        if let Body::Response(response) = packet.body {
            let (psn, bytes) = (packet.head.psn, packet.payload.to_vec());
            self.answers.push_back(Answer { psn, response, bytes });
            self.scheduled = true;
        }
    }

    /// Takes the next completion.
    pub(crate) fn next_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// Returns the time at which a timer ends.
    pub(crate) fn deadline(&self) -> Option<u64> {
        [self.timer, self.not_ready_until, self.burst_end].into_iter().flatten().min()
    }

    /// Runs the task: sends a packet, then takes an answer, in turn until there is neither.
    pub(crate) fn poll(&mut self, now: u64) -> Vec<Event> {
        if self.not_ready_until.take_if(|until| *until <= now).is_some() {
            self.go_back = true;
            self.scheduled = true;
        }
        if self.timer.take_if(|timer| *timer <= now).is_some() {
            self.timed_out = true;
            self.scheduled = true;
        }
        self.scheduled |= self.burst_end.take_if(|end| *end <= now).is_some();
        let mut events = Vec::new();
        if std::mem::take(&mut self.scheduled) {
            let mut room = self.burst;
            loop {
                let sent = if self.burst_end.is_none() { self.send(now) } else { None };
                room -= usize::from(sent.is_some());
                if room == 0 {
                    self.burst_end = Some(now + BURST_TIME);
                }
                let (busy, effect) = self.complete(now);
                let over = sent.is_none() && !busy;
                events.extend(sent.map(Event::Send).into_iter().chain(effect));
                if over {
                    break;
                }
            }
        }
        events
    }
}
