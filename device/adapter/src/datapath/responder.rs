//! The receiving half: takes what a peer's requester brings, under the responder's lock.

use std::any::Any;
use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vrnic_abi::cq::{Opcode, Status};
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{Access, State, Type};
use vrnic_abi::sq::{self, Flags};

use crate::datapath::sgl::Side;
use crate::datapath::turn::Site;
use crate::datapath::wqe::{Recv, Send};
use crate::datapath::xrc;
use crate::function::Function;
use crate::host::{Host, Memory};
use crate::memory::tpt::{Denied, User};
use crate::objects::completion::{Completion, Key};
use crate::objects::qp::{Ended, Qp, Responder};
use crate::stats::Counter;

/// The responder's QP, while a requester has its turn.
pub struct There<'a, H: Host> {
    /// Its function.
    pub site: Site<'a, H>,
    /// The QP.
    pub qp: &'a Arc<Qp<H>>,
    /// Whether the requester's turn is about the responder's own objects just now.
    acts: Cell<bool>,
}

impl<'a, H: Host> There<'a, H> {
    /// Holds the memory of `function`, whose QP it is.
    #[inline]
    pub fn new(function: &'a Arc<Function<H>>, qp: &'a Arc<Qp<H>>) -> Self {
        Self { site: Site::new(function, qp), qp, acts: Cell::new(false) }
    }

    /// Runs work on the responder's own objects. A panic in it is the failure of its function.
    #[inline(always)]
    pub fn act<T>(&self, work: impl FnOnce() -> T) -> T {
        let outer = self.acts.replace(true);
        let done = work();
        self.acts.set(outer);
        done
    }

    /// Charges the panic that has ended a turn to the responder's function, if the turn was about its objects. Else
    /// the panic goes on.
    #[cold]
    pub fn charge(&self, panic: Box<dyn Any + std::marker::Send>) {
        if !self.acts.get() {
            resume_unwind(panic);
        }
        self.site.host().fail();
    }
}

/// What a responder answers instead of taking a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No receive is posted: RNR NAK.
    NotReady,
    /// The operation is malformed or not enabled for the QP: NAK "invalid request".
    Invalid,
    /// The remote key does not allow it: NAK "remote access error".
    Access(Denied),
    /// The responder's own queue or memory is faulty: NAK "remote operational error".
    Operational,
    /// The responder's receive is malformed: NAK "remote operational error".
    Malformed,
    /// The rest of a message whose beginning came before a reset: no answer, as hardware gives none to what is out of
    /// sequence.
    Unexpected,
    /// The receive's buffer is too short: NAK "invalid request", and an error there too.
    TooShort,
}

impl Refusal {
    /// Status at the requester, and the number of the check that failed.
    #[must_use]
    pub const fn requester_status(self) -> (Status, u32) {
        match self {
            Self::NotReady => (Status::RnrRetryExcErr, 0),
            Self::Unexpected => (Status::RetryExcErr, 0),
            Self::Invalid | Self::TooShort => (Status::RemInvReqErr, 0),
            Self::Access(denied) => (denied.remote_status(), denied as u32),
            Self::Operational => (Status::RemOpErr, Denied::Memory as u32),
            Self::Malformed => (Status::RemOpErr, 0),
        }
    }
}

/// RNR timer codes in units of 10 µs (IBTA volume 1, table 45).
const RNR_TIMERS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// The time that an RNR timer code stands for, in nanoseconds.
#[must_use]
pub fn rnr_delay(code: u8) -> u64 {
    let units = RNR_TIMERS.get(usize::from(code)).copied().unwrap_or(1);
    u64::from(units) * 10_000
}

/// Makes sure that a receive is taken for the message in progress, of which `done` bytes have come.
///
/// # Errors
/// [`Refusal::NotReady`] when none is posted, [`Refusal::Operational`] when the queue is faulty,
/// [`Refusal::Invalid`] when a message begins though the one before has not ended, [`Refusal::Unexpected`] when one goes
/// on that has not begun here.
pub fn take<H: Host>(
    there: &There<'_, H>,
    responder: &mut Responder,
    done: u64,
) -> Result<(), Refusal> {
    // What an unreliable connection has lost the end of leaves its receive to the next message.
    if responder.current.is_some() && done == 0 && there.qp.kind != Type::Uc {
        return Err(Refusal::Invalid);
    }
    if responder.current.is_none() {
        if done > 0 {
            return Err(Refusal::Unexpected);
        }
        let recv = next(there, responder)?.ok_or(Refusal::NotReady)?;
        responder.current = Some(recv);
    }
    Ok(())
}

