//! Takes work requests off the send queue.

use vrnic_abi::cq::Status;
use vrnic_abi::qp::State;
use vrnic_abi::sq::Opcode;

use super::turn::BytesTurn;
use crate::datapath::transport::taking::{Protocol, Queue};
use crate::datapath::transport::tcp::iscsi;
use crate::datapath::turn::TurnContext;
use crate::host::Host;
use crate::objects::qp::outstanding::{End, Posted};
use crate::objects::qp::tcp::bytes::sends::Sends;
use crate::requests::wqe::SendWqe;

impl<H: Host> Protocol<H> for BytesTurn<'_, H> {
    fn admits(&mut self) -> bool {
        let sends =
            matches!(self.qp.state(), State::Rts | State::Sqd) && !self.content.sends.is_over();
        sends && !self.link.outstanding().has_failed() && self.link.has_room(Sends::MAX_BYTES)
    }

    fn queue(&mut self) -> Queue<'_, H> {
        let outstanding = self.link.outstanding_mut();
        Queue { qp: self.qp, requester: self.requester, outstanding }
    }

    fn start(&mut self, here: &TurnContext<'_, H>, send: &SendWqe, raw: &[u8]) -> bool {
        if let Some(session) = &mut self.content.session {
            let posted = iscsi::post(here, self.qp, session, send, raw);
            self.link.outstanding_mut().post(posted, raw);
            return true;
        }
        if send.opcode != Opcode::Send {
            let end = Some(End::Failed(Status::LocQpOpErr.into()));
            let posted = Posted { send: *send, opcode: send.completed(), command: None, end };
            self.link.outstanding_mut().post(posted, raw);
            return true;
        }
        let posted = Posted { send: *send, opcode: send.completed(), command: None, end: None };
        self.link.outstanding_mut().post(posted, raw);
        let una = self.link.tcp().acknowledged();
        self.content.sends.push(send.index, send.length, una);
        true
    }
}
