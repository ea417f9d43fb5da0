//! Mistakes, and their outcomes.

use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{Attr, State, Type};
use vrnic_testdriver::wr::Wr;

use crate::path::{Ends, Path};

/// A mistake and its outcome.
#[derive(Clone, Copy)]
pub(crate) struct Mistake {
    pub(crate) what: &'static str,
    /// The type of both QPs.
    pub(crate) kind: Type,
    /// Changes the attributes of A, which sends.
    pub(crate) own: fn(&mut Attr),
    /// Changes the attributes of B.
    pub(crate) peer: fn(&mut Attr),
    /// Changes something after the QPs are connected and B has posted a receive of 100,000 bytes.
    pub(crate) later: fn(&mut Ends),
    /// The work requests of A.
    pub(crate) requests: fn(&Ends) -> Vec<Wr>,
    /// True if each request is posted after the end of the one before it.
    pub(crate) one_by_one: bool,
    /// What the program must see.
    pub(crate) outcome: Expected,
    /// The expected outcome over packets, if it differs. A comment in the row says why.
    pub(crate) by_packets: Option<Expected>,
}

/// The results of a case at its two ends, A and B.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The statuses of A's work requests.
    pub(crate) sent: Vec<Status>,
    /// The state of A.
    pub(crate) own: State,
    /// The statuses of B's receives.
    pub(crate) received: Vec<Status>,
    /// The state of B.
    pub(crate) peer: State,
    /// The first event of B.
    pub(crate) event: Option<Kind>,
}

/// An [`Outcome`] in a constant.
#[derive(Clone, Copy)]
pub(crate) struct Expected {
    pub(crate) sent: &'static [Status],
    pub(crate) own: State,
    pub(crate) received: &'static [Status],
    pub(crate) peer: State,
    pub(crate) event: Option<Kind>,
}

impl Mistake {
    /// Returns the outcome with a path.
    pub(crate) fn expected(&self, path: Path) -> Outcome {
        let by_packets = self.by_packets.filter(|_| path != Path::Copies);
        let Expected { sent, own, received, peer, event } = by_packets.unwrap_or(self.outcome);
        Outcome { sent: sent.to_vec(), own, received: received.to_vec(), peer, event }
    }
}

/// Nothing is wrong.
pub(crate) const PASSES: Expected = Expected {
    sent: &[Status::Success],
    own: State::Rts,
    received: &[],
    peer: State::Rts,
    event: None,
};
pub(crate) const ARRIVES: Expected = Expected { received: &[Status::Success], ..PASSES };
/// A gets no answer, and B notices nothing.
pub(crate) const SILENT: Expected =
    Expected { sent: &[Status::RetryExcErr], own: State::Err, ..PASSES };
/// B refuses the request as invalid.
pub(crate) const INVALID: Expected = Expected {
    sent: &[Status::RemInvReqErr],
    own: State::Err,
    received: &[Status::WrFlushErr],
    peer: State::Err,
    event: Some(Kind::QpRequestError),
};
/// B refuses access to its memory.
pub(crate) const NO_ACCESS: Expected =
    Expected { sent: &[Status::RemAccessErr], event: Some(Kind::QpAccessError), ..INVALID };
/// The answer to a READ does not have the length that A expects. B is not notified of this.
pub(crate) const WRONG_ANSWER: Expected =
    Expected { sent: &[Status::LocLenErr], own: State::Err, ..PASSES };
