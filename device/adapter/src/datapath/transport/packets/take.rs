//! Passes work requests from the send queue to the engine.

use vrnic_abi::cq::Status;
use vrnic_abi::qp::State;

use super::message::request;
use super::turn::Sending;
use crate::datapath::local_wr;
use crate::datapath::sgl::SgList;
use crate::datapath::transport::taking::{Protocol, Queue};
use crate::datapath::turn::TurnContext;
use crate::host::Host;
use crate::objects::qp::Qp;
use crate::objects::qp::outstanding::{End, Posted};
use crate::requests::wqe::SendWqe;

impl<H: Host> Protocol<H> for Sending<'_, '_, H> {
    fn admits(&mut self) -> bool {
        let sends = self.qp.state() == State::Rts || self.requester.current.is_some();
        sends && self.sender.has_room() && !self.sender.outstanding.has_failed()
    }

    fn queue(&mut self) -> Queue<'_, H> {
        let outstanding = &mut self.sender.outstanding;
        Queue { qp: self.qp, requester: self.requester, outstanding }
    }

    fn start(&mut self, here: &TurnContext<'_, H>, send: &SendWqe, raw: &[u8]) -> bool {
        let Self { qp, sender, .. } = self;
        let mut posted = Posted { send: *send, opcode: send.completed(), command: None, end: None };
        if send.opcode.info().command {
            match local_wr::carried_key(here, qp, send, raw, None) {
                Ok(command) => posted.command = Some(command),
                Err(denied) => posted.end = Some(End::Refused(denied)),
            }
        }
        if posted.end.is_none() {
            posted.end = self::check(here, qp, send, raw).err();
        }
        let pushes = |request| sender.engine.push(request).is_ok();
        if posted.end.is_none() && !request(qp, send, raw).is_some_and(pushes) {
            posted.end = Some(End::Failed(Status::LocQpOpErr.into()));
        }
        sender.outstanding.post(posted, raw);
        true
    }
}

/// Checks the requester's own memory before any packet is sent.
fn check<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Qp<H>,
    send: &SendWqe,
    raw: &[u8],
) -> Result<(), End> {
    let checked = SgList::default().add_own(here, qp.user(), send, raw);
    checked.map_err(|denied| End::Failed(denied.into()))
}
