//! The adapters of this daemon by MAC, in which a QP finds its peer.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use crossbeam_utils::CachePadded;
use parking_lot::RwLock;

use crate::datapath::transport::ingress;
use crate::ethernet::{Frame, Uplink};
use crate::host::Host;
use crate::objects::Objects;
use crate::objects::core::Core;
use crate::objects::qp::Peer;
use crate::watch::{Sender, Watch};
use vrnic_abi::Qpn;

/// The network of a daemon for its adapters: the other adapters, and the uplink to stations
/// outside.
#[derive(Debug)]
pub struct Fabric<H: Host> {
    stations: RwLock<BTreeMap<[u8; 6], Weak<Objects<H>>>>,
    /// Number of times that a QP has joined a multicast group.
    joined: AtomicU64,
    /// The network outside of the daemon, if there is one.
    uplink: OnceLock<Arc<dyn Uplink>>,
    /// True if peers of this daemon are also reached by packets.
    packets_only: AtomicBool,
    /// The watcher of traffic. Workers read this field for each message.
    pub watch: CachePadded<Watch>,
}

/// An adapter in its daemon's network.
#[derive(Debug)]
pub struct Network<'a, H: Host> {
    /// Its own objects.
    pub own: &'a Objects<H>,
    /// The network.
    pub fabric: &'a Fabric<H>,
}

impl<H: Host> Clone for Network<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H: Host> Copy for Network<'_, H> {}

impl<'a, H: Host> Network<'a, H> {
    /// Returns the part of the adapter that its objects share.
    #[must_use]
    pub fn core(&self) -> &'a Arc<Core<H>> {
        self.own.core()
    }

    /// Sends frames of a QP of the adapter, and empties `frames`.
    pub(crate) fn transmit(&self, qpn: Qpn, frames: &mut Vec<Frame>) {
        let core = self.core();
        let from = Sender { function: core.name(), mac: core.mac(), qpn };
        self.fabric.transmit(&from, frames);
    }
}

impl<H: Host> Default for Fabric<H> {
    fn default() -> Self {
        Self {
            stations: RwLock::default(),
            joined: AtomicU64::new(0),
            uplink: OnceLock::new(),
            packets_only: AtomicBool::new(false),
            watch: CachePadded::default(),
        }
    }
}

impl<H: Host> Fabric<H> {
    /// Adds an adapter, so that others find it.
    pub fn join(&self, station: &Arc<Objects<H>>) {
        self.stations.write().insert(station.core().mac(), Arc::downgrade(station));
    }

    /// Connects the adapters with the network outside of the daemon. Only the first call has an
    /// effect.
    pub fn attach(&self, uplink: Arc<dyn Uplink>) {
        let _connected_before = self.uplink.set(uplink);
    }

    /// Makes adapters of this daemon reach each other by packets, as if they were in different
    /// daemons. QPs that are connected already keep their path.
    pub fn use_packets_only(&self) {
        self.packets_only.store(true, Ordering::Relaxed);
    }

    /// Returns whether there is a network outside of the daemon.
    #[must_use]
    pub fn has_uplink(&self) -> bool {
        self.uplink.get().is_some()
    }

    /// Returns whether the station with this MAC is reached by packets instead of by a copy:
    /// because it is outside, or because its adapter has no driver, so that the station may have a
    /// software device.
    #[must_use]
    pub fn needs_packets(&self, mac: [u8; 6]) -> bool {
        self.packets_only.load(Ordering::Relaxed)
            || (self.uplink.get().is_some() && !self.has_driver(mac))
    }

    /// Returns whether the station with this MAC is an adapter of this daemon that a driver uses.
    pub(crate) fn has_driver(&self, mac: [u8; 6]) -> bool {
        self.station(mac).is_some_and(|station| station.core().is_enabled())
    }

    /// Returns approximately how many frames the adapter with the MAC `source` can send to the
    /// station `to` before some are dropped.
    pub(crate) fn room(&self, source: [u8; 6], to: [u8; 6]) -> usize {
        match (self.station(to), self.uplink.get()) {
            (Some(station), _) => station.core().frame_room(),
            (None, Some(uplink)) => uplink.room(source),
            (None, None) => usize::MAX,
        }
    }

    /// Returns whether joined frames can be sent. If there is a watcher, each segment is sent as a
    /// frame of its own.
    pub(crate) fn joins(&self) -> bool {
        self.uplink.get().is_some_and(|uplink| uplink.joins()) && self.watch.of_frames().is_none()
    }

    /// Sends frames to adapters of this daemon and to the network outside, and empties `frames`.
    fn transmit(&self, from: &Sender<'_>, frames: &mut Vec<Frame>) {
        if let Some(watcher) = self.watch.of_frames() {
            watcher.leaving(from, frames);
        }
        self.deliver(from.mac, frames);
    }

    /// Sends frames of the adapter with the MAC `source` that the watcher has already seen, and
    /// empties `frames`. Can be called from any thread.
    pub fn deliver(&self, source: [u8; 6], frames: &mut Vec<Frame>) {
        let watcher = self.watch.of_frames();
        frames.retain_mut(|frame| {
            let Some(station) = self.station(frame.destination()) else { return true };
            if let Some(watcher) = watcher.filter(|_| station.core().is_enabled()) {
                watcher.arriving(station.core().name(), frame);
            }
            let back = ingress::offer(&station, std::mem::take(frame)).other();
            let is_back = back.is_some();
            // The station's adapter has no driver, but its network card may have a software device.
            *frame = back.unwrap_or_default();
            is_back
        });
        match self.uplink.get() {
            Some(uplink) if !frames.is_empty() => uplink.send(source, frames),
            _ => {}
        }
        frames.clear();
    }

    /// Returns the objects of the adapter whose port has this MAC.
    #[must_use]
    pub fn station(&self, mac: [u8; 6]) -> Option<Arc<Objects<H>>> {
        self.stations.read().get(&mac)?.upgrade()
    }

    /// Returns the objects of the first adapter whose MAC is within this lower bound.
    #[must_use]
    pub fn next(&self, from: Bound<[u8; 6]>) -> Option<Arc<Objects<H>>> {
        let stations = self.stations.read();
        stations.range((from, Bound::Unbounded)).find_map(|(_, station)| station.upgrade())
    }

    /// Returns the position of a QP that joins a multicast group, in the order of joining.
    pub(crate) fn join_group(&self) -> u64 {
        self.joined.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of adapters that have joined.
    pub(crate) fn joined(&self) -> u64 {
        self.joined.load(Ordering::Relaxed)
    }

    /// Returns the QP `qpn` of the adapter whose port has this MAC.
    #[must_use]
    pub fn find(&self, mac: [u8; 6], qpn: Qpn) -> Option<Peer<H>> {
        let station = self.station(mac)?;
        let qp = station.qp(qpn)?;
        Some(Peer { core: Arc::clone(station.core()), qp })
    }
}
