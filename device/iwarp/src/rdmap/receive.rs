//! Processing of received messages, in the order of the stream: numbers, offsets and placement.

use super::early_segments::{Octets, Placed, PlacedHeader};
use super::memory::{Destination, Early, Ended, Inbound, Memory, Operation, Refused};
use super::requester::{Mistake, Requester};
use super::responder::Responder;
use super::terminate;
use crate::tcp::StreamPos;
use crate::wire::ddp::{Msn, Tagged};
use crate::wire::rdmap::{AtomicRequest, Body, IMMEDIATE, ReadRequest, Segment, SendKind};
use crate::wire::terminate::{Cause, Report};

/// The requester and the responder, and the memory.
pub struct Ends<'a, M> {
    /// The requester, for responses.
    pub requester: &'a mut Requester,
    /// The responder, for READs and atomics of the peer.
    pub responder: &'a mut Responder,
    /// The memory of this end.
    pub memory: &'a mut M,
}

/// Maximum number of receives beyond the next one into which segments are placed out of order.
const RECEIVES_AHEAD: u32 = 16;

/// The state of a message after a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// More segments of the message follow.
    Placed,
    /// A message has ended.
    Ended,
    /// A message has ended, and the caller must wait before it completes the message.
    Later,
    /// There is no receive. Nothing has changed, and the segment must be passed again.
    NotReady,
    /// The memory is not ready. Nothing has changed, and the segment must be passed again.
    Absent,
    /// The peer has ended the stream.
    Terminated(Report),
}

/// A SEND some of whose segments are missing.
#[derive(Clone, Copy, Debug)]
struct Open {
    kind: SendKind,
    so_far: u32,
    number: u64,
}

/// A WRITE some of whose segments are missing.
#[derive(Clone, Copy, Debug)]
struct OpenWrite {
    number: u64,
    so_far: u32,
    /// The last segment that had a payload.
    placed: Option<Inbound>,
}

/// The part of a message that is in a segment.
#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    octets: Octets<'a>,
    /// True if it is the last part of the message.
    last: bool,
    /// The position after the segment.
    end: StreamPos,
}

/// The state of received messages.
#[derive(Debug)]
pub struct Receive {
    /// The number of the next SEND or immediate data.
    expected: Msn,
    send: Option<Open>,
    /// The WRITE some of whose segments are missing.
    write: Option<OpenWrite>,
    /// Length of the last WRITE, unless a SEND or immediate data came after it.
    written: u32,
    /// Number of messages that have begun.
    begun: u64,
}

impl Default for Receive {
    fn default() -> Self {
        Self { expected: Msn::FIRST, send: None, write: None, written: 0, begun: 0 }
    }
}

impl Receive {
    /// Processes a segment. `end` is the position after it.
    ///
    /// # Errors
    /// The cause for a Terminate. The segment then has no effect.
    pub fn take<M: Memory>(
        &mut self,
        segment: &Segment<'_>,
        end: StreamPos,
        ends: Ends<'_, M>,
    ) -> Result<Step, Cause> {
        let last = segment.last;
        let response = |placed| if placed { step(last) } else { Step::Absent };
        let part = |octets| Part { octets: Octets::Here(octets), last, end };
        match segment.body {
            Body::Write(at, octets) => self.write(at, part(octets), ends.memory),
            Body::Send(kind, msn, mo, octets) => {
                self.send(kind, msn, mo, part(octets), ends.memory)
            }
            Body::Immediate(solicited, msn, data) => {
                self.immediate(solicited, msn, data, end, ends.memory)
            }
            Body::ReadRequest(msn, request) => self.read_request(msn, request, end, ends),
            Body::AtomicRequest(msn, request) => self.atomic_request(msn, request, end, ends),
            Body::ReadResponse(at, octets) => {
                let octets = Octets::Here(octets);
                let taken = ends.requester.read_response(at, last, octets, ends.memory);
                taken.map(response).map_err(|Mistake(cause)| cause)
            }
            Body::AtomicResponse(msn, id, old) => {
                let taken = ends.requester.atomic_response(msn, id, old, ends.memory);
                taken.map(|()| step(last)).map_err(|Mistake(cause)| cause)
            }
            Body::Terminate(report) => Ok(Step::Terminated(report)),
        }
    }