/// Takes the next posted receive, of the QP's own queue or of its SRQ.
///
/// # Errors
/// [`Refusal::Operational`] when the queue's index or memory is faulty.
pub fn next<H: Host>(
    there: &There<'_, H>,
    responder: &mut Responder,
) -> Result<Option<Recv>, Refusal> {
    let Some(ring) = &there.qp.rq else { return next_shared(there, responder) };
    let index = responder.ci;
    let posted = there.site.host().bar_load32(there.qp.slot_offset + 4).wrapping_sub(index);
    if posted == 0 {
        return Ok(None);
    }
    let bytes = responder.raw.get_mut(..ring.stride()).ok_or(Refusal::Operational)?;
    let read = ring.addr(index).filter(|_| posted <= ring.size());
    if read.is_none_or(|addr| there.site.memory.read(addr, bytes).is_err()) {
        there.site.function.warn(|name| {
            tracing::warn!(
                function = name,
                qpn = there.qp.qpn,
                posted,
                "receive queue: producer index beyond the ring, or its memory is gone"
            );
        });
        return Err(Refusal::Operational);
    }
    responder.ci = index.wrapping_add(1);
    there.site.step(Counter::RecvWrs);
    Ok(Some(Recv::parse(bytes, index, there.qp.pdn)))
}

/// The peer's QP as a user of keys here.
#[inline]
pub fn user<H: Host>(there: &There<'_, H>, responder: &Responder) -> User {
    match &responder.xrc {
        Some(srq) if there.qp.kind == Type::XrcTgt => User { pdn: srq.pdn, qpn: there.qp.qpn },
        _ => there.qp.user(),
    }
}

/// Takes the next receive of the SRQ, if the QP or the message has one.
#[inline(never)]
fn next_shared<H: Host>(
    there: &There<'_, H>,
    responder: &mut Responder,
) -> Result<Option<Recv>, Refusal> {
    let Responder { xrc, raw, .. } = responder;
    let Some(srq) = there.qp.srq.as_ref().or(xrc.as_ref()) else { return Ok(None) };
    srq.take(&there.site, raw).map_err(|_| Refusal::Operational)
}

/// Adds to `side` the buffer for a SEND of `length` bytes, of which `done` have come.
///
/// # Errors
/// When there is no receive, or it does not fit, or its memory may not be written.
pub fn receive<'a, H: Host>(
    there: &'a There<'_, H>,
    responder: &mut Responder,
    side: &mut Side<'a>,
    length: u64,
    done: u64,
) -> Result<(), Refusal> {
    take(there, responder, done)?;
    let recv = responder.current.as_ref().ok_or(Refusal::NotReady)?;
    let segments = recv.segments.as_ref().ok_or(Refusal::Malformed)?;
    if segments.total() < length {
        return Err(Refusal::TooShort);
    }
    let own = (&there.site, recv.pdn);
    side.add_filled(own, (segments, &responder.raw), Access::LOCAL_WRITE, length)
        .map_err(|_| Refusal::Operational)
}

/// Completes the receive that a message has filled or used up; `ended` is a key that the message has ended.
///
/// # Errors
/// When the receive CQ takes no entry any more; the QP has failed then.
pub fn received<H: Host>(
    there: &There<'_, H>,
    responder: &mut Responder,
    send: &Send,
    src_qpn: u32,
    ended: Option<Ended>,
) -> Result<(), Refusal> {
    let Some(recv) = responder.current.take() else { return Ok(()) };
    let write = send.opcode == sq::Opcode::WriteImm;
    let completion = Completion {
        wr_id: recv.wr_id,
        wqe_index: recv.index,
        qpn: there.qp.qpn,
        opcode: if write { Opcode::RecvWriteImm } else { Opcode::Recv },
        status: Status::Success,
        vendor_err: 0,
        byte_len: u32::try_from(send.length).unwrap_or(u32::MAX),
        imm: send.imm(),
        solicited: send.flags.contains(Flags::SOLICITED),
        src_qpn,
        origin: None,
        srqn: 0,
        key: ended.map(|(Ended::Invalidated(key) | Ended::Command(key))| Key::Ended(key)),
    };
    complete(there, responder, &completion)
}

/// Writes the completion of a receive; its event, if one is due, is left for the requester to fire.
///
/// # Errors
/// When the receive CQ takes no entry any more; the QP has failed then.
pub fn complete<H: Host>(
    there: &There<'_, H>,
    responder: &mut Responder,
    completion: &Completion,
) -> Result<(), Refusal> {
    if there.qp.kind == Type::XrcTgt {
        return xrc::complete(there, responder, completion);
    }
    match there.site.complete_quietly(&there.qp.recv_cq, completion) {
        Ok(due) => {
            responder.event_due |= due;
            Ok(())
        }
        Err(_) => {
            there.site.function.qp_failed(there.qp, Kind::QpFatal);
            Err(Refusal::Operational)
        }
    }
}

