//! What is counted for each class of a port.

use std::time::Duration;

use crate::class::Class;

/// The counters of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that left.
    pub frames: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Frames that were dropped because the queue of the class, or all queues together, were full.
    pub drops: u64,
    /// Frames that were dropped in place of being marked.
    pub early_drops: u64,
    /// Frames that were dropped because the class was stuck.
    pub storm_drops: u64,
    /// Frames that arrived by the port and were dropped because the headroom of the class was full.
    pub headroom_drops: u64,
    /// Frames that got a mark of congestion.
    pub marks: u64,
    /// The most bytes that have waited at once.
    pub deepest: u64,
    /// The time for which the station behind the port has paused the class.
    pub paused: Duration,
    /// PFC frames that paused the class, or let it go on, and were sent.
    pub pfc_sent: u64,
    /// PFC frames that paused the class, or let it go on, and were received.
    pub pfc_received: u64,
    /// Pause storms.
    pub storms: u64,
}

/// What an operator is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The class is stuck: the station behind the port has paused it for too long. Its frames are
    /// dropped from now on.
    Stuck(Class),
    /// The class that was stuck works again.
    Recovered(Class),
}
