//! READs and atomics of the peer, which are answered in order.

use std::collections::VecDeque;

use super::log::{Message, Payload};
use super::memory::ReadSource;
use crate::wire::ddp::{Msn, Stag, Tagged};
use crate::wire::fields::Fields;
use crate::wire::rdmap::{Opcode, ReadRequest};
use crate::wire::terminate::Cause;

/// A pending answer.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Read { request: ReadRequest, number: u64 },
    Atomic { id: u32, old: u64 },
}

/// READs and atomics of the peer whose answers are pending.
#[derive(Debug)]
pub struct Responder {
    queue: VecDeque<Answer>,
    /// Maximum number of pending answers.
    ird: u16,
    /// The number of the next request.
    expected: Msn,
    /// The number of the next response of an atomic.
    response: Msn,
}

impl Responder {
    /// Creates a responder for at most `ird` requests.
    #[must_use]
    pub const fn new(ird: u16) -> Self {
        Self { queue: VecDeque::new(), ird, expected: Msn::FIRST, response: Msn::FIRST }
    }

    /// Gives memory back if no answer is pending.
    pub fn shrink(&mut self) {
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
        }
    }

    /// Sets the maximum number of pending requests, which cannot exceed the initial one.
    pub fn set_ird(&mut self, ird: u16) {
        self.ird = self.ird.min(ird);
    }

    /// Changes the maximum number of pending requests.
    pub fn change_ird(&mut self, ird: u16) {
        self.ird = ird;
    }

    /// Checks the number of a request, and whether there is room for it. Changes nothing.
    ///
    /// # Errors
    /// The cause for a Terminate.
    pub fn check(&self, msn: Msn) -> Result<(), Cause> {
        if msn != self.expected {
            return Err(Cause::MsnRange);
        }
        if self.queue.len() >= usize::from(self.ird) {
            return Err(Cause::CatastrophicStream);
        }
        Ok(())
    }

    /// Appends a READ whose memory has been checked.
    pub fn read(&mut self, request: ReadRequest, number: u64) {
        self.take(Answer::Read { request, number });
    }

    /// Appends an atomic that has been executed.
    pub fn atomic(&mut self, id: u32, old: u64) {
        self.take(Answer::Atomic { id, old });
    }

    fn take(&mut self, answer: Answer) {
        self.expected = self.expected.next();
        self.queue.push_back(answer);
    }

    /// Returns whether no answer is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the next answer as a message of the stream, and removes it.
    pub fn next_answer(&mut self) -> Option<Message> {
        Some(match self.queue.pop_front()? {
            Answer::Read { request: ReadRequest { sink, size, source }, number } => Message {
                opcode: Opcode::ReadResponse,
                at: sink,
                invalidate: Stag(0),
                msn: Msn(0),
                len: size,
                payload: Payload::Source(ReadSource { at: source, len: size, number }),
            },
            Answer::Atomic { id, old } => {
                let msn = self.response;
                self.response = msn.next();
                Message {
                    opcode: Opcode::AtomicResponse,
                    at: Tagged::default(),
                    invalidate: Stag(0),
                    msn,
                    len: 12,
                    payload: Payload::Kept(Fields::default().u32(id).u64(old)),
                }
            }
        })
    }
}
