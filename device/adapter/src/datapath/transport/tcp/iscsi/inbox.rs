//! The PDUs that arrive. Each completes a receive: with its header, and with its data unless that
//! goes to the buffer of a command.

use vrnic_abi::cq::Status;
use vrnic_abi::qp::Access;
use vrnic_iscsi::{Malformed, Part};
use vrnic_tcp::{Delivered, Delivery, Sink, StreamPos, Then};

use super::verdict;
use crate::datapath::local_wr::end_command;
use crate::datapath::peer_context::PeerContext;
use crate::datapath::refusal::Refusal;
use crate::datapath::responder::outcome;
use crate::datapath::responder::receives::{next, write};
use crate::datapath::sgl::SgList;
use crate::datapath::transport::tcp::bytes;
use crate::host::Host;
use crate::memory::tpt::{ByteRange, Denied};
use crate::objects::completion::{Completion, CompletionKey, Executed};
use crate::objects::qp::Responder;
use crate::objects::qp::tcp::bytes::receives::{Receives, StreamEnd};
use crate::objects::qp::tcp::iscsi::{Arriving, Session, Target, count};
use crate::slice::cost;
use crate::stats::Counter;

/// The receives of a QP, and the PDU in progress.
pub(in crate::datapath::transport::tcp) struct Inbox<'a, 't, H: Host> {
    there: &'a PeerContext<'t, H>,
    responder: &'a mut Responder,
    pub(super) receives: &'a mut Receives,
    session: &'a mut Session,
}

