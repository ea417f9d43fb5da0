//! Requests that were executed before. Either their answer was lost, or the network has doubled
//! them. They are never executed again and never refused (IBTA volume 1, 9.7.5.1.2).

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
            Request::CompareSwap(_) | Request::FetchAdd(_) => {
                self.resources.repeat_atomic(psn, request)
            }
            Request::Flush(..) | Request::AtomicWrite(_) => false,
        };
        if !known {
            return Err(Discard::UnknownDuplicate);
        }
        self.counters.duplicates += 1;
        Ok(Step::Duplicate)
    }

    /// Acknowledges all that has been executed, but nothing at or behind a READ or atomic that came
    /// later than the duplicate: its answer may have been lost as well, and an acknowledgement
    /// behind it would tell the requester so before it has asked again.
    fn acknowledge_again(&mut self, psn: Psn) {
        let end = match self.resources.first_behind(psn) {
            // An answer that is due acknowledges the duplicate, too.
            Some((_, false)) => return,
            Some((first, true)) => first,
            None => self.expected,
        };
        let last = end.previous();
        if self.ack.is_none_or(|due| due.is_before(last)) {
            self.ack = Some(last);
        }
    }
}
