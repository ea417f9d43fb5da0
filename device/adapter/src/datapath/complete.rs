//! The end of work requests: the only code that writes their completions, except for the flush of a
//! queue ([`super::send_queue`]), which changes no state.

use std::sync::Arc;

use vrnic_abi::Key;
use vrnic_abi::admin::QpFlags;
use vrnic_abi::cq::{self, Status};
use vrnic_abi::eq::Kind;
use vrnic_abi::sq::Flags;
use vrnic_faults::Site;

use super::injected;
use super::send_queue::Turn;
use super::turn::TurnContext;
use crate::host::Host;
use crate::objects::completion::{Completion, CompletionKey, WrError};
use crate::objects::qp::Qp;
use crate::requests::wqe::SendWqe;

/// Completes the work requests of a QP.
pub(crate) struct Completer<'a, 't, H: Host> {
    /// The turn in which the work requests complete.
    pub(crate) here: &'a TurnContext<'t, H>,
    pub(crate) qp: &'a Arc<Qp<H>>,
}

impl<H: Host> Completer<'_, '_, H> {
    /// Returns whether the success of a work request is reported.
    #[inline]
    pub(crate) fn is_signaled(&self, send: &SendWqe) -> bool {
        self.qp.has(QpFlags::SIGNAL_ALL) || send.flags.contains(Flags::SIGNALED)
    }

    /// Returns the completion of a work request with this result. It reports `opcode`, and the key
    /// of the request's command.
    #[inline]
    pub(crate) fn completion(
        &self,
        send: &SendWqe,
        opcode: cq::Opcode,
        command: Option<Key>,
        result: Result<(), WrError>,
    ) -> Completion {
        let reads = result.is_ok() && send.opcode.info().has_response();
        let WrError { status, vendor_err } = result.err().unwrap_or(Status::Success.into());
        Completion {
            byte_len: if reads { u32::try_from(send.length).unwrap_or(u32::MAX) } else { 0 },
            key: command.map(CompletionKey::Carried),
            vendor_err,
            ..Completion::of_send(self.qp.qpn, send.id(), opcode, status)
        }
    }

    /// Ends a work request with this result, as [`Self::end`] does. The completion is made only if
    /// it is reported.
    #[inline]
    pub(crate) fn finish(
        &self,
        send: &SendWqe,
        opcode: cq::Opcode,
        command: Option<Key>,
        result: Result<(), WrError>,
    ) -> Option<Turn> {
        let signaled = self.is_signaled(send);
        if result.is_ok() && !signaled && !self.here.looks_at(Site::Completion) {
            return None;
        }
        self.end(&self.completion(send, opcode, command, result), signaled)
    }

    /// Ends a work request. The success of a request that is not signaled is not reported. If the
    /// request has failed, sets the state of the QP first, so that a program that sees the
    /// completion finds the QP in error. Returns the result of the turn if no further work request
    /// may be executed.
    #[inline]
    pub(crate) fn end(&self, completion: &Completion, signaled: bool) -> Option<Turn> {
        if completion.status == Status::Success
            && self.here.looks_at(Site::Completion)
            && let Some(status) = injected::status(self.here, self.qp.qpn, completion.opcode)
        {
            return self.conclude(&Completion { status, byte_len: 0, ..*completion }, signaled);
        }
        self.conclude(completion, signaled)
    }

    /// Ends a work request, as [`Self::end`] does, without rules for faults.
    #[inline]
    fn conclude(&self, completion: &Completion, signaled: bool) -> Option<Turn> {
        match completion.status {
            Status::Success if signaled => return self.report(completion),
            Status::Success => return None,
            Status::MwBindErr => self.qp.fail_key(),
            _ => self.qp.fail_send(),
        }
        self.report(completion);
        Some(Turn::Failed)
    }

    /// Writes a completion. Returns the result of the turn if the CQ has no room: the QP has failed
    /// then.
    #[inline]
    pub(crate) fn report(&self, completion: &Completion) -> Option<Turn> {
        if self.here.complete(&self.qp.send_cq, completion).is_ok() {
            return None;
        }
        self.qp.failed(self.here.core, Kind::QpFatal);
        Some(Turn::Failed)
    }
}
