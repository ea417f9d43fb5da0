//! Requests that were executed before. They arrive again if their answer was lost, or if the
//! network has duplicated them. The responder never executes them again, and never refuses them
//! (IBTA volume 1, 9.7.5.1.2).

use super::{Responder, Step};
use crate::discard::Discard;
use crate::psn::Psn;
use crate::wire::Request;

impl Responder {
    pub(super) fn duplicate(
        &mut self,
        psn: Psn,
        request: Request,
        ack_request: bool,
    ) -> Result<Step, Discard> {
        let known = match request {
            Request::Send(_) | Request::Write(_) => {
                if ack_request {
                    self.acknowledge_again(psn);
                }
                true
            }
            Request::Read(reth) => self.resources.repeat_read(psn, reth, self.config.mtu),
            Request::CompareSwap(_)
            | Request::FetchAdd(_)
            | Request::Flush(..)
            | Request::AtomicWrite(_) => self.resources.repeat_whole(psn, request),
        };
        if !known {
            return Err(Discard::UnknownDuplicate);
        }
        self.counters.duplicates += 1;
        Ok(Step::Duplicate)
    }

    /// Acknowledges all executed requests, unless a READ or atomic arrived later than the
    /// duplicate. In that case, the answer to the READ or atomic also acknowledges the duplicate,
    /// and the requester asks for this answer again if it was lost. A separate acknowledgement
    /// could arrive in the middle of this answer, and rxe would then end the connection
    /// (rxe_comp.c, `check_psn`; hfi1 rc.c, `rc_rcv_error`).
    fn acknowledge_again(&mut self, psn: Psn) {
        let last = self.expected.previous();
        if !self.resources.has_behind(psn) && self.ack.is_none_or(|due| due.is_before(last)) {
            self.ack = Some(last);
        }
    }
}
