//! Ports with lanes: their settings, and the frames whose time comes.

use std::time::Duration;

use vrnic_control_api::LanesConfig;
use vrnic_packet::Nanos;

use super::Switch;
use crate::net::lanes::PortLanes;
use crate::net::port::Port;
use crate::net::table::PortId;
use crate::worker::pool::now;

impl Switch {
    /// Sets the lanes of the port of a name, or removes them.
    pub(super) fn set_lanes(&mut self, name: String, settings: Option<LanesConfig>) {
        let named = self.ports.iter().find(|(_, port)| port.status().name() == name);
        let id = named.map(|(id, _)| *id);
        match settings {
            Some(settings) => self.lanes.insert(name, settings),
            None => self.lanes.remove(&name),
        };
        if let Some(id) = id {
            self.apply_lanes(id);
            self.flush(id);
        }
    }

    /// Gives a port the lanes that are set for its name.
    pub(super) fn apply_lanes(&mut self, id: PortId) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        let settings = self.lanes.get(port.status().name());
        // The settings have been checked.
        let lanes = settings.and_then(|settings| PortLanes::new(settings, port.mac()).ok());
        self.laned.retain(|laned| *laned != id);
        if lanes.is_some() {
            self.laned.push(id);
        }
        port.set_lanes(lanes);
        self.check_room();
    }

    /// Logs if a class with flow control has less room at a port than other ports may send.
    fn check_room(&self) {
        let laned = || self.laned.iter().filter_map(|id| self.ports.get(id));
        let lanes = || laned().filter_map(Port::lanes);
        let lacking = laned().find_map(|port| Some((port, port.lanes()?.lacks_room(lanes())?)));
        if let Some((port, (class, needed))) = lacking {
            let (port, class) = (port.status().name(), class.number());
            tracing::warn!(
                port,
                class,
                "all ports together may send more of a class than this port has room for, so that \
                 frames may be lost although the class has flow control; set its limit to at least \
                 {needed} bytes, or lower thresholds"
            );
        }
    }

    /// Passes on the frames in lanes whose time has come. Returns the time until the next ones.
    pub(super) fn serve_lanes(&mut self) -> Option<Duration> {
        if self.laned.is_empty() {
            return None;
        }
        let start = now();
        let due = |port: &Port| port.due_at().filter(|_| !port.watched_out);
        for at in 0..self.laned.len() {
            let Some(id) = self.laned.get(at).copied() else { break };
            let goes = self.ports.get(&id).and_then(due).is_some_and(|at| at <= start);
            if goes {
                self.flush(id);
            }
        }
        let next = self.laned.iter().filter_map(|id| self.ports.get(id).and_then(due)).min();
        next.map(|at: Nanos| at.since(now()))
    }
}