/// The reason for which the stream ends.
enum Stop {
    Refused(Refusal),
    Malformed(Malformed),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl<'a, 't, H: Host> Inbox<'a, 't, H> {
    /// Returns these receives with the PDU in progress.
    pub(in crate::datapath::transport::tcp) fn new(
        bytes: bytes::Inbox<'a, 't, H>,
        session: &'a mut Session,
    ) -> Self {
        let bytes::Inbox { there, responder, receives } = bytes;
        Self { there, responder, receives, session }
    }

    /// Takes bytes of the stream. Returns their number. Those behind them must wait for a receive,
    /// or for a later turn.
    fn take(&mut self, bytes: &[u8]) -> Result<usize, Stop> {
        let mut rest = bytes;
        loop {
            if self.session.arriving.waits && !self.begin()? {
                break;
            }
            if self.there.turn.slice.is_over() && !rest.is_empty() && rest.len() < bytes.len() {
                self.receives.tired = true;
                break;
            }
            match self.session.deframer.next(&mut rest).map_err(Stop::Malformed)? {
                Part::More => break,
                Part::Header => self.session.arriving.waits = true,
                Part::Data { at, bytes } => self.store(at, bytes)?,
                Part::End => self.finish()?,
            }
        }
        Ok(bytes.len() - rest.len())
    }

    /// Decides what happens to the PDU whose header is complete. Returns whether there is a receive
    /// for it, or none is needed.
    fn begin(&mut self) -> Result<bool, Refusal> {
        let bhs = self.session.deframer.bhs();
        let mut arriving = verdict::judge(self.there, self.session, &bhs);
        if !arriving.is_dropped {
            if self.responder.current.is_none() {
                self.responder.current = next(self.there, self.responder)?;
            }
            if self.responder.current.is_none() {
                return Ok(false);
            }
            self.write_header()?;
            verdict::begin(self.session, &bhs, &mut arriving);
        }
        self.there.turn.slice.charge(cost::REQUEST);
        self.session.arriving = arriving;
        Ok(true)
    }

    /// Copies the header to the beginning of the receive.
    fn write_header(&mut self) -> Result<(), Refusal> {
        let header = self.session.deframer.header();
        if self.room()? < header.len() as u64 {
            return Err(Refusal::TooShort);
        }
        write(self.there, self.responder, 0, header)?;
        self.receives.filled = header.len() as u64;
        Ok(())
    }

    /// Returns the length of the receive.
    fn room(&self) -> Result<u64, Refusal> {
        let recv = self.responder.current.as_ref().ok_or(Refusal::NotReady)?;
        Ok(recv.segments.as_ref().ok_or(Refusal::Malformed)?.total())
    }

    /// Puts data of the PDU where it belongs. `at` is the number of bytes before it.
    fn store(&mut self, at: u32, bytes: &[u8]) -> Result<(), Refusal> {
        match self.session.arriving.target {
            Target::Nowhere => {}
            Target::Receive => {
                let left = self.room()?.saturating_sub(self.receives.filled);
                let count = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                write(
                    self.there,
                    self.responder,
                    self.receives.filled,
                    bytes.get(..count).unwrap_or_default(),
                )?;
                self.receives.filled += count as u64;
                // Only the last part of the data that the receive has room for is counted.
                if count < bytes.len()
                    && !std::mem::replace(&mut self.session.arriving.is_cut, true)
                {
                    self::count(&mut self.session.counters.truncated, 1);
                }
            }
            Target::Buffer(offset) => {
                if let Err(denied) = self.place(offset + u64::from(at), bytes) {
                    // The command has ended, or its memory is gone, since the header came.
                    let arriving = &mut self.session.arriving;
                    (arriving.target, arriving.denied) = (Target::Nowhere, Some(denied));
                    count(&mut self.session.counters.refused, 1);
                }
            }
        }
        Ok(())
    }

    /// Copies data to the buffer of its command.
    fn place(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Denied> {
        let Some((key, _)) = self.session.arriving.executed.filter(|_| !bytes.is_empty()) else {
            return Ok(());
        };
        let (turn, count) = (&self.there.turn, bytes.len() as u64);
        let mut target = SgList::default();
        let range = ByteRange { addr: offset, len: count };
        target.add_command(turn, self.there.qp.user(), key, range, Access::REMOTE_WRITE)?;
        target.write::<H>(&turn.memory, 0, bytes).map_err(|_| Denied::Memory)?;
        turn.slice.charge_copy(count);
        turn.moved(count);
        Ok(())
    }

    /// Ends the PDU in progress.
    fn finish(&mut self) -> Result<(), Refusal> {
        let Arriving { is_dropped, target, executed, ends, denied, .. } =
            std::mem::take(&mut self.session.arriving);
        count(&mut self.session.counters.received, 1);
        if is_dropped {
            count(&mut self.session.counters.dropped, 1);
            return Ok(());
        }
        let mut denied = denied;
        let key = executed.and_then(|(key, id)| {
            if !ends {
                return Some(Executed { key, id, is_over: false });
            }
            let over = end_command(self.there.qp, key);
            match over {
                Ok(id) => {
                    // Only this QP uses the key, and it is locked.
                    self.there.qp.tpt.finish_command(key);
                    self.session.forget(key);
                    count(&mut self.session.counters.ended, 1);
                    Some(Executed { key, id, is_over: true })
                }
                Err(why) => {
                    denied = Some(why);
                    None
                }
            }
        });
        let counters = &mut self.session.counters;
        match target {
            Target::Buffer(_) => count(&mut counters.placed, 1),
            Target::Receive => count(&mut counters.whole, 1),
            Target::Nowhere => {}
        }
        self.complete(key, denied)
    }

    /// Completes the receive of a PDU.
    fn complete(&mut self, key: Option<Executed>, denied: Option<Denied>) -> Result<(), Refusal> {
        let filled = std::mem::take(&mut self.receives.filled);
        let recv = self.responder.current.take().ok_or(Refusal::NotReady)?;
        let completion = Completion {
            byte_len: u32::try_from(filled).unwrap_or(u32::MAX),
            key: key.map(CompletionKey::Executed),
            vendor_err: denied.map_or(0, |denied| denied as u32),
            ..Completion::of_receive(self.there.qp.qpn, &recv, Status::Success)
        };
        self.there.turn.step(Counter::RxSendReq);
        outcome::complete(self.there, self.responder, &completion)
    }

    /// Ends the stream.
    #[cold]
    fn fail(&mut self, stop: &Stop) {
        let refusal = match *stop {
            Stop::Refused(refusal) => refusal,
            Stop::Malformed(malformed) => {
                self.session.fail(malformed);
                Refusal::Invalid
            }
        };
        outcome::fail(self.there, self.responder, refusal);
    }

    /// Goes on with a PDU that has waited, and with the bytes of the guest's kernel. Returns
    /// whether bytes that TCP has stored may follow.
    pub(super) fn go_on(&mut self) -> bool {
        if let Err(stop) = self.take(&[]) {
            self.fail(&stop);
            return false;
        }
        if self.session.arriving.waits {
            return false;
        }
        if self.receives.early().is_empty() {
            return true;
        }
        let early = self.receives.take_early();
        let taken = self.take(early.bytes());
        if let Ok(taken) = taken {
            self.receives.pass(taken as u64);
        }
        self.receives.put_back(early);
        if let Err(stop) = taken {
            self.fail(&stop);
            return false;
        }
        self.receives.early().is_empty() && !self.session.arriving.waits
    }

    /// Tells the consumer that the target has closed the stream: the next receive completes without
    /// bytes. A PDU in progress is lost.
    pub(super) fn tell_end(&mut self) {
        if self.receives.end != StreamEnd::Due || !self.receives.early().is_empty() {
            return;
        }
        if self.session.arriving.waits || self.receives.held {
            return;
        }
        if self.responder.current.is_none() {
            match next(self.there, self.responder) {
                Ok(Some(recv)) => self.responder.current = Some(recv),
                Ok(None) => return,
                Err(refusal) => return self.fail(&refusal.into()),
            }
        }
        self.receives.filled = 0;
        self.receives.end = StreamEnd::Told;
        if let Err(refusal) = self.complete(None, None) {
            self.fail(&refusal.into());
        }
    }
}

impl<H: Host> Sink for Inbox<'_, '_, H> {
    fn progress(&mut self, unacknowledged: StreamPos, sent: StreamPos) {
        (self.session.una, self.session.sent) = (unacknowledged, sent);
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Delivered {
        let early = !self.receives.early().is_empty();
        let taken = if early { Ok(0) } else { self.take(delivery.bytes) };
        let taken = match taken {
            Ok(taken) => taken,
            Err(stop) => {
                self.fail(&stop);
                return Delivered { taken: 0, then: Then::Refuse };
            }
        };
        self.receives.held = taken < delivery.bytes.len() || self.session.arriving.waits;
        let then = if self.receives.held { Then::Hold } else { Then::Continue };
        Delivered { taken, then }
    }
}
