//! The periodic work of the switch: ticks of ports, aged addresses, and the links and path MTU that
//! follow the uplinks.

use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use vrnic_packet::Mtu;

use super::Switch;
use crate::net::port::Port;

/// Time between two removals of aged addresses.
pub(super) const AGE_PERIOD: Duration = Duration::from_secs(30);
/// Time between two ticks of the ports that need them.
pub(super) const TICK_INTERVAL: Duration = Duration::from_secs(1);

impl Switch {
    /// Does what ports need once in a second.
    pub(super) fn tick(&mut self) {
        if self.ticked.elapsed() < TICK_INTERVAL {
            return;
        }
        self.ticked = Instant::now();
        let wanting = self.ports.iter_mut().filter(|(_, port)| port.wants_ticks());
        let changes: Vec<_> = wanting.map(|(id, port)| (*id, port.tick())).collect();
        for (id, change) in changes {
            self.follow(id, change);
        }
        let shut = self
            .ports
            .iter_mut()
            .filter_map(|(id, port)| std::mem::take(&mut port.door_shut).then_some(*id));
        for id in shut.collect::<Vec<_>>() {
            self.watch_door(id, EventFlags::IN);
        }
        self.follow_mtu();
    }

    /// Updates the functions' links if the uplinks that they follow have lost their last link, or
    /// have a link again.
    pub(super) fn follow_uplinks(&mut self) {
        let mut followed = self.ports.values().filter_map(Port::followed).peekable();
        let carrier = followed.peek().is_none() || followed.any(|up| up);
        if std::mem::replace(&mut self.carrier, carrier) == carrier {
            return;
        }
        if carrier {
            tracing::info!(
                "the functions have a link again, because an uplink that they follow has one"
            );
        } else {
            tracing::warn!(
                "the functions have no link, because no uplink that they follow has one"
            );
        }
        self.ports.values_mut().for_each(|port| port.set_carrier(carrier));
    }

    /// Reports the path MTU if it has changed, and whether joined frames are welcome.
    pub(super) fn follow_mtu(&self) {
        self.shared.outbox.set_joins(self.ports.values().any(Port::joins));
        let mtu = self.ports.values().filter_map(Port::path_mtu).min().unwrap_or(Mtu::MAX);
        if self.shared.set_path_mtu(mtu) {
            tracing::info!(
                path_mtu = mtu.bytes(),
                "the ports of all functions have a new limit of the path MTU, because of the uplinks' MTU"
            );
            (self.limit)(mtu);
        }
    }

    /// Removes addresses that have not been heard for long from the table. An adapter may use an
    /// address that it has named although no frame with it has come by its port, because messages
    /// are copied. Returns whether more addresses are left for the next call.
    pub(super) fn age(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.aged) < AGE_PERIOD {
            return false;
        }
        let ports = &self.ports;
        let is_named = |port, mac| ports.get(&port).is_some_and(|port| port.has_named(mac));
        let is_done = self.table.age(now, is_named);
        if is_done {
            self.aged = now;
        }
        !is_done
    }
}
