//! The rules that a guest sets for its own function.

use std::sync::atomic::Ordering;

use vrnic_faults::{Listed, Refused, Rule, RuleId};
use vrnic_packet::Nanos;

use super::Injection;

impl Injection {
    /// Sets whether the guest may set rules for its function.
    pub(crate) fn permit(&self, permits: bool) {
        self.permits.store(permits, Ordering::Relaxed);
    }

    /// Returns whether the guest may set rules for its function.
    pub(crate) fn permits(&self) -> bool {
        self.permits.load(Ordering::Relaxed)
    }

    /// Adds a rule of the guest.
    ///
    /// # Errors
    /// [`Refused`].
    pub(crate) fn add_guest(
        &self,
        function: &str,
        rule: Rule,
        now: Nanos,
    ) -> Result<RuleId, Refused> {
        self.rules.add_of(function, rule, now)
    }

    /// Removes a rule of the guest; returns whether it existed.
    pub(crate) fn remove_guest(&self, function: &str, id: RuleId) -> bool {
        self.rules.remove_of(function, id)
    }

    /// Removes all rules of the guest.
    pub(crate) fn clear_guest(&self, function: &str) {
        if self.permits() {
            self.rules.clear_of(function);
        }
    }

    /// Passes each rule of the guest to a function, in order, and returns the results.
    pub(crate) fn list_guest<R>(
        &self,
        function: &str,
        now: Nanos,
        each: impl Fn(&Listed<'_>) -> R,
    ) -> Vec<R> {
        let own = |rule: &Listed<'_>| (rule.guest == Some(function)).then(|| each(rule));
        self.rules.list(now, |rule| own(&rule)).into_iter().flatten().collect()
    }
}
