//! Sent octets: appends work requests and answers to the stream as messages.

use super::Stream;
use super::close::{Happening, State};
use crate::mpa::start::FirstMessage;
use crate::rdmap::log::{Message, Payload, Unreadable};
use crate::rdmap::memory::Memory;
use crate::rdmap::work::{Immediate, Work, WorkRequest};
use crate::tcp::{Gone, Source, StreamPos, Undone};
use crate::wire::ddp::{Msn, Stag, Tagged};
use crate::wire::fields::Fields;
use crate::wire::fpdu::mulpdu;
use crate::wire::rdmap::{AtomicRequest, IMMEDIATE, Opcode, ReadRequest};

/// Number of log entries that stay free for a Terminate.
const RESERVED: usize = 1;
/// Maximum number of messages of a work request, besides the first one.
const MESSAGES: usize = 2;

/// The numbers of the next messages, and the balance between answers and work requests.
#[derive(Debug)]
pub(super) struct Numbers {
    send: Msn,
    request: Msn,
    /// Octets of answers minus octets of work requests, since both had something to send.
    balance: i64,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { send: Msn::FIRST, request: Msn::FIRST, balance: 0 }
    }
}

/// The source for TCP: the stream with the memory of its messages.
#[derive(Debug)]
pub struct Outbox<'a, M> {
    pub(super) stream: &'a mut Stream,
    pub(super) memory: &'a mut M,
}

impl<M: Memory> Source for Outbox<'_, M> {
    fn end(&self) -> StreamPos {
        self.stream.log.end()
    }

    fn cut(&self, at: StreamPos, limit: usize) -> usize {
        self.stream.log.cut(at, limit)
    }

    fn read(&mut self, at: StreamPos, into: &mut [u8]) -> Result<(), Undone> {
        let Err(unreadable) = self.stream.log.read(self.memory, at, into) else { return Ok(()) };
        let Unreadable::Gone(work) = unreadable else { return Err(Undone::Later) };
        if let Some(work) = work {
            self.stream.requester.fail_local(work);
        }
        self.stream.happened(Happening::MemoryGone);
        Err(Undone::Gone)
    }
}

impl Stream {
    /// Appends messages to the stream, up to the limit ahead of what has been sent. Answers to the
    /// peer's READs and work requests alternate, so that both get the same number of octets.
    pub fn fill(&mut self, memory: &mut impl Memory) {
        if self.state != State::Rts || !self.may_send {
            return;
        }
        while self.log.end().since(self.sent) < u64::from(self.config.ahead)
            && self.log.room() > RESERVED + MESSAGES
        {
            let work = self.requester.next().copied();
            let balance = &mut self.numbers.balance;
            let answer = match (work.is_some(), self.responder.is_empty()) {
                (false, true) => break,
                (true, false) => *balance <= 0,
                (false, false) | (true, true) => {
                    *balance = 0;
                    work.is_none()
                }
            };
            let before = self.log.end();
            match work {
                Some(work) if !answer => {
                    if self.start(&work, memory).is_err() {
                        self.requester.fail_local(work.id);
                        self.happened(Happening::Abort);
                        return;
                    }
                }
                _ => self.answer(),
            }
            let octets = self.log.end().since(before).cast_signed();
            self.numbers.balance += if answer { octets } else { -octets };
        }
    }

    fn answer(&mut self) {
        let Some(message) = self.responder.next_answer() else { return };
        self.append(message, self.mulpdu());
        self.counters.answers_sent += 1;
    }

    /// Appends the messages of a work request.
    fn start(&mut self, work: &WorkRequest, memory: &mut impl Memory) -> Result<(), Gone> {
        let mut message = self.message(work);
        let has_octets = matches!(message.payload, Payload::Work(_)) && work.length > 0;
        let copied = has_octets && work.length <= self.config.early_completion;
        let empty = work.length == 0 && self.config.early_completion > 0;
        let mut private = work.work.has_answer() || empty;
        if copied && let Some(copy) = self.log.copy(memory, work.id, work.length)? {
            message.payload = copy;
            private = true;
            self.counters.messages_copied += 1;
        }
        self.append(message, self.mulpdu());
        if let Work::WriteImmediate(_, data) = work.work {
            self.immediate(data);
        }
        if self.requester.asks_for_proof(&work.work) {
            let source = Tagged { stag: Stag(1), to: 0 };
            let nothing = ReadRequest { sink: Tagged::default(), size: 0, source };
            let message = self.request(Opcode::ReadRequest, nothing.octets());
            self.append(message, self.mulpdu());
        }
        let mark = self.tracker.mark(self.send_state);
        self.requester.started(mark, self.log.end(), private);
        Ok(())
    }

