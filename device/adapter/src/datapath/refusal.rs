//! Reasons for which a responder refuses a message.

use vrnic_abi::cq::Status;

use crate::memory::tpt::Denied;
use crate::objects::completion::WrError;

/// The answer of a responder that does not execute a request.
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
    /// The rest of a message that began before a reset: no answer, as hardware gives none to
    /// packets out of sequence.
    Unexpected,
    /// Pages of the responder's memory are absent, and have been requested: RNR NAK.
    Absent,
    /// The receive's buffer is too short: NAK "invalid request", and an error at the responder.
    TooShort,
}

impl Refusal {
    /// Returns the refusal for memory of the responder that could not be used for this reason.
    #[must_use]
    pub const fn of_memory(why: Denied) -> Self {
        match why {
            Denied::Absent => Self::Absent,
            _ => Self::Operational,
        }
    }
}

impl From<Refusal> for WrError {
    /// Returns the error of the request at the requester.
    fn from(refusal: Refusal) -> Self {
        let (status, denied) = match refusal {
            Refusal::NotReady | Refusal::Absent => (Status::RnrRetryExcErr, None),
            Refusal::Unexpected => (Status::RetryExcErr, None),
            Refusal::Invalid | Refusal::TooShort => (Status::RemInvReqErr, None),
            Refusal::Access(denied) => (denied.remote_status(), Some(denied)),
            Refusal::Operational => (Status::RemOpErr, Some(Denied::Memory)),
            Refusal::Malformed => (Status::RemOpErr, None),
        };
        Self { status, vendor_err: denied.map_or(0, |denied| denied as u32) }
    }
}
