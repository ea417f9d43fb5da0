//! Domains of servers: the function to which an object belongs; and the users of keys, which have
//! one.
//!
//! Each function has tables of its own, so a number that a guest names is looked up among the
//! objects of its own function. The domain is a second check of the same. It fails only if the
//! adapter combines parts of two functions by mistake, which the paths that copy messages could do,
//! because they work with the memory, the keys and the queues of two functions at once.
//!
//! | objects | where their domains are compared | why that is enough |
//! | --- | --- | --- |
//! | QP with UAR and CQs, SRQ with UAR and CQ | at the creation, after the contexts | they are the same until the end of the object |
//! | QP with SRQ | at the creation, after the contexts; for XRC by each message that chooses an SRQ | only XRC targets change theirs |
//! | keys and windows with the QP or SRQ whose work request, receive or peer names them | at each look-up in [`Tpt`](crate::memory::tpt::Tpt), after PD, instance, bounds and rights | all keys of a table belong to its domain |
//! | guest memory with this QP or SRQ | at each key, after those checks | a turn holds the memory of one function |
//! | an address range with the QP | at each TRANSFER, after the number of the QP | |
//!
//! A refusal has the status of the check before it, and is counted by the same counters.

use std::sync::atomic::{AtomicU64, Ordering};

use vrnic_abi::{Pdn, Qpn};

/// The function to which an object belongs. No two adapters of a daemon have the same domain, not
/// even one after the other, because an object may outlive its adapter for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Domain(u64);

impl Domain {
    /// The domain of objects without an adapter, as in tests.
    pub const NONE: Self = Self(0);
}

/// The user of a key: a QP, or an SRQ whose receives name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The PD of the user.
    pub pdn: Pdn,
    /// The QP; zero for an SRQ.
    pub qpn: Qpn,
    /// The function to which it belongs.
    pub domain: Domain,
}

/// Assigns domains.
#[derive(Debug, Default)]
pub(crate) struct Domains(AtomicU64);

impl Domains {
    /// Returns a domain that no adapter has had.
    pub(crate) fn next(&self) -> Domain {
        Domain(self.0.fetch_add(1, Ordering::Relaxed).saturating_add(1))
    }
}
