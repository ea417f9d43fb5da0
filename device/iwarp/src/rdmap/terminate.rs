//! The causes of Terminates for refusals, and the outcomes of work requests for causes.

use super::memory::{Operation, Refused};
use super::work::{Outcome, Work};
use crate::wire::terminate::Cause;

/// Returns the cause for an operation of the peer that is refused (RFC 5040, section 7; RFC 5041,
/// section 7; RFC 7306, section 8).
#[must_use]
pub const fn cause(operation: &Operation, refused: Refused) -> Cause {
    match operation {
        Operation::Write(_) => of_write(refused),
        Operation::Read(_) | Operation::Atomic(..) => of_source(refused),
        Operation::Send(_) | Operation::Immediate(_) => of_send(refused),
    }
}

const fn of_write(refused: Refused) -> Cause {
    match refused {
        Refused::Invalid => Cause::TaggedInvalidStag,
        Refused::Foreign => Cause::TaggedNotAssociated,
        Refused::Bounds | Refused::TooLong => Cause::TaggedBounds,
        Refused::Wrap => Cause::TaggedWrap,
        // DDP has no code for access rights.
        Refused::Rights | Refused::Disabled => Cause::Rights,
        Refused::NotReady => Cause::NoBuffer,
        Refused::Unaligned | Refused::NotInvalidated | Refused::Gone | Refused::Later => {
            Cause::DdpCatastrophic
        }
    }
}

const fn of_source(refused: Refused) -> Cause {
    match refused {
        Refused::Invalid => Cause::InvalidStag,
        Refused::Foreign => Cause::NotAssociated,
        Refused::Bounds | Refused::TooLong => Cause::Bounds,
        Refused::Wrap => Cause::Wrap,
        Refused::Rights | Refused::Disabled => Cause::Rights,
        Refused::Unaligned => Cause::CatastrophicStream,
        Refused::NotReady | Refused::NotInvalidated | Refused::Gone | Refused::Later => {
            Cause::LocalCatastrophic
        }
    }
}

const fn of_send(refused: Refused) -> Cause {
    match refused {
        Refused::NotReady => Cause::NoBuffer,
        Refused::TooLong | Refused::Bounds | Refused::Wrap => Cause::TooLong,
        // The other reasons concern the STag that is to be invalidated.
        Refused::Invalid => Cause::InvalidStag,
        Refused::Foreign => Cause::NotAssociated,
        Refused::Rights => Cause::Rights,
        Refused::NotInvalidated => Cause::CannotInvalidate,
        Refused::Disabled => Cause::OperationUnspecified,
        Refused::Unaligned | Refused::Gone | Refused::Later => Cause::DdpCatastrophic,
    }
}

/// Returns whether a Terminate with this cause can be about a work request of this kind.
#[must_use]
pub const fn concerns(cause: Cause, work: &Work) -> bool {
    match cause {
        Cause::TaggedInvalidStag
        | Cause::TaggedBounds
        | Cause::TaggedNotAssociated
        | Cause::TaggedWrap => matches!(work, Work::Write(_) | Work::WriteImmediate(..)),
        Cause::NoBuffer | Cause::TooLong => {
            matches!(work, Work::Send(_) | Work::WriteImmediate(..))
        }
        Cause::InvalidStag
        | Cause::Bounds
        | Cause::NotAssociated
        | Cause::Wrap
        | Cause::CannotInvalidate => work.has_answer() || matches!(work, Work::Send(_)),
        Cause::Opcode => work.is_extension(),
        // Missing rights can concern a WRITE, too.
        _ => true,
    }
}

/// Returns the outcome of the oldest work request that a Terminate of the peer with this cause
/// concerns.
#[must_use]
pub const fn outcome(cause: Cause) -> Outcome {
    match cause {
        Cause::InvalidStag
        | Cause::Bounds
        | Cause::Rights
        | Cause::NotAssociated
        | Cause::Wrap
        | Cause::CannotInvalidate
        | Cause::ProtectionUnspecified
        | Cause::TaggedInvalidStag
        | Cause::TaggedBounds
        | Cause::TaggedNotAssociated
        | Cause::TaggedWrap => Outcome::RemoteAccess,
        Cause::NoBuffer => Outcome::RnrRetryExceeded,
        Cause::TooLong | Cause::RdmapVersion | Cause::Opcode => Outcome::RemoteInvalidRequest,
        Cause::CatastrophicStream
        | Cause::CatastrophicGlobal
        | Cause::OperationCannotInvalidate
        | Cause::OperationUnspecified => Outcome::RemoteOperational,
        _ => Outcome::Fatal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ddp::Tagged;

    #[test]
    fn refusals_of_the_three_kinds_have_the_causes_of_their_layers() {
        let (write, read) =
            (Operation::Write(Tagged::default()), Operation::Read(Tagged::default()));
        let send = Operation::Send(None);
        assert_eq!(cause(&write, Refused::Bounds).octets(), [0x11, 1]);
        assert_eq!(cause(&read, Refused::Bounds).octets(), [0x01, 1]);
        assert_eq!(cause(&send, Refused::TooLong).octets(), [0x12, 5]);
        assert_eq!(cause(&send, Refused::NotReady).octets(), [0x12, 2]);
        assert_eq!(cause(&send, Refused::NotInvalidated).octets(), [0x01, 9]);
    }

    #[test]
    fn causes_become_the_outcome_of_the_oldest_request() {
        assert_eq!(outcome(Cause::TaggedBounds), Outcome::RemoteAccess);
        assert_eq!(outcome(Cause::NoBuffer), Outcome::RnrRetryExceeded);
        assert_eq!(outcome(Cause::Crc), Outcome::Fatal);
        assert_eq!(outcome(Cause::Other(0x55, 5)), Outcome::Fatal);
    }
}
