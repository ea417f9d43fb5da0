//! The state and the counters of a port, which the switch's thread writes and others read.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use parking_lot::RwLock;
use vrnic_control_api::port_view::{Kind, LaneView, PortView};
use vrnic_lanes::{Class, ClassSet, PerClass};
use vrnic_packet::{Nanos, ServiceFields};

use super::lanes::PortLanes;
use crate::worker::pool::now;

/// The reason for which a frame was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The source address belongs to another port, or is not an address of a station.
    Forged,
    /// The frame is shorter than an Ethernet header, or longer than a frame can be.
    BadLength,
    /// The message that carried it was malformed.
    Malformed,
    /// The host has left work to a network card that this port cannot do.
    Offload,
    /// The frame was to leave by the port, and the queue was full.
    QueueFull,
    /// The frame was to leave by the port, and there was no link.
    NoLink,
    /// The frame was to leave by the port, and is longer than the MTU allows.
    TooLong,
    /// The guest's network card sent it, and the adapter has taken over its TCP connection.
    TakenOver,
    /// The adapter sent it, and the switch had too many of its frames to do.
    Outbox,
    /// The frame was for the adapter, whose workers did not keep up.
    AdapterFull,
    /// The frame was for all ports, and the port has sent too many such frames.
    Storm,
    /// The guest may not send to its VLAN.
    Vlan,
    /// A guest's network card sent a MAC control frame, and may not pause the network.
    Pause,
}

/// The reasons, and their names in metrics.
pub const REASONS: [(Reason, &str); 13] = [
    (Reason::Forged, "forged"),
    (Reason::BadLength, "bad_length"),
    (Reason::Malformed, "malformed"),
    (Reason::Offload, "offload"),
    (Reason::QueueFull, "queue_full"),
    (Reason::NoLink, "no_link"),
    (Reason::TooLong, "too_long"),
    (Reason::TakenOver, "taken_over"),
    (Reason::Outbox, "outbox"),
    (Reason::AdapterFull, "adapter_full"),
    (Reason::Storm, "storm"),
    (Reason::Vlan, "vlan"),
    (Reason::Pause, "pause"),
];

/// Frames in one direction.
#[derive(Debug, Default)]
pub struct Traffic {
    frames: AtomicU64,
    bytes: AtomicU64,
}

impl Traffic {
    /// Counts this number of frames, which have `bytes` together.
    pub fn count(&self, frames: usize, bytes: usize) {
        self.frames.fetch_add(frames as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// State and counters of a port.
#[derive(Debug)]
pub struct PortStatus {
    name: String,
    kind: Kind,
    up: AtomicBool,
    /// Zero if nothing limits it.
    mtu: AtomicU32,
    /// Frames that came into the switch by the port.
    pub received: Traffic,
    /// Frames that left the switch by the port.
    pub sent: Traffic,
    dropped: [AtomicU64; REASONS.len()],
    /// The lanes of the port, if an operator has set some.
    lanes: RwLock<Option<PortLanes>>,
    /// The classes of which the adapter behind the port may have to send nothing: a [`ClassSet`].
    paused: AtomicU8,
    /// The time up to which the adapter must not send frames of a class, if it is one of these.
    paused_until: PerClass<AtomicU64>,
}

impl PortStatus {
    /// Creates the status of a port without a link.
    #[must_use]
    pub fn new(name: &str, kind: Kind) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            up: AtomicBool::new(false),
            mtu: AtomicU32::new(0),
            received: Traffic::default(),
            sent: Traffic::default(),
            dropped: Default::default(),
            lanes: RwLock::default(),
            paused: AtomicU8::new(0),
            paused_until: PerClass::default(),
        }
    }

    /// Returns the name, for logs.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the kind of the connection at its outer end.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Records whether there is a link.
    pub fn set_up(&self, up: bool) {
        self.up.store(up, Ordering::Relaxed);
    }

    /// Records the longest IP packet that the port carries, if there is a limit. Returns whether
    /// that is another one than before.
    pub fn set_mtu(&self, mtu: Option<u32>) -> bool {
        let mtu = mtu.unwrap_or(0);
        self.mtu.swap(mtu, Ordering::Relaxed) != mtu
    }

    /// Sets the lanes that watchers see.
    pub fn set_lanes(&self, lanes: Option<PortLanes>) {
        *self.lanes.write() = lanes;
    }

    /// Pauses a class of the adapter behind the port up to a time, or lets it go on.
    pub fn pause(&self, class: Class, until: Option<Nanos>) {
        let bit = 1 << class.number();
        match until {
            Some(until) => {
                self.paused_until[class].store(until.0, Ordering::Relaxed);
                self.paused.fetch_or(bit, Ordering::Release);
            }
            None => drop(self.paused.fetch_and(!bit, Ordering::Relaxed)),
        }
    }

    /// Lets the adapter behind the port go on with all classes.
    pub fn end_pauses(&self) {
        self.paused.store(0, Ordering::Relaxed);
    }

    /// Returns whether the adapter behind the port must not send frames with these fields now.
    #[must_use]
    pub fn pauses(&self, fields: ServiceFields) -> bool {
        let paused = ClassSet(self.paused.load(Ordering::Acquire));
        if paused == ClassSet::default() {
            return false;
        }
        let class = self.lanes.read().as_ref().map(|lanes| lanes.class(fields));
        class.is_some_and(|class| {
            let until = self.paused_until[class].load(Ordering::Relaxed);
            paused.contains(class) && now().0 < until
        })
    }

    /// Counts `frames` that were dropped.
    pub fn count_dropped(&self, reason: Reason, frames: usize) {
        // CAST: the reasons are numbered in the order of the array.
        if let Some(counter) = self.dropped.get(reason as usize) {
            counter.fetch_add(frames as u64, Ordering::Relaxed);
        }
    }

    /// Returns what its lanes have counted, if it has some.
    #[must_use]
    pub fn lanes(&self) -> Vec<LaneView> {
        self.lanes.read().as_ref().map_or_else(Vec::new, |lanes| lanes.views(now()))
    }

    /// Returns all of it as it is now.
    #[must_use]
    pub fn view(&self) -> PortView {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mtu = self.mtu.load(Ordering::Relaxed);
        let dropped = REASONS.iter().zip(&self.dropped);
        PortView {
            name: self.name.clone(),
            kind: self.kind,
            up: self.up.load(Ordering::Relaxed),
            mtu: (mtu != 0).then_some(mtu),
            received_frames: load(&self.received.frames),
            received_bytes: load(&self.received.bytes),
            sent_frames: load(&self.sent.frames),
            sent_bytes: load(&self.sent.bytes),
            lanes: self.lanes(),
            dropped: dropped.map(|((_, name), count)| ((*name).to_owned(), load(count))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_counter_of_its_own() {
        let status = PortStatus::new("p", Kind::Trunk);
        for (count, (reason, _)) in (1..).zip(REASONS) {
            status.count_dropped(reason, count);
        }
        let view = status.view();
        for (count, (_, name)) in (1..).zip(REASONS) {
            assert_eq!(view.dropped.get(name), Some(&count), "{name}");
        }
    }
}
