//! Rules for faults, for the monitor and for clients of the control socket.

use serde::{Deserialize, Serialize};

/// All rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultsView {
    /// The time of this view, in microseconds since 1970.
    pub now: u64,
    /// The rules in the order in which they look at packets.
    pub rules: Vec<RuleView>,
    /// Packets that wait now.
    pub waiting: u64,
    /// Packets that a rule wanted to delay, but that were dropped because too many packets waited.
    pub overflowed: u64,
}

/// A rule with its counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleView {
    /// The function whose guest has set it; absent for a rule of the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<String>,
    /// The number of the rule, among the rules of the operator or of this guest.
    pub id: u32,
    /// The rule as text.
    pub rule: String,
    /// Packets, work requests, events or other things that it has looked at.
    pub seen: u64,
    /// The number of things that the rule has hit.
    pub hit: u64,
    /// The time at which it was added, in microseconds since 1970.
    pub armed: u64,
    /// The time of its last hit.
    pub last_hit: Option<u64>,
    /// True if it hits nothing more, because its time is over or its number of hits is reached.
    pub over: bool,
}
