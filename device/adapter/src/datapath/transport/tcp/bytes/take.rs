//! Takes work requests off the send queue.

use vrnic_abi::cq::Status;
use vrnic_abi::qp::State;
use vrnic_abi::sq::Opcode;

use super::turn::ToeTurn;
use crate::datapath::transport::taking::{Next, Protocol, Queue, take_all};
use crate::datapath::transport::tcp::iscsi;
use crate::datapath::turn::TurnContext;
use crate::datapath::wqe_fetch::Batch;
use crate::host::Host;
use crate::objects::qp::outstanding::{End, Posted};
use crate::objects::qp::tcp::bytes::sends::Sends;
use crate::requests::wqe::SendWqe;

impl<H: Host> Protocol<H> for ToeTurn<'_, H> {
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

impl<H: Host> ToeTurn<'_, H> {
    /// Takes as many work requests as there is room for. Returns `None` if the QP has failed.
    pub(super) fn take(&mut self, batch: &mut Batch) -> Option<Next> {
        let (network, qp, slice) = (self.network, self.qp, self.slice);
        take_all(self, &TurnContext::new(network.core(), qp, slice), batch)
    }
}
