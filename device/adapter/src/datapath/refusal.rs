//! Answers of a responder that does not take a message.

use vrnic_abi::cq::Status;

use crate::memory::tpt::Denied;

/// Answers of a responder that does not execute a request.
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
    /// The rest of a message whose beginning came before a reset: no answer, as hardware gives none
    /// to what is out of sequence.
    Unexpected,
    /// The receive's buffer is too short: NAK "invalid request", and an error there too.
    TooShort,
}

impl Refusal {
    /// Status at the requester.
    #[must_use]
    pub const fn requester_status(self) -> Status {
        match self {
            Self::NotReady => Status::RnrRetryExcErr,
            Self::Unexpected => Status::RetryExcErr,
            Self::Invalid | Self::TooShort => Status::RemInvReqErr,
            Self::Access(denied) => denied.remote_status(),
            Self::Operational | Self::Malformed => Status::RemOpErr,
        }
    }

    /// The number of the check that failed, for the completion; 0 for none.
    #[must_use]
    pub const fn check(self) -> u32 {
        match self {
            Self::Access(denied) => denied as u32,
            Self::Operational => Denied::Memory as u32,
            _ => 0,
        }
    }
}
