//! The source addresses that a port allows.

use vrnic_control_api::source::SourceCheck;
use vrnic_packet::MacAddr;

use super::Port;
use super::setup::PortSetup;
use crate::net::frame::Frame;
use crate::net::status::Reason;

impl Port {
    /// Returns which addresses may be used behind the port, in addition to those that are bound to
    /// it.
    #[must_use]
    pub const fn source(&self) -> SourceCheck {
        self.setup.source
    }

    /// Returns whether the port's settings allow this source address. `by_guest` is false if the
    /// adapter has composed the frame. The adapter sends only with addresses that belong to it.
    #[must_use]
    pub fn may_send(&self, source: MacAddr, by_guest: bool) -> bool {
        let PortSetup { mac, addresses, .. } = &self.setup;
        *mac == Some(source)
            || match self.setup.source {
                SourceCheck::Nested => true,
                SourceCheck::Strict if !by_guest => true,
                SourceCheck::Strict if self.has_named(source) => true,
                SourceCheck::Own | SourceCheck::Strict => addresses.contains(&source),
            }
    }

    /// Returns whether an address that the switch does not know may be behind the port. Behind the
    /// network card of a guest that sends with any address it may be, unless uplinks have had so
    /// many addresses (`is_crowded`) that it is probably behind one of them.
    #[must_use]
    pub fn may_have(&self, mac: MacAddr, is_crowded: bool) -> bool {
        self.is_uplink()
            || match self.setup.source {
                SourceCheck::Nested if !is_crowded => true,
                SourceCheck::Nested | SourceCheck::Strict => self.has_named(mac),
                SourceCheck::Own => false,
            }
    }

    /// Returns whether the driver of the adapter behind the port has named an address.
    #[must_use]
    pub fn has_named(&self, mac: MacAddr) -> bool {
        self.setup.sink.as_ref().is_some_and(|sink| sink.claims(mac))
    }

    /// Returns the number of messages that the adapter behind the port has moved, with whatever
    /// address, if its driver has named this one.
    #[must_use]
    pub fn messages_from(&self, mac: MacAddr) -> Option<u64> {
        let sink = self.setup.sink.as_ref().filter(|sink| sink.claims(mac))?;
        Some(sink.messages())
    }

    /// Returns whether one guest is behind both ports, and may use the addresses of `owner` on this
    /// one. It gets an address back by a frame of its own network card, so it must have one.
    #[must_use]
    pub fn shares_guest(&self, owner: &Self) -> bool {
        let vmm = |port: &Self| port.setup.sink.as_ref().and_then(|sink| sink.vmm());
        self.setup.source != SourceCheck::Own
            && owner.setup.line.is_some()
            && vmm(self).is_some()
            && vmm(self) == vmm(owner)
    }

    /// Counts and logs a frame whose source is not a station of this port.
    pub fn forged(&self, frame: &Frame) {
        let source = frame.source();
        self.log().dropped(Reason::Forged, frame.count(), |port| {
            tracing::warn!(
                port,
                "a frame was dropped: its source {source} is not an address of this port (setting source)"
            );
        });
    }
}
