//! The link of a port. Its changes are reported to the adapter and the line.

use vrnic_packet::Mtu;

use super::Port;
use crate::net::status::Reason;
use crate::worker::pool::now;

impl Port {
    /// Returns whether frames can pass, or none if the functions do not follow this port.
    #[must_use]
    pub fn followed(&self) -> Option<bool> {
        self.setup.followed.then_some(self.up)
    }

    /// Sets whether the uplinks allow the functions to have a link.
    pub fn set_carrier(&mut self, carrier: bool) {
        self.carrier = carrier;
        self.report_link();
    }

    /// Closes the connection. The caller has removed the descriptor from its epoll set.
    pub fn disconnect(&mut self) {
        if let Some(line) = &mut self.setup.line {
            line.close();
        }
        self.watched_out = false;
        let left = self.queue.clear();
        self.status.count_dropped(Reason::NoLink, left);
        self.follow_link();
    }

    /// Reports the link if it has changed.
    pub(super) fn follow_link(&mut self) {
        let Some(line) = &self.setup.line else { return };
        let mtu = line.mtu();
        if self.status.set_mtu(mtu)
            && let Some(mtu) = mtu
        {
            let path_mtu = Mtu::of_ip(mtu).bytes();
            self.log().line(|port| {
                tracing::info!(port, mtu, "longer IP packets cannot pass this uplink; RDMA through it needs a path MTU of at most {path_mtu}, so the guests' network cards need the same MTU");
            });
        }
        let up = line.is_up();
        if std::mem::replace(&mut self.up, up) == up {
            return;
        }
        self.status.set_up(up);
        if !up && let Some(lanes) = self.lanes() {
            lanes.link_down(now());
        }
        self.log().line(|port| match (up, line.peer()) {
            (true, Some(client)) => tracing::info!(port, %client, "link up"),
            (true, None) => tracing::info!(port, "link up"),
            (false, _) => tracing::info!(port, "link down"),
        });
        self.report_link();
    }

    /// Reports the state of the link to the adapter if it has changed.
    fn report_link(&mut self) {
        let up = self.up && self.carrier;
        if std::mem::replace(&mut self.reported_up, up) != up {
            (self.setup.link)(up);
        }
    }
}
