//! The order of the packets of a message, and their lengths.
//!
//! MIDDLEs and a LAST of the same operation follow a FIRST. All other packets are whole messages
//! (rxe_resp.c, `check_op_seq`). All packets of a message except the last have the length of the
//! path MTU (C9-92, C9-94). The packets of a WRITE have as many bytes as its first packet has
//! announced.

use super::arrival::{Arrival, Arriving};
use crate::wire::headers::Reth;
use crate::wire::numbers::Srqn;
use crate::wire::{Imm, Mtu, Part, Request, SendEnd};

/// Maximum length of a message in bytes.
const MESSAGE_MAX: u32 = 1 << 31;

/// The message in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// There is no message in progress. The next packet begins one.
    None,
    /// A SEND of which this many bytes have arrived, and its SRQ.
    Send { bytes: u32, srqn: Srqn },
    /// A WRITE of which this many bytes have arrived.
    Write { reth: Reth, bytes: u32, srqn: Srqn },
}

/// The number of messages that have been begun.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Returns the number of the last message that was begun.
    pub(super) const fn current(self) -> u64 {
        self.0
    }
}

/// A packet that is allowed at its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accepted {
    pub(super) arrival: Arrival,
    /// The message in progress after the packet has been executed.
    pub(super) next: Message,
    /// Number of sequence numbers of the packet and its answer.
    pub(super) count: u32,
    /// True if it begins a message.
    pub(super) begins: bool,
    /// True if it ends a message.
    pub(super) completes: bool,
    /// True if it has an answer of its own.
    pub(super) answers: bool,
}

/// The packet violates the protocol, and is answered with the NAK "invalid request".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Invalid;

impl Message {
    /// Checks the next packet of the connection: its request, its SRQ and the length of its
    /// payload.
    pub(super) fn accept(
        self,
        request: Request,
        srqn: Srqn,
        payload: usize,
        mtu: Mtu,
        numbers: Numbers,
    ) -> Result<Accepted, Invalid> {
        let bytes = u32::try_from(payload).map_err(|_| Invalid)?;
        let whole = |work, count| Accepted::whole(numbers.arrival(true, work, srqn), count);
        match request {
            Request::Send(part) => {
                fits(part, bytes, mtu)?;
                self.accept_send(part, srqn, bytes, numbers)
            }
            Request::Write(part) => {
                fits(part, bytes, mtu)?;
                self.accept_write(part, srqn, bytes, numbers)
            }
            _ if self != Self::None => Err(Invalid),
            Request::Read(reth) if reth.length <= MESSAGE_MAX => {
                Ok(whole(Arriving::Read(reth), mtu.packets(reth.length)))
            }
            Request::CompareSwap(atomic) => {
                aligned(atomic.addr)?;
                Ok(whole(Arriving::CompareSwap(atomic), 1))
            }
            Request::FetchAdd(atomic) => {
                aligned(atomic.addr)?;
                Ok(whole(Arriving::FetchAdd(atomic), 1))
            }
            Request::AtomicWrite(reth) if reth.length == 8 && bytes == 8 => {
                aligned(reth.addr)?;
                let accepted = whole(Arriving::AtomicWrite(reth), 1);
                Ok(Accepted { arrival: Arrival { bytes, ..accepted.arrival }, ..accepted })
            }
            Request::Flush(feth, reth) if feth.is_valid() => {
                Ok(whole(Arriving::Flush(feth, reth), 1))
            }
            Request::Read(_) | Request::Flush(..) | Request::AtomicWrite(_) => Err(Invalid),
        }
    }

    /// Checks a packet of a SEND, with a payload of `bytes`.
    fn accept_send(
        self,
        part: Part<(), SendEnd>,
        srqn: Srqn,
        bytes: u32,
        numbers: Numbers,
    ) -> Result<Accepted, Invalid> {
        let at = match (part.start(), self) {
            (Some(()), Self::None) => 0,
            (None, Self::Send { bytes, srqn: of }) if of == srqn => bytes,
            _ => return Err(Invalid),
        };
        let total = sum(at, bytes, MESSAGE_MAX)?;
        let next = match part.end() {
            Some(_) => Self::None,
            None => Self::Send { bytes: total, srqn },
        };
        let (work, begins) = (Arriving::Send(part.end()), part.start().is_some());
        let arrival = numbers.arrival(begins, work, srqn);
        Ok(Accepted::part(Arrival { at, bytes, ..arrival }, begins, next))
    }

    /// Checks a packet of a WRITE, with a payload of `bytes`.
    fn accept_write(
        self,
        part: Part<Reth, Option<Imm>>,
        srqn: Srqn,
        bytes: u32,
        numbers: Numbers,
    ) -> Result<Accepted, Invalid> {
        let (at, reth) = match (part.start(), self) {
            (Some(reth), Self::None) if reth.length <= MESSAGE_MAX => (0, reth),
            (None, Self::Write { reth, bytes, srqn: of }) if of == srqn => (bytes, reth),
            _ => return Err(Invalid),
        };
        let total = sum(at, bytes, reth.length)?;
        let next = match part.end() {
            Some(_) if total != reth.length => return Err(Invalid),
            Some(_) => Self::None,
            None => Self::Write { reth, bytes: total, srqn },
        };
        let (work, begins) = (Arriving::Write(reth, part.end()), part.start().is_some());
        let arrival = numbers.arrival(begins, work, srqn);
        Ok(Accepted::part(Arrival { at, bytes, ..arrival }, begins, next))
    }
}

impl Accepted {
    /// Returns a packet of a SEND or WRITE, after which `next` is in progress.
    const fn part(arrival: Arrival, begins: bool, next: Message) -> Self {
        let completes = matches!(next, Message::None);
        Self { arrival, next, count: 1, begins, completes, answers: false }
    }

    /// Returns a request with an answer of its own, of `count` packets.
    const fn whole(arrival: Arrival, count: u32) -> Self {
        let next = Message::None;
        Self { arrival, next, count, begins: true, completes: true, answers: true }
    }
}

impl Numbers {
    /// Returns a packet without payload. `begins` is true if it begins a message.
    const fn arrival(self, begins: bool, work: Arriving, srqn: Srqn) -> Arrival {
        let number = if begins { self.next().current() } else { self.current() };
        Arrival { work, at: 0, bytes: 0, solicited: false, number, srqn }
    }
}

/// Checks the length of a packet against its place in the message.
fn fits<S: Copy, E: Copy>(part: Part<S, E>, bytes: u32, mtu: Mtu) -> Result<(), Invalid> {
    let fits = match part {
        Part::First(_) | Part::Middle => bytes == mtu.bytes(),
        Part::Last(_) => (1..=mtu.bytes()).contains(&bytes),
        Part::Only(..) => bytes <= mtu.bytes(),
    };
    if fits { Ok(()) } else { Err(Invalid) }
}

/// Returns the number of bytes of a message up to the end of a packet, which has `bytes` bytes.
/// Fails if the number exceeds `limit`.
fn sum(at: u32, bytes: u32, limit: u32) -> Result<u32, Invalid> {
    at.checked_add(bytes).filter(|total| *total <= limit).ok_or(Invalid)
}

/// Checks that the word of an atomic or ATOMIC WRITE is aligned (C9-129).
fn aligned(addr: u64) -> Result<(), Invalid> {
    if addr.is_multiple_of(8) { Ok(()) } else { Err(Invalid) }
}
