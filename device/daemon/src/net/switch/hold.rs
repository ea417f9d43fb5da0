//! Decides when no frames are read from uplinks because adapters have no room for them.

use std::time::Instant;

use super::Switch;
use crate::net::hold::ACTIVE;
use crate::net::port::Port;

impl Switch {
    /// Returns whether frames may be read from uplinks, as far as the adapters have room for them.
    pub(super) fn may_read_uplinks(&mut self) -> bool {
        let is_free = |port: &Port| port.has_room() && !port.hold.pauses();
        self.held = false;
        if self.ports.values().all(is_free) {
            return true;
        }
        let now = Instant::now();
        let is_active = |port: &Port| {
            port.heard.is_some_and(|heard| now.saturating_duration_since(heard) < ACTIVE)
        };
        let active = self.ports.values().filter(|port| is_active(port)).count();
        let adapters = self.ports.values().filter(|port| port.mac().is_some()).count();
        let adapters = u32::try_from(adapters).unwrap_or(u32::MAX);
        for port in self.ports.values_mut() {
            let has_room = port.has_room();
            if has_room && !port.hold.pauses() {
                continue;
            }
            let others = active > usize::from(is_active(port));
            self.held |= port.hold.pause(has_room, others.then_some(adapters), now);
        }
        !self.held
    }

    /// Returns whether frames wait to be read until an adapter has room.
    pub(in crate::net) const fn is_held(&self) -> bool {
        self.held
    }
}