    /// Processes a segment whose octets were placed out of order, after all octets before it have
    /// arrived.
    ///
    /// # Errors
    /// The cause for a Terminate.
    pub fn take_placed<M: Memory>(
        &mut self,
        placed: &Placed,
        end: StreamPos,
        ends: Ends<'_, M>,
    ) -> Result<Step, Cause> {
        let Placed { header, last, len } = *placed;
        let octets = Octets::Placed(len);
        let part = Part { octets, last, end };
        match header {
            PlacedHeader::Write(at) => self.write(at, part, ends.memory),
            PlacedHeader::Send(kind, msn, mo) => self.send(kind, msn, mo, part, ends.memory),
            PlacedHeader::ReadResponse(at) => {
                let taken = ends.requester.read_response(at, last, octets, ends.memory);
                taken.map(|_| step(last)).map_err(|Mistake(cause)| cause)
            }
        }
    }

    /// Places the octets of a segment that has arrived out of order. `before` is the segment in
    /// front of it, if that has been placed, too. Returns whether it did; if not, nothing has
    /// changed.
    pub fn place_ahead<M: Memory>(
        &self,
        segment: &Segment<'_>,
        before: Option<&Placed>,
        end: StreamPos,
        ends: Ends<'_, M>,
    ) -> bool {
        let last = segment.last;
        let (destination, octets) = match segment.body {
            // The address of a segment without payload is not checked. If it is the last one of
            // its message, the segment in front of it shows the STag of the message.
            Body::Write(_, []) => match before {
                Some(&Placed { header: PlacedHeader::Write(at), last: false, len: 1.. })
                    if last =>
                {
                    (Destination::Write(at), &[][..])
                }
                _ => return true,
            },
            Body::Write(at, octets) => {
                if at.to.checked_add(octets.len() as u64 - 1).is_none() {
                    return false;
                }
                (Destination::Write(at), octets)
            }
            Body::ReadResponse(at, octets) => {
                return ends.requester.response_ahead(at, last, octets, ends.memory);
            }
            Body::Send(kind, msn, at, octets) => {
                let receive = msn.0.wrapping_sub(self.expected.0);
                let open = self.send.filter(|_| receive == 0);
                let fits = open.is_none_or(|open| open.kind == kind && at >= open.so_far);
                if receive >= RECEIVES_AHEAD || !fits {
                    return false;
                }
                (Destination::Send { receive, at }, octets)
            }
            _ => return false,
        };
        ends.memory.place_ahead(&Early { destination, last, end }, octets)
    }

    fn write(
        &mut self,
        at: Tagged,
        Part { octets, last, end }: Part<'_>,
        memory: &mut impl Memory,
    ) -> Result<Step, Cause> {
        let len = octets.len();
        let open = self.write.unwrap_or(OpenWrite { number: self.begun, so_far: 0, placed: None });
        let number = open.number;
        // RDMAP does not limit the length of a WRITE.
        let so_far = open.so_far.saturating_add(len);
        let inbound = Inbound {
            operation: Operation::Write(at),
            at: 0,
            len,
            last,
            solicited: false,
            number,
            end,
        };
        // The address of a segment without payload is not checked (RFC 5041, section 7.1).
        if len > 0 {
            if at.to.checked_add(u64::from(len) - 1).is_none() {
                return Err(Cause::TaggedWrap);
            }
            // A message has only one STag, so that the whole key ends with the message.
            let first = open.placed.map(|placed| placed.operation);
            if matches!(first, Some(Operation::Write(first)) if first.stag != at.stag) {
                return Err(Cause::TaggedInvalidStag);
            }
            match octets.here().map_or(Ok(()), |octets| memory.place(&inbound, octets)) {
                Ok(()) => {}
                Err(Refused::Later) => return Ok(Step::Absent),
                Err(refused) => return Err(terminate::cause(&inbound.operation, refused)),
            }
        } else if last && memory.is_moving(number) {
            return Ok(Step::Absent);
        }
        self.begun += u64::from(self.write.is_none());
        let placed = if len > 0 { Some(inbound) } else { open.placed };
        self.write = (!last).then_some(OpenWrite { number, so_far, placed });
        self.written = so_far;
        // An empty last segment need not name the STag of the message.
        match placed.filter(|_| last) {
            Some(placed) => finish(&Inbound { last, end, ..placed }, memory),
            None => Ok(step(last)),
        }
    }

