//! Passes work requests from the send queue to the engine.

use vrnic_abi::cq::Status;
use vrnic_abi::qp::{State, Type};
use vrnic_abi::sq::Class;

use super::message::request;
use super::turn::Sending;
use crate::datapath::local_wr;
use crate::datapath::sgl::SgList;
use crate::datapath::transport::executing::wait_for_pages;
use crate::datapath::transport::taking::{Protocol, Queue};
use crate::datapath::turn::TurnContext;
use crate::host::{HeldMemory, Host};
use crate::memory::tpt::Denied;
use crate::objects::qp::Qp;
use crate::objects::qp::outstanding::{End, Posted};
use crate::requests::wqe::SendWqe;

impl<H: Host> Protocol<H> for Sending<'_, '_, H> {
    fn admits(&mut self) -> bool {
        if self.requester.not_before.is_some_and(|until| self.here.host().now() < until) {
            return false;
        }
        self.requester.not_before = None;
        let sends = self.qp.state() == State::Rts || self.requester.current.is_some();
        sends && self.sender.has_room() && !self.sender.outstanding.has_failed()
    }

    fn queue(&mut self) -> Queue<'_, H> {
        let outstanding = &mut self.sender.outstanding;
        Queue { qp: self.qp, requester: self.requester, outstanding }
    }

    fn start(&mut self, here: &TurnContext<'_, H>, send: &SendWqe, raw: &[u8]) -> bool {
        let Self { qp, sender, .. } = self;
        if sender.outstanding.is_empty() {
            here.memory.forget();
        }
        let mut posted = Posted { send: *send, opcode: send.completed(), command: None, end: None };
        if send.opcode.info().command {
            match local_wr::carried_key(here, qp, send, raw, None) {
                Ok(command) => posted.command = Some(command),
                Err(denied) => posted.end = Some(End::Refused(denied)),
            }
        }
        if posted.end.is_none() {
            posted.end = match self::check(here, qp, send, raw) {
                Ok(()) => None,
                Err(Denied::Absent) => {
                    wait_for_pages(here, self.requester, send, raw);
                    return false;
                }
                Err(denied) => Some(End::Failed(denied.into())),
            };
        }
        let pushes = |request| sender.engine.push(request).is_ok();
        if posted.end.is_none() && !request(qp, send, raw).is_some_and(pushes) {
            posted.end = Some(End::Failed(Status::LocQpOpErr.into()));
        }
        sender.outstanding.post(posted, raw);
        true
    }
}

/// Checks the requester's own memory before any packet is sent. The bytes of a reliable connection
/// may be absent until they are sent, but those for an answer are present at first.
fn check<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Qp<H>,
    send: &SendWqe,
    raw: &[u8],
) -> Result<(), Denied> {
    let mut side = SgList::default();
    side.add_own(here, qp.user(), send, raw)?;
    let is_immediate = !side.has_ranges() && side.is_immediate::<H>(&here.memory, 0..8);
    if send.opcode.info().class == Class::Atomic && !is_immediate {
        return Err(Denied::Memory);
    }
    let waits = qp.kind == Type::Uc || send.opcode.info().has_response();
    if !send.opcode.info().has_response() {
        here.memory.of_message(send.index.into());
        side.announce::<H>(&here.memory, 0..send.length, 1);
    }
    if waits { side.check_first(here, send.length) } else { Ok(()) }
}
