//! A connection of the iWARP personality: the start frames, messages in both directions, and the
//! end.
//!
//! The caller connects this with a TCP engine. It passes [`Stream::sink`] to the engine for
//! received octets and [`Stream::source`] for octets to send, reports acknowledgements
//! ([`Stream::progress`]) and the end of the connection ([`Stream::happened`]), and carries out the
//! orders of [`Stream::next_order`]. Completions and events are returned in order.
//!
//! | module | contents |
//! | --- | --- |
//! | [`close`] | the table of states and happenings |
//! | [`event`] | events, counters |
//! | `inbound` | received octets |
//! | `early` | octets that arrive out of order |
//! | `outbound` | sent messages |
//! | `ending` | the effects of happenings |

pub mod close;
mod early;
mod ending;
pub mod event;
mod inbound;
mod outbound;

use std::collections::VecDeque;
use std::sync::Arc;

use self::close::{Happening, Order, State};
pub use self::early::Early;
pub use self::ending::{Rest, Want};
pub use self::event::{Counters, Event};
pub use self::inbound::Inbox;
use self::inbound::{Arriving, Held};
use self::outbound::Numbers;
pub use self::outbound::Outbox;
use crate::mpa::framer::Form;
use crate::mpa::markers::Markers;
use crate::mpa::start::{self, Agreement, Failure, Wishes};
use crate::rdmap::completion::{Rule, SendState, Tracker};
use crate::rdmap::log::Log;
use crate::rdmap::memory::Memory;
use crate::rdmap::receive::Receive;
use crate::rdmap::requester::{self, Requester};
use crate::rdmap::responder::Responder;
use crate::rdmap::work::{Completion, Rejected, WorkRequest};
use crate::tcp::{Budget, StreamPos};
use crate::wire::start::Start;

/// Configuration of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The demands of this end in the negotiation.
    pub wishes: Wishes,
    /// Maximum number of work requests that are posted and not completed.
    pub capacity: usize,
    /// Number of octets of payload in a TCP segment (EMSS).
    pub emss: u32,
    /// Maximum number of octets that are appended to the stream ahead of what TCP has sent.
    pub ahead: u32,
    /// Messages of at most this many octets are copied, and are complete when they have been sent.
    /// Zero for none.
    pub early_completion: u32,
    /// Maximum number of octets of such copies at a time.
    pub copies: usize,
    /// The rule of completion for all other messages.
    pub rule: Rule,
    /// The configuration of out-of-order placement.
    pub early: Early,
    /// True if messages of RFC 7306 are sent and accepted. They are not negotiated, so both ends
    /// must have the same configuration.
    pub extensions: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            wishes: Wishes::default(),
            capacity: 128,
            emss: 1448,
            ahead: 256 << 10,
            early_completion: 0,
            copies: 64 << 10,
            rule: Rule::Sequence,
            early: Early::default(),
            extensions: false,
        }
    }
}

/// A connection.
#[derive(Debug)]
pub struct Stream {
    config: Config,
    state: State,
    agreement: Option<Agreement>,
    /// The private data of the peer's start frame.
    private: Vec<u8>,
    log: Log,
    tracker: Tracker,
    send_state: SendState,
    /// The first position that was never sent.
    sent: StreamPos,
    requester: Requester,
    responder: Responder,
    receive: Receive,
    numbers: Numbers,
    arriving: Arriving,
    /// True if this end may send messages. The responder waits for the initiator's first message.
    may_send: bool,
    /// True if the connection has been reported to the caller.
    established: bool,
    /// True if the program wants to close as soon as no work is outstanding.
    leaving: bool,
    /// True if the last message of the log is a Terminate.
    terminated: bool,
    /// True if TCP reads no memory any more.
    gone: bool,
    /// True if a FIN was ordered.
    finished: bool,
    events: VecDeque<Event>,
    orders: VecDeque<Order>,
    counters: Counters,
}

impl Stream {
    /// Opens a stream as the initiator. The first sent octets are the request, and the first
    /// received ones are the reply. Buffers are allocated when they are
    /// needed.
    #[must_use]
    pub fn initiate(config: Config, private: &[u8]) -> Self {
        let request = start::request(&config.wishes, private);
        let mut stream = Self::new(config, request.octets());
        stream.may_send = true;
        stream
    }