    fn send(
        &mut self,
        kind: SendKind,
        msn: Msn,
        mo: u32,
        Part { octets, last, end }: Part<'_>,
        memory: &mut impl Memory,
    ) -> Result<Step, Cause> {
        if msn != self.expected {
            return Err(Cause::MsnRange);
        }
        let open = self.send.unwrap_or(Open { kind, so_far: 0, number: self.begun });
        if open.kind != kind {
            return Err(Cause::Opcode);
        }
        // The segments of a message have ascending offsets.
        if mo != open.so_far {
            return Err(Cause::MessageOffset);
        }
        let len = octets.len();
        let so_far = mo.checked_add(len).ok_or(Cause::TooLong)?;
        let inbound = Inbound {
            operation: Operation::Send(kind.invalidate),
            at: mo,
            len,
            last,
            solicited: kind.solicited,
            number: open.number,
            end,
        };
        match octets.here().map_or(Ok(()), |octets| memory.place(&inbound, octets)) {
            Ok(()) => {}
            Err(Refused::NotReady) => return Ok(Step::NotReady),
            Err(Refused::Later) => return Ok(Step::Absent),
            Err(refused) => return Err(terminate::cause(&inbound.operation, refused)),
        }
        self.begun += u64::from(self.send.is_none());
        if !last {
            self.send = Some(Open { so_far, ..open });
            return Ok(Step::Placed);
        }
        self.send = None;
        self.written = 0;
        self.expected = msn.next();
        finish(&inbound, memory)
    }

    fn immediate(
        &mut self,
        solicited: bool,
        msn: Msn,
        data: [u8; IMMEDIATE],
        end: StreamPos,
        memory: &mut impl Memory,
    ) -> Result<Step, Cause> {
        if msn != self.expected || self.send.is_some() {
            return Err(Cause::MsnRange);
        }
        let inbound = Inbound {
            operation: Operation::Immediate(data),
            at: 0,
            len: self.written,
            last: true,
            solicited,
            number: self.begun,
            end,
        };
        match memory.place(&inbound, &[]) {
            Ok(()) => {}
            Err(Refused::NotReady) => return Ok(Step::NotReady),
            Err(Refused::Later) => return Ok(Step::Absent),
            Err(refused) => return Err(terminate::cause(&inbound.operation, refused)),
        }
        self.begun += 1;
        self.written = 0;
        self.expected = msn.next();
        finish(&inbound, memory)
    }

    fn read_request<M: Memory>(
        &mut self,
        msn: Msn,
        request: ReadRequest,
        end: StreamPos,
        ends: Ends<'_, M>,
    ) -> Result<Step, Cause> {
        ends.responder.check(msn)?;
        let operation = Operation::Read(request.source);
        let inbound = self.request(operation, request.size, end);
        // The address of a READ without payload is not checked either.
        if request.size > 0 {
            if request.source.to.checked_add(u64::from(request.size) - 1).is_none() {
                return Err(Cause::Wrap);
            }
            let refused = |refused| terminate::cause(&operation, refused);
            ends.memory.place(&inbound, &[]).map_err(refused)?;
        }
        self.begun += 1;
        ends.responder.read(request, inbound.number);
        Ok(Step::Ended)
    }

    fn atomic_request<M: Memory>(
        &mut self,
        msn: Msn,
        request: AtomicRequest,
        end: StreamPos,
        ends: Ends<'_, M>,
    ) -> Result<Step, Cause> {
        ends.responder.check(msn)?;
        let operation = Operation::Atomic(request.word, request.op);
        let refused = |refused| terminate::cause(&operation, refused);
        if !request.word.to.is_multiple_of(8) {
            return Err(refused(Refused::Unaligned));
        }
        let inbound = self.request(operation, 8, end);
        let old = ends.memory.atomic(&inbound).map_err(refused)?;
        self.begun += 1;
        ends.responder.atomic(request.id, old);
        Ok(Step::Ended)
    }

    const fn request(&self, operation: Operation, len: u32, end: StreamPos) -> Inbound {
        let (at, last, solicited, number) = (0, true, false, self.begun);
        Inbound { operation, at, len, last, solicited, number, end }
    }
}

const fn step(last: bool) -> Step {
    if last { Step::Ended } else { Step::Placed }
}

/// Ends a message whose last segment has been placed.
fn finish(inbound: &Inbound, memory: &mut impl Memory) -> Result<Step, Cause> {
    match memory.end(inbound) {
        Ok(Ended::Now) => Ok(Step::Ended),
        Ok(Ended::Later) => Ok(Step::Later),
        Err(refused) => Err(terminate::cause(&inbound.operation, refused)),
    }
}
