//! What a function knows of the rules.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::action::Site;

/// The places where rules look that may select a function. The threads of the function read one
/// word, which rules of other functions do not change.
#[derive(Debug)]
pub struct Concern {
    function: Box<str>,
    /// The places, as bits.
    sites: AtomicU32,
}

impl Concern {
    pub(crate) fn new(function: &str) -> Self {
        Self { function: function.into(), sites: AtomicU32::new(0) }
    }

    /// Returns the name of the function.
    pub(crate) fn function(&self) -> &str {
        &self.function
    }

    pub(crate) fn set_sites(&self, sites: u32) {
        self.sites.store(sites, Ordering::Relaxed);
    }

    /// Returns whether a rule looks at this place.
    #[inline]
    #[must_use]
    pub fn look_at(&self, site: Site) -> bool {
        self.sites.load(Ordering::Relaxed) & site.bit() != 0
    }

    /// Returns whether there is any rule.
    #[must_use]
    pub fn any(&self) -> bool {
        self.sites.load(Ordering::Relaxed) != 0
    }
}