    /// Opens a stream as the responder, with the request that has arrived. The first sent octets
    /// are the reply, and the first received ones are FPDUs.
    ///
    /// # Errors
    /// The reason for which there is no connection. The caller then sends a [`start::reject`].
    pub fn respond(config: Config, request: &[u8], private: &[u8]) -> Result<Self, Failure> {
        let request = Start::parse(request).map_err(|_| Failure::Frame)?;
        let (reply, agreement) = start::answer(&config.wishes, &request, private)?;
        let mut stream = Self::new(config, reply.octets());
        stream.private.extend_from_slice(request.private);
        stream.agree(agreement);
        if agreement.first.is_none() {
            stream.establish();
        }
        Ok(stream)
    }

    /// Opens a stream without start frames: both ends have agreed by other means, and the next
    /// octets in each direction are FPDUs. If `waits`, this end sends its first message behind the
    /// peer's (RFC 5044, section 7.1.2).
    #[must_use]
    pub fn agreed(config: Config, agreement: Agreement, waits: bool) -> Self {
        let mut stream = Self::new(config, &[]);
        stream.agree(agreement);
        stream.may_send = !waits;
        stream.establish();
        stream
    }

    fn new(config: Config, frame: &[u8]) -> Self {
        let Config { wishes, capacity, extensions, .. } = config;
        // A WRITE with immediate data is two messages, and there must be room for a Terminate.
        let entries = 2 * capacity + usize::from(wishes.ird) + 4;
        let mut stream = Self {
            state: State::Starting,
            agreement: None,
            private: Vec::new(),
            log: Log::new(frame, Form::default(), entries, config.copies),
            tracker: Tracker::new(config.rule),
            send_state: SendState::default(),
            sent: StreamPos(0),
            requester: Requester::new(
                requester::RequesterConfig { capacity, extensions },
                wishes.ord,
            ),
            responder: Responder::new(wishes.ird),
            receive: Receive::default(),
            numbers: Numbers::default(),
            arriving: Arriving::new(config.early.fpdus),
            may_send: false,
            established: false,
            leaving: false,
            terminated: false,
            gone: false,
            finished: false,
            events: VecDeque::new(),
            orders: VecDeque::new(),
            counters: Counters::default(),
            config,
        };
        stream.tracker.hand_over(frame.len() as u64);
        stream.send_state.queued = frame.len() as u64;
        stream
    }

    /// Takes the memory of what the peer sends, and of copies of short messages, from a budget that
    /// streams share, from now on. If there is none, octets are refused, and the peer sends them
    /// again; messages are not copied, and are complete when they have been acknowledged.
    pub fn use_budget(&mut self, budget: &Arc<Budget>) {
        self.log.use_budget(budget);
        self.arriving.deframer.use_budget(budget);
        self.arriving.ahead.use_budget(budget);
    }

    /// Gives the memory of buffers back that are empty.
    pub fn shrink(&mut self) {
        self.log.shrink();
        self.requester.shrink();
        self.responder.shrink();
        self.arriving.deframer.shrink();
        self.arriving.ahead.shrink();
        if self.events.is_empty() {
            self.events = VecDeque::new();
        }
        if self.orders.is_empty() {
            self.orders = VecDeque::new();
        }
    }

    /// Returns the number of octets of memory that it keeps while it has no work, apart from those
    /// of a fixed size.
    #[must_use]
    pub const fn kept(&self) -> usize {
        self.arriving.deframer.kept()
    }

    /// Returns the number of octets that all its buffers have taken from the budget.
    #[must_use]
    pub const fn charged(&self) -> usize {
        self.log.charged() + self.arriving.deframer.charged() + self.arriving.ahead.charged()
    }

    /// Handles the agreement, after both start frames are known.
    fn agree(&mut self, agreement: Agreement) {
        let Agreement { crc, markers_sent, markers_received, ird, ord, .. } = agreement;
        self.log.agree(Form { crc, markers: Markers(markers_sent) });
        self.arriving.deframer.agree(Form { crc, markers: Markers(markers_received) });
        let possible = self.requester.set_ord(ord);
        self.responder.set_ird(ird);
        self.agreement = Some(agreement);
        self.state = State::Rts;
        if !possible {
            self.happened(Happening::Abort);
        }
    }

    /// Reports the connection to the consumer, if that is allowed now.
    fn establish(&mut self) {
        if let Some(agreement) = self.agreement.filter(|_| !self.established) {
            self.established = true;
            self.events.push_back(Event::Established(agreement));
        }
    }

    /// Posts a work request.
    ///
    /// # Errors
    /// The reason for which it is not accepted. A work request that is posted while the stream is
    /// closing makes it a bad close.
    pub fn push(&mut self, request: WorkRequest) -> Result<(), Rejected> {
        if self.state == State::Closing {
            self.happened(Happening::Posted);
        }
        if self.leaving || !matches!(self.state, State::Starting | State::Rts) {
            return Err(Rejected::Closed);
        }
        self.requester.push(request)
    }

