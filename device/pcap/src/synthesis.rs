//! Frames of messages that were exchanged without a wire.
//!
//! A conversation holds both halves of a connection, and passes the packets of one to the other. So
//! the frames have the numbers, requests for acknowledgements and answers that a wire would show.

use vrnic_packet::Nanos;
use vrnic_roce::Psn;
use vrnic_roce::requester::{self, Recovery, Rejected, Requester, Transmit, Work, WorkRequest};
use vrnic_roce::responder::{self, Reply, Responder, Step, Verdict};
use vrnic_roce::time::AckTimeout;
use vrnic_roce::wire::build::FRAME_MAX;
use vrnic_roce::wire::numbers::Srqn;
use vrnic_roce::wire::opcode::Transport;
use vrnic_roce::wire::syndrome::RnrTimer;
use vrnic_roce::wire::{Frame, Layout, Mtu, Path, Qpn};

/// The comment of frames that were never on a wire.
pub const COMMENT: &str = "synthesised by vrnicd: exchanged by memcpy";

/// Packets that may be outstanding: all of the longest message.
const WINDOW: u32 = (1 << 23) - 1;

/// The two ends of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Parties {
    /// RC, UC or XRC.
    pub transport: Transport,
    /// Path MTU.
    pub mtu: Mtu,
    /// The QP that sends requests.
    pub requester: Qpn,
    /// The QP that they are for.
    pub responder: Qpn,
    /// The number of the first packet.
    pub first_psn: Psn,
    /// The way of requests.
    pub there: Path,
    /// The way of answers.
    pub back: Path,
    /// The wait that a responder without a receive demands.
    pub min_rnr_timer: RnrTimer,
}

/// The direction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the requester.
    There,
    /// From the responder.
    Back,
}

/// A message that was exchanged.
pub struct Message<'a> {
    /// The operation.
    pub work: Work,
    /// Bytes; of atomics 8.
    pub length: u32,
    /// Asks for a solicited event.
    pub solicited: bool,
    /// XRC: the SRQ that the message is for.
    pub srqn: Srqn,
    /// The result: [`Verdict::Executed`], the old value of an atomic, or a refusal, which answers
    /// the first packet.
    pub verdict: Verdict,
    /// Copies bytes of the message at an offset into a packet.
    pub payload: &'a mut dyn FnMut(u32, &mut [u8]),
}

impl std::fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { work, length, verdict, .. } = self;
        (work, length, verdict).fmt(f)
    }
}

/// A connection whose messages are shown as frames.
#[derive(Debug)]
pub struct Conversation {
    parties: Parties,
    requester: Requester,
    responder: Responder,
    frame: Box<[u8]>,
}

impl Conversation {
    /// Makes a conversation that begins with the first packet of its connection.
    #[must_use]
    pub fn new(parties: Parties) -> Self {
        let Parties { transport, mtu, first_psn, .. } = parties;
        let requester = Requester::new(requester::Config {
            transport,
            destination: parties.responder,
            mtu,
            first_psn,
            timeout: AckTimeout::new(0),
            retry_count: 7,
            rnr_retry: 7,
            max_rd_atomic: 1,
            window: WINDOW,
            recovery: Recovery::GoBackN,
            congestion_control: false,
            capacity: 1,
        });
        let responder = Responder::new(responder::Config {
            transport,
            destination: parties.requester,
            mtu,
            first_psn,
            min_rnr_timer: parties.min_rnr_timer,
            max_dest_rd_atomic: 1,
            hold: 0,
        });
        Self { parties, requester, responder, frame: vec![0; FRAME_MAX].into() }
    }

    /// Makes the frames of a message and its answer, and gives them to `emit`. The message of a
    /// responder that was not ready is repeated when it is ready, with another call.
    ///
    /// # Errors
    /// The reason for which there is no such message; the conversation has ended if a message was
    /// refused.
    pub fn message(
        &mut self,
        message: Message<'_>,
        now: Nanos,
        emit: &mut dyn FnMut(Direction, &[u8]),
    ) -> Result<(), Rejected> {
        let Message { work, length, solicited, srqn, verdict, payload } = message;
        if let Some(deadline) = self.requester.deadline() {
            // The responder was not ready; the request is in the ledger.
            self.requester.expire(deadline.max(now));
        } else {
            let (signaled, fence) = (true, false);
            let request = WorkRequest { id: 0, work, length, solicited, signaled, fence, srqn };
            self.requester.push(request)?;
        }
        let reliable = self.parties.transport.is_reliable();
        let (mut good, mut first) = (true, self.requester.psn());
        while good && let Some(transmit) = self.requester.next(now) {
            let Some(end) = self.request(&transmit, payload) else { break };
            let frame = self.frame.get(..end).unwrap_or_default();
            emit(Direction::There, frame);
            first = if transmit.range.start == 0 { transmit.head.psn } else { first };
            good = !reliable || execute(&mut self.responder, frame, verdict);
        }
        while let Some(reply) = self.responder.next_reply() {
            let Some(end) = self.reply(&reply, first, payload) else { break };
            let frame = self.frame.get(..end).unwrap_or_default();
            emit(Direction::Back, frame);
            if let Ok(Some(parsed)) = Frame::parse(frame)
                && let Ok(packet) = parsed.packet()
            {
                let _effect = self.requester.receive(now, &packet);
            }
        }
        while self.requester.next_completion().is_some() {}
        Ok(())
    }

    /// Writes the frame of a request.
    fn request(
        &mut self,
        transmit: &Transmit,
        payload: &mut dyn FnMut(u32, &mut [u8]),
    ) -> Option<usize> {
        let Transmit { head, body, range, .. } = transmit;
        let frame = &mut self.frame;
        let layout = Layout::write(frame, &self.parties.there, head, body, range.len()).ok()?;
        fill(frame, &layout, |to| payload(range.start, to))
    }

    /// Writes the frame of an answer to a message whose first packet has this number.
    fn reply(
        &mut self,
        reply: &Reply,
        first: Psn,
        payload: &mut dyn FnMut(u32, &mut [u8]),
    ) -> Option<usize> {
        let length = reply.read.map_or(0, |read| read.length as usize);
        let start = reply.head.psn.since(first).wrapping_mul(self.parties.mtu.bytes());
        let (frame, path) = (&mut self.frame, &self.parties.back);
        let layout = Layout::write(frame, path, &reply.head, &reply.body, length).ok()?;
        fill(frame, &layout, |to| payload(start, to))
    }
}

/// Gives a request to the responder. Returns whether more packets of the message follow.
fn execute(responder: &mut Responder, frame: &[u8], verdict: Verdict) -> bool {
    let Ok(Some(parsed)) = Frame::parse(frame) else { return false };
    let Ok(packet) = parsed.packet() else { return false };
    match responder.receive(&packet) {
        Ok(Step::Execute(_)) => responder.end(verdict).is_none() && verdict != Verdict::NotReady,
        _ => false,
    }
}

/// Writes the payload of a frame whose headers have been written. Returns the length of the frame.
fn fill(frame: &mut [u8], layout: &Layout, payload: impl FnOnce(&mut [u8])) -> Option<usize> {
    payload(frame.get_mut(layout.payload())?);
    layout.seal(frame).ok()
}