/// Moves the responder's QP to the error state for `refusal`, completes the receive it concerns and tells
/// the guest.
pub fn fail<H: Host>(there: &There<'_, H>, responder: &mut Responder, refusal: Refusal) {
    let (kind, status) = match refusal {
        Refusal::Access(Denied::Memory) | Refusal::Operational => {
            (Kind::QpFatal, Status::LocProtErr)
        }
        Refusal::Access(_) => {
            there.site.step(Counter::RespRemoteAccessErrors);
            (Kind::QpAccessError, Status::WrFlushErr)
        }
        Refusal::Malformed => (Kind::QpFatal, Status::LocQpOpErr),
        Refusal::TooShort => {
            there.site.step(Counter::RespLocalLengthError);
            (Kind::QpRequestError, Status::LocLenErr)
        }
        Refusal::Invalid => {
            there.site.step(Counter::RespRemoteInvalidRequest);
            (Kind::QpRequestError, Status::WrFlushErr)
        }
        Refusal::NotReady | Refusal::Unexpected => return,
    };
    // A receive with an error of its own tells by its completion; otherwise an event does.
    let own = responder.current.is_some() && status != Status::WrFlushErr;
    let failed = there.qp.fail();
    if let Some(recv) = responder.current.take() {
        // An overflowing CQ has raised its own event.
        let _overflow = complete_failed(there, responder, &flushed(there.qp.qpn, &recv, status));
    }
    if failed && !own {
        there.site.function.report(kind, there.qp.qpn);
    }
    there.site.function.schedule(there.qp);
}

/// Writes the completion of a receive that took no message, and fires its event.
///
/// # Errors
/// When the CQ takes no entry any more.
fn complete_failed<H: Host>(
    there: &There<'_, H>,
    responder: &Responder,
    completion: &Completion,
) -> Result<(), Refusal> {
    if there.qp.kind == Type::XrcTgt {
        return xrc::complete(there, responder, completion);
    }
    there.site.complete(&there.qp.recv_cq, completion).map_err(|_| Refusal::Operational)
}

/// Completes up to [`crate::datapath::requester::BATCH`] receives of a QP in the error state with a flush error;
/// returns how many. Those of an SRQ are other QPs' to use, but for the one that a message has begun to fill.
pub fn flush<H: Host>(function: &Arc<Function<H>>, qp: &Arc<Qp<H>>) -> u32 {
    let there = There::new(function, qp);
    let mut responder = qp.responder.lock();
    let mut count = 0;
    while count < crate::datapath::requester::BATCH
        && qp.state() == State::Err
        && !qp.dead.load(Ordering::Acquire)
    {
        let recv = match responder.current.take() {
            Some(recv) => recv,
            None if qp.rq.is_none() => break,
            None => match next(&there, &mut responder) {
                Ok(Some(recv)) => recv,
                Ok(None) | Err(_) => break,
            },
        };
        let completion = flushed(qp.qpn, &recv, Status::WrFlushErr);
        if complete_failed(&there, &responder, &completion).is_err() {
            break;
        }
        count += 1;
    }
    tell_last(function, qp, &mut responder);
    count
}

/// Tells the guest, once, that a QP in the error state takes nothing from its SRQ any more: who takes holds the
/// responder's lock, and finds the state.
fn tell_last<H: Host>(function: &Function<H>, qp: &Qp<H>, responder: &mut Responder) {
    let ended = qp.state() == State::Err && !qp.dead.load(Ordering::Acquire);
    let shares = qp.srq.is_some() || qp.kind == Type::XrcTgt;
    if shares && ended && !responder.last_told {
        responder.last_told = true;
        function.report(Kind::QpLastWqe, qp.qpn);
    }
}

/// The completion of a receive that took no message.
#[must_use]
pub fn flushed(qpn: u32, recv: &Recv, status: Status) -> Completion {
    Completion {
        wr_id: recv.wr_id,
        wqe_index: recv.index,
        qpn,
        opcode: Opcode::Recv,
        status,
        vendor_err: 0,
        byte_len: 0,
        imm: None,
        solicited: false,
        src_qpn: 0,
        origin: None,
        srqn: 0,
        key: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rnr_timers_follow_the_table() {
        assert_eq!(rnr_delay(0), 655_360_000);
        assert_eq!(rnr_delay(1), 10_000);
        assert_eq!(rnr_delay(12), 640_000);
        assert_eq!(rnr_delay(31), 491_520_000);
    }
}
