//! Events and counters of a stream.

use crate::mpa::start::{Agreement, Failure};
use crate::wire::terminate::{Cause, Report};

/// An event of a stream, for the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The two ends have agreed. If the agreement includes a first message of the initiator, the
    /// message has been sent or has arrived.
    Established(Agreement),
    /// No agreement has been reached.
    StartFailed(Failure),
    /// A Terminate with this cause has been appended to the sent stream.
    TerminateSent(Cause),
    /// A Terminate has arrived.
    TerminateReceived(Report),
    /// The peer has finished sending (FIN).
    GracefulDisconnect,
    /// TCP was closed abortively: reset by either end, or lost.
    AbortiveDisconnect,
    /// TCP is closed on both sides, and the stream has no error.
    Closed,
    /// An error occurred while the stream was being closed without one.
    BadClose,
}

/// The counters of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// FPDUs that have arrived whole and correct.
    pub fpdus_received: u64,
    /// FPDUs with a wrong CRC.
    pub crc_errors: u64,
    /// Segments for which there was no receive.
    pub not_ready: u64,
    /// Octets that arrived after an error and were dropped.
    pub discarded: u64,
    /// Messages that were appended to the sent stream.
    pub messages_sent: u64,
    /// Messages that were copied, so that they could be completed early.
    pub messages_copied: u64,
    /// READs and atomics of the peer that were answered.
    pub answers_sent: u64,
    /// FPDUs that were placed out of order.
    pub placed_ahead: u64,
}
