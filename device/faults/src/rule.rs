//! Rules: actions, filters, limits.

use std::fmt;
use std::time::Duration;

use vrnic_roce::Psn;
use vrnic_roce::wire::Qpn;

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
    /// The action on packets that are hit.
    pub action: Action,
    /// The packets that the rule looks at.
    pub filter: Filter,
    /// The packets among them that it hits.
    pub chance: Chance,
    /// The seed of random decisions.
    pub seed: u64,
    /// The largest number of hits.
    pub times: Option<u64>,
    /// The time for which the rule is in force.
    pub lifetime: Option<Duration>,
}

/// An action on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The packet is lost.
    Drop,
    /// It arrives later by this time.
    Delay(Duration),
    /// It arrives twice.
    Duplicate,
    /// It arrives behind this number of later packets.
    Reorder(u32),
    /// One of its bits is flipped.
    Corrupt(Crc),
}

/// The checks that a corrupt packet passes: the invariant CRC of RoCE, or the checksum of TCP and
/// the CRC of an FPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crc {
    /// All, so the receiver takes the packet. The CRC of an FPDU is right again if the segment
    /// begins with the FPDU, contains all of it, and has no markers.
    Right,
    /// The checksum of TCP alone, so that the CRC of the FPDU is wrong. A packet of RoCE passes
    /// none.
    Checksum,
    /// None, so the receiver drops the packet.
    Wrong,
}

/// The packets that a rule looks at: those for which all given fields are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The name of the function.
    pub function: Option<String>,
    /// The QP.
    pub qp: Option<Qpn>,
    /// The opcode.
    pub opcode: Option<Opcode>,
    /// The sequence number, which packets of RoCE alone have.
    pub psn: Option<Psn>,
    /// The packet that is the n-th of its QP, from 1, among those that the other fields select.
    pub nth: Option<u64>,
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