    /// Sets the number of octets of payload in a TCP segment. Messages that are already in the
    /// stream keep their FPDUs.
    pub const fn set_emss(&mut self, emss: u32) {
        self.config.emss = emss;
    }

    /// Sets the length of the messages that are copied, and are complete when they have been sent
    /// ([`Config::early_completion`]), for messages that are not in the stream yet.
    pub const fn complete_early(&mut self, octets: u32) {
        self.config.early_completion = octets;
    }

    /// Records how far the peer has acknowledged, and how far TCP has sent. The caller calls it
    /// after TCP has sent and before it reports anything else, because octets that were not sent
    /// may be dropped.
    pub fn progress(
        &mut self,
        memory: &mut impl Memory,
        unacknowledged: StreamPos,
        sent: StreamPos,
    ) {
        self.sent = self.sent.max(sent);
        let unacknowledged = unacknowledged.max(self.send_state.unacknowledged);
        self.send_state =
            SendState { unacknowledged, queued: self.log.end().since(unacknowledged) };
        self.log.release(memory, unacknowledged);
        if self.terminated && self.send_state.queued == 0 {
            self.happened(Happening::Acknowledged);
        }
    }

    /// Returns the next completion, in the order of the queue. After the first one that has failed,
    /// all others are flushed, when TCP no longer reads their memory.
    pub fn next_completion(&mut self) -> Option<Completion> {
        let gone = self.gone || self.state == State::Idle;
        let completion =
            self.requester.next_completion(&self.tracker, self.send_state, self.sent, gone);
        if completion.is_none() {
            self.leave();
        }
        completion
    }

    /// Returns the next event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the next order for TCP. The caller carries it out at once.
    pub fn next_order(&mut self) -> Option<Order> {
        let order = self.orders.pop_front();
        self.gone |= order == Some(Order::Reset);
        order
    }

    /// Returns the sink to which TCP delivers.
    pub const fn sink<'a, M: Memory>(&'a mut self, memory: &'a mut M) -> Inbox<'a, M> {
        Inbox { stream: self, memory }
    }

    /// Returns the source from which TCP sends.
    pub const fn source<'a, M: Memory>(&'a mut self, memory: &'a mut M) -> Outbox<'a, M> {
        Outbox { stream: self, memory }
    }

    /// Returns the state.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Returns the agreement of the two ends, if there is one.
    #[must_use]
    pub const fn agreement(&self) -> Option<&Agreement> {
        self.agreement.as_ref()
    }

    /// Changes the maximum number of requests of the peer that are served at a time, and of those
    /// of this end that are outstanding at a time. Returns `false` and changes nothing if a request
    /// is outstanding whose number changes, or if the peer may still send more than the new number.
    pub fn change_depths(&mut self, ird: u16, ord: u16) -> bool {
        let Some(agreement) = &mut self.agreement else { return false };
        if ord != agreement.ord && !self.requester.may_change_ord(ord)
            || ird < agreement.ird && self.state == State::Rts
        {
            return false;
        }
        self.log.add_room(usize::from(ird.saturating_sub(agreement.ird)));
        (agreement.ird, agreement.ord) = (ird, ord);
        self.responder.change_ird(ird);
        self.requester.set_ord(ord)
    }

    /// Returns the private data of the peer's start frame.
    #[must_use]
    pub fn private(&self) -> &[u8] {
        &self.private
    }

    /// Returns whether TCP has sent all octets of the stream.
    #[must_use]
    pub fn has_sent_all(&self) -> bool {
        self.sent == self.log.end()
    }

    /// Returns whether a SEND of the peer waits for a receive. When there is one, the caller calls
    /// [`Self::resume`] and resumes TCP. When it has waited long enough, it calls
    /// [`Self::receive_timed_out`].
    #[must_use]
    pub const fn waits_for_receive(&self) -> bool {
        matches!(self.arriving.held, Some(Held::NoReceive))
    }

    /// Returns whether octets wait for memory. The caller resumes TCP after a while.
    #[must_use]
    pub const fn waits_for_memory(&self) -> bool {
        matches!(self.arriving.held, Some(Held::NoMemory | Held::Absent))
    }

    /// Returns whether octets wait for the next turn of the caller ([`Memory::is_over`]), which
    /// resumes TCP.
    #[must_use]
    pub const fn waits_for_turn(&self) -> bool {
        matches!(self.arriving.held, Some(Held::Turn))
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
}