    /// Appends immediate data.
    fn immediate(&mut self, immediate: Immediate) {
        let msn = self.numbers.send;
        self.numbers.send = msn.next();
        let solicited = immediate.solicited;
        let opcode = if solicited { Opcode::ImmediateSolicited } else { Opcode::Immediate };
        let fields = Fields::default().put(&immediate.data).put(&[0; IMMEDIATE - 4]);
        let (at, invalidate, len) = (Tagged::default(), Stag(0), IMMEDIATE as u32);
        let message = Message { opcode, at, invalidate, msn, len, payload: Payload::Kept(fields) };
        self.append(message, self.mulpdu());
    }

    /// Returns the message of a work request, and assigns its number.
    fn message(&mut self, work: &WorkRequest) -> Message {
        let none = Message {
            opcode: Opcode::Write,
            at: Tagged::default(),
            invalidate: Stag(0),
            msn: Msn(0),
            len: work.length,
            payload: Payload::Work(work.id),
        };
        match work.work {
            Work::Send(kind) => {
                let msn = self.numbers.send;
                self.numbers.send = msn.next();
                let invalidate = kind.invalidate.unwrap_or_default();
                Message { opcode: kind.opcode(), invalidate, msn, ..none }
            }
            Work::Write(at) | Work::WriteImmediate(at, _) => Message { at, ..none },
            Work::Read { sink, source } => {
                let request = ReadRequest { sink, size: work.length, source };
                self.request(Opcode::ReadRequest, request.octets())
            }
            Work::Atomic(word, op) => {
                let request = AtomicRequest { op, id: self.requester.atomic_id(), word };
                self.request(Opcode::AtomicRequest, request.octets())
            }
        }
    }

    fn request(&mut self, opcode: Opcode, fields: Fields<52>) -> Message {
        let msn = self.numbers.request;
        self.numbers.request = msn.next();
        let len = u32::try_from(fields.octets().len()).unwrap_or_default();
        let (at, invalidate) = (Tagged::default(), Stag(0));
        Message { opcode, at, invalidate, msn, len, payload: Payload::Kept(fields) }
    }

    /// Appends a message that belongs to no work request.
    pub(super) fn first_message(&mut self, first: FirstMessage) {
        let empty = WorkRequest {
            id: 0,
            work: match first {
                FirstMessage::Write => Work::Write(Tagged { stag: Stag(1), to: 0 }),
                FirstMessage::Read => {
                    Work::Read { sink: Tagged::default(), source: Tagged { stag: Stag(1), to: 0 } }
                }
            },
            length: 0,
            signaled: false,
            fence: false,
        };
        if first == FirstMessage::Read {
            self.requester.first_read(Tagged::default());
        }
        let message = self.message(&empty);
        self.append(message, self.mulpdu());
    }

    /// Appends an empty WRITE, whose only effect is that the peer processes what has arrived.
    /// Returns whether the stream may send it now.
    pub fn nudge(&mut self) -> bool {
        if self.state != State::Rts || !self.may_send || self.log.room() <= RESERVED + 1 {
            return false;
        }
        self.first_message(FirstMessage::Write);
        true
    }

    /// Appends a message. Returns whether there was room.
    pub(super) fn append(&mut self, message: Message, mulpdu: u32) -> bool {
        let before = self.log.end();
        let appended = self.log.push(message, mulpdu);
        let octets = self.log.end().since(before);
        self.tracker.hand_over(octets);
        self.send_state.queued += octets;
        self.counters.messages_sent += u64::from(appended);
        appended
    }

    fn mulpdu(&self) -> u32 {
        let markers = self.agreement.is_some_and(|agreement| agreement.markers_sent);
        mulpdu(self.config.emss, markers)
    }
}
