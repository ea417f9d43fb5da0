//! The places where rules look that may select a function.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::action::Site;

/// The places that are passed on when a function is traced.
const TRACED: u32 = Site::Packet.bit()
    | Site::Request.bit()
    | Site::Copy.bit()
    | Site::Entry.bit()
    | Site::Event.bit()
    | Site::Interrupt.bit()
    | Site::Turn.bit();

/// The places where rules look that may select a function, or a trace of it. The threads of the
/// function read one word, which rules of other functions do not change.
#[derive(Debug)]
pub struct Concern {
    function: Box<str>,
    /// The places where rules look, as bits.
    rules: AtomicU32,
    /// True if the function is traced.
    traced: AtomicBool,
    /// The places where rules or the trace look, as bits.
    sites: AtomicU32,
}

impl Concern {
    pub(crate) fn new(function: &str) -> Self {
        let [rules, sites] = [(); 2].map(|()| AtomicU32::new(0));
        Self { function: function.into(), rules, traced: AtomicBool::new(false), sites }
    }

    /// Returns the name of the function.
    pub(crate) fn function(&self) -> &str {
        &self.function
    }

    /// Sets the places where rules look. One thread at a time calls this or [`Self::set_traced`].
    pub(crate) fn set_rules(&self, rules: u32) {
        self.rules.store(rules, Ordering::Relaxed);
        let traced = if self.is_traced() { TRACED } else { 0 };
        self.sites.store(rules | traced, Ordering::Relaxed);
    }

    pub(crate) fn set_traced(&self, traced: bool) {
        self.traced.store(traced, Ordering::Relaxed);
        self.set_rules(self.rules.load(Ordering::Relaxed));
    }

    /// Returns whether the function is traced.
    #[must_use]
    pub fn is_traced(&self) -> bool {
        self.traced.load(Ordering::Relaxed)
    }

    /// Returns whether a rule looks at this place.
    #[must_use]
    pub fn rules_look_at(&self, site: Site) -> bool {
        self.rules.load(Ordering::Relaxed) & site.bit() != 0
    }

    /// Returns whether a rule or the trace looks at this place.
    #[inline]
    #[must_use]
    pub fn look_at(&self, site: Site) -> bool {
        self.sites.load(Ordering::Relaxed) & site.bit() != 0
    }

    /// Returns whether a rule or the trace looks at any place.
    #[inline]
    #[must_use]
    pub fn look_anywhere(&self) -> bool {
        self.sites.load(Ordering::Relaxed) != 0
    }

    /// Returns whether there is any rule.
    #[must_use]
    pub fn any(&self) -> bool {
        self.rules.load(Ordering::Relaxed) != 0
    }
}
