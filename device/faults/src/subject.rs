//! The things on which rules decide, and the decisions.

use vrnic_roce::Psn;
use vrnic_roce::wire::Qpn;

use crate::action::{Action, Site};
use crate::opcode::Opcode;

/// A packet, a work request, an event or another thing, as rules see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject<'a> {
    /// The place of the adapter where it is.
    pub site: Site,
    /// The name of the function to which it belongs, and which sends it if it is a packet.
    pub function: &'a str,
    /// The QP. The caller decides whether it is the sending one or the receiving one; it must be
    /// the same for all packets of a connection. Without a QP it is 0.
    pub qp: Qpn,
    /// The opcode, if things at this place have one.
    pub opcode: Option<Opcode>,
    /// The sequence number of a packet of RoCE.
    pub psn: Option<Psn>,
    /// True for a message only to regions that allow any order of writes.
    pub relaxed: bool,
    /// The number of the completion queue, or of the interrupt's vector.
    pub number: Option<u32>,
}

impl<'a> Subject<'a> {
    /// Returns a thing with this place and function, and no other field.
    #[must_use]
    pub const fn new(site: Site, function: &'a str) -> Self {
        let (qp, relaxed) = (Qpn::new(0), false);
        Self { site, function, qp, opcode: None, psn: None, relaxed, number: None }
    }
}

/// A hit of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The action to take.
    pub action: Action,
    /// The random number for further choices.
    pub random: u64,
}
