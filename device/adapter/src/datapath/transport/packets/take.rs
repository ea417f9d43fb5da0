//! Takes work requests out of the send queue, and passes them to the engine.

use vrnic_abi::cq::Status;
use vrnic_abi::qp::{Access, State};
use vrnic_abi::sq::Opcode;

use super::message::request;
use super::turn::{Next, Sending};
use crate::datapath::memory_wr::{self, Settled};
use crate::datapath::send_queue::{BATCH, Entry, Taken, Turn, take};
use crate::datapath::sgl::SgList;
use crate::datapath::turn::TurnContext;
use crate::host::Host;
use crate::memory::tpt::Denied;
use crate::objects::qp::Qp;
use crate::objects::qp::outstanding::{CarriedKey, End, Posted};
use crate::requests::wqe::SendWqe;

/// The state of a work request that was taken.
enum Begun {
    /// It is outstanding, or has ended.
    Posted,
    /// It must wait until all requests before it, or its direct transfer, have ended.
    Later,
    /// A key was invalidated. The work request ends when the key is no longer used.
    Readers,
}

impl<H: Host> Sending<'_, H> {
    /// Takes as many work requests as the engine has room for. Returns how the turn continues.
    pub(super) fn take(&mut self) -> Next {
        let mut entry = Entry::EMPTY;
        for _ in 0..BATCH {
            if self.qp.state() != State::Rts && self.requester.current.is_none() {
                return Next::GoOn { more: false };
            }
            if !self.sender.has_room() || self.sender.outstanding.has_failed() {
                return Next::GoOn { more: false };
            }
            match take(&self.here, self.qp, self.requester, self.batch, &mut entry) {
                Taken::Entry => {}
                Taken::Empty => return Next::GoOn { more: false },
                Taken::Malformed(malformed) => {
                    self.sender.outstanding.post(Posted::malformed(&malformed), &[]);
                    return Next::GoOn { more: false };
                }
                Taken::Failed => return Next::End(Turn::Failed),
            }
            match self.begin(&entry) {
                Begun::Posted => {}
                Begun::Later => return Next::GoOn { more: false },
                Begun::Readers => return Next::Readers(entry.send.index),
            }
            if self.here.slice.is_over() {
                break;
            }
        }
        Next::GoOn { more: true }
    }

    /// Executes a request that concerns a key, or passes a message to the engine.
    fn begin(&mut self, Entry { send, place, .. }: &Entry) -> Begun {
        let Self { here, qp, requester, sender, batch, .. } = self;
        let raw = batch.entry(place);
        let mut posted = Posted { send: *send, opcode: send.completed(), command: None, end: None };
        if send.is_about_key() {
            // Requests before it may use a key that it invalidates. A registration invalidates no
            // such key.
            if send.opcode != Opcode::RegMr && !sender.outstanding.is_empty() {
                requester.keep(send, raw, 0);
                return Begun::Later;
            }
            match memory_wr::run(here, qp, (send, raw)) {
                Ok(Settled::Later) => {
                    requester.keep(send, raw, 0);
                    return Begun::Later;
                }
                Ok(Settled::Now) => posted.end = Some(End::Done),
                Ok(Settled::AfterReaders) => {
                    sender.outstanding.post(posted, raw);
                    return Begun::Readers;
                }
                Err(denied) => posted.end = Some(End::Refused(denied)),
            }
            sender.outstanding.post(posted, raw);
            return Begun::Posted;
        }
        if send.opcode.info().command {
            match command(here, qp, (send, raw)) {
                Ok(command) => posted.command = Some(command),
                Err(denied) => posted.end = Some(End::Refused(denied)),
            }
        }
        if posted.end.is_none() {
            posted.end = self::check(here, qp, (send, raw)).err();
        }
        let pushes = |request| sender.engine.push(request).is_ok();
        if posted.end.is_none() && !request(qp, send, raw).is_some_and(pushes) {
            posted.end = Some(End::Failed(Status::LocQpOpErr.into()));
        }
        sender.outstanding.post(posted, raw);
        Begun::Posted
    }
}

/// Creates the key that a SEND_CMD carries.
#[cold]
fn command<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Qp<H>,
    (send, raw): (&SendWqe, &[u8]),
) -> Result<CarriedKey, Denied> {
    let key = memory_wr::open_command(here, qp, (send, raw))?;
    let (seg, _) = SendWqe::command(raw).ok_or(Denied::Bounds)?;
    let place = qp.tags.place(seg.tag_offset.get(), send.length).ok_or(Denied::Bounds)?;
    Ok(CarriedKey { key, place })
}

/// Checks the requester's own memory before any packet is sent.
fn check<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Qp<H>,
    (send, raw): (&SendWqe, &[u8]),
) -> Result<(), End> {
    let (own, mut side) = ((here, qp.pdn), SgList::default());
    let checked = if send.opcode.info().has_response() {
        side.add_list(own, (&send.segments, raw), Access::LOCAL_WRITE)
    } else {
        side.add_source(own, send, raw)
    };
    checked.map_err(|denied| End::Failed(denied.into()))
}
