//! Rules: filters, limits, and the rule itself.

use std::fmt;
use std::time::Duration;

use vrnic_roce::Psn;
use vrnic_roce::wire::Qpn;

use crate::action::Action;
use crate::opcode::Opcode;

/// The number of a rule: 1 for the first that is added to an empty set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleId(u32);

impl RuleId {
    /// Returns the rule with this number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A rule for faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The action on each packet, work request or event that it hits.
    pub action: Action,
    /// The packets, work requests or events that it applies to.
    pub filter: Filter,
    /// The part of these that it hits.
    pub chance: Chance,
    /// The seed of random decisions.
    pub seed: u64,
    /// The largest number of hits.
    pub times: Option<u64>,
    /// The time before the rule is in force.
    pub after: Option<Duration>,
    /// The time for which the rule is in force.
    pub lifetime: Option<Duration>,
}

/// Selects packets, work requests, events and so on at the place of the rule's action: those for
/// which all given fields are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The name of the function.
    pub function: Option<String>,
    /// The number of the QP that they belong to.
    pub qp: Option<Qpn>,
    /// The opcode of the packet, work request, completion, event or command.
    pub opcode: Option<Opcode>,
    /// The sequence number, which only packets of RoCE have.
    pub psn: Option<Psn>,
    /// True for messages only to regions that allow any order of writes, false for others.
    pub relaxed: Option<bool>,
    /// The number of the completion queue, or of the interrupt's vector.
    pub number: Option<u32>,
    /// The n-th of each QP, from 1, among those that the fields above select.
    pub nth: Option<u64>,
    /// Each n-th of each QP among them.
    pub every: Option<u64>,
}

/// The chance of a packet to be hit, in parts of 10⁹.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chance(u32);

impl Chance {
    /// All packets are hit.
    pub const ALWAYS: Self = Self(Self::ONE);

    pub(crate) const ONE: u32 = 1_000_000_000;

    /// Returns the chance of this many parts of 10⁹, limited to all of them.
    #[must_use]
    pub const fn from_parts(parts: u32) -> Self {
        if parts > Self::ONE { Self::ALWAYS } else { Self(parts) }
    }

    /// Returns the parts of 10⁹.
    #[must_use]
    pub const fn parts(self) -> u32 {
        self.0
    }
}
