//! The timeline of a queue pair, for clients of the control socket.

use serde::{Deserialize, Serialize};

/// A command for the trace of a queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceCommand {
    /// Begins the trace of a queue pair.
    Begin {
        /// The number of the queue pair.
        qp: u32,
    },
    /// Takes records. A trace ends when nobody does so for 5 s.
    Take,
    /// Ends the trace.
    End,
}

/// Records that were taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceView {
    /// The records, in the order of their times.
    pub records: Vec<TraceRecord>,
    /// Number of records that were not taken in time, and are lost.
    pub lost: u64,
    /// True if no more records wait now.
    pub empty: bool,
}

/// A step of the adapter, and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRecord {
    /// The time in nanoseconds since the daemon's start, of a monotonic clock.
    pub ns: u64,
    /// The queue pair, if all are traced and it is the step of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qp: Option<u32>,
    /// What the adapter did at this time.
    #[serde(flatten)]
    pub step: TraceStep,
}

/// A step of the adapter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum TraceStep {
    /// A doorbell was found rung.
    Doorbell,
    /// A turn of the queue pair begins.
    Turn {
        /// The number of the worker that runs the turn.
        worker: usize,
    },
    /// A work request was read from its queue.
    Fetch {
        /// The index of the work request.
        index: u32,
        /// The ID of the work request.
        wr_id: u64,
        /// The operation of the work request.
        opcode: String,
        /// Bytes of its message.
        bytes: u64,
    },
    /// Bytes of a message were copied between memories.
    Copy {
        /// The index of the work request.
        index: u32,
        /// The first byte.
        from: u64,
        /// The byte after the last one.
        to: u64,
    },
    /// The peer has acknowledged a message that was copied.
    Acknowledged {
        /// The index of the work request.
        index: u32,
    },
    /// A packet leaves.
    Sent(TracePacket),
    /// A packet has arrived.
    Received(TracePacket),
    /// An entry is written to a completion queue.
    Completion {
        /// The index of the work request.
        index: u32,
        /// The ID of the work request.
        wr_id: u64,
        /// The operation of the work request.
        opcode: String,
        /// The status of the completion.
        status: String,
        /// The completion queue.
        cq: u32,
    },
    /// An event is reported.
    Event {
        /// The kind of event.
        kind: String,
        /// The number of the object.
        id: u32,
        /// The event queue.
        eq: u32,
        /// True if a rule for faults has taken it away, or holds it back.
        held: bool,
    },
    /// An interrupt is raised.
    Interrupt {
        /// The MSI-X vector.
        vector: u16,
        /// True if a rule for faults has taken it away, or holds it back.
        held: bool,
    },
}

/// A packet that the traced queue pair has sent or received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracePacket {
    /// The packet's opcode, as rules for faults name it.
    pub opcode: Option<String>,
    /// The sequence number of a packet of RoCE.
    pub psn: Option<u32>,
    /// The packet's length in bytes, with all headers.
    pub bytes: usize,
}
