//! The adapters of this daemon by MAC, in which a QP finds its peer.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::datapath::transport::arrival::Arrival;
use crate::datapath::transport::{ingress, rules};
use crate::domain::{Domain, Domains};
use crate::ethernet::{Frame, Heading, Uplink};
use crate::host::Host;
use crate::objects::Objects;
use crate::objects::core::Core;
use crate::objects::faults::trace::Step;
use crate::objects::network::addresses::{Address, Addresses};
use crate::objects::qp::Peer;
use crate::slice::Slice;
use crate::stats::Counter;
use crate::watch::{Sender, Watch};
use vrnic_abi::Qpn;
use vrnic_faults::{Rules, Site};
use vrnic_packet::{MacAddr, ServiceFields, VlanMac};

/// The network of a daemon for its adapters: the other adapters, and the uplink to stations
/// outside.
#[derive(Debug)]
pub struct Fabric<H: Host> {
    addresses: Arc<Addresses<H>>,
    domains: Domains,
    /// Number of times that a QP has joined a multicast group.
    joined: AtomicU64,
    /// True if peers of this daemon are also reached by packets.
    packets_only: AtomicBool,
    /// True if packets between adapters of this daemon also go through the switch.
    by_switch: AtomicBool,
    /// The watcher of traffic. Workers read this field for each message.
    pub watch: CachePadded<Watch>,
    /// The rules for faults of its adapters.
    pub faults: Arc<Rules>,
}

/// An adapter in its daemon's network.
#[derive(Debug)]
pub struct Network<'a, H: Host> {
    /// The objects of the adapter itself.
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

    /// Sends the frames of a QP's turn, and empties `outbox`. If the port is down, they are lost,
    /// as with an unplugged cable.
    pub(super) fn send_off(&self, from: Qpn, outbox: &mut Vec<Frame>, slice: &Slice<'_, H>) {
        if outbox.is_empty() {
            return;
        }
        if self.core().carries() {
            slice.charge_copies(self.transmit(from, outbox));
        }
        outbox.clear();
    }

    /// Returns whether the adapter can send joined frames. If there is a watcher of its frames,
    /// each segment is sent as a frame of its own.
    pub(crate) fn joins(&self) -> bool {
        let Fabric { addresses, watch, .. } = self.fabric;
        let has_rules = || self.core().injection.looks_at(Site::Packet);
        addresses.uplink().is_some_and(|uplink| uplink.joins())
            && watch.of_leaving(has_rules).is_none()
    }

    /// Returns whether a MAC belongs to the adapter in a VLAN. A QP may have been connected with
    /// one that the adapter has lost since.
    #[inline]
    pub(crate) fn has_address(&self, at: VlanMac) -> bool {
        let core = self.core();
        let claims = || self.fabric.station(at).is_some_and(|it| Arc::ptr_eq(it.core(), core));
        at.mac == core.mac() || claims()
    }

    /// Returns whether the adapter has named a MAC as one of its addresses in some VLAN.
    pub(crate) fn claims(&self, mac: MacAddr) -> bool {
        self.fabric.addresses.is_claimed_by(self.own, mac)
    }

    /// Sends frames of a QP of the adapter, and empties `frames`, which have the same source. They
    /// are lost if the adapter has lost the MAC of the source. Returns the number of copies for QPs
    /// of raw packets.
    pub(crate) fn transmit(&self, qpn: Qpn, frames: &mut Vec<Frame>) -> u64 {
        let core = self.core();
        if !frames.first().is_none_or(|first| self.has_address(first.sender())) {
            core.stats().add(Counter::TxRoceDiscards, frames.len() as u64);
            frames.clear();
            return 0;
        }
        let copies: u64 = frames.iter().map(|frame| rules::sniff(self.own, frame)).sum();
        copies + self.fabric.transmit(&sender(core, qpn, frames), frames)
    }

    /// Sends frames that a program has composed, of which the own sniffers have copies, and empties
    /// `frames`. Returns the number of copies for QPs of raw packets.
    pub(super) fn transmit_composed(&self, qpn: Qpn, frames: &mut Vec<Frame>) -> u64 {
        self.fabric.transmit(&sender(self.core(), qpn, frames), frames)
    }
}

/// Returns a QP of an adapter as the sender of frames, which are passed to the trace.
fn sender<'a, H: Host>(core: &'a Core<H>, qpn: Qpn, frames: &[Frame]) -> Sender<'a> {
    let has_rules = core.injection.looks_at(Site::Packet);
    if has_rules {
        for frame in frames {
            core.injection.trace(core.here(), qpn, Step::packet(frame.bytes(), true));
        }
    }
    let trace = has_rules.then(|| (&core.injection, core.here()));
    Sender { function: core.name(), mac: core.mac(), qpn, has_rules, trace }
}

impl<H: Host> Default for Fabric<H> {
    fn default() -> Self {
        Self {
            addresses: Arc::default(),
            domains: Domains::default(),
            joined: AtomicU64::new(0),
            packets_only: AtomicBool::new(false),
            by_switch: AtomicBool::new(false),
            watch: CachePadded::default(),
            faults: Arc::default(),
        }
    }
}

impl<H: Host> Fabric<H> {
    /// Returns the domain of an adapter that is about to join.
    pub(crate) fn new_domain(&self) -> Domain {
        self.domains.next()
    }

    /// Adds an adapter, so that others find it.
    pub fn join(&self, station: &Arc<Objects<H>>) {
        self.addresses.join(station);
    }

    /// Connects the adapters with the network outside of the daemon. Only the first call has an
    /// effect.
    pub fn attach(&self, uplink: Arc<dyn Uplink>) {
        self.addresses.attach(uplink);
    }

    /// Makes adapters of this daemon reach each other by packets, as if they were in different
    /// daemons. QPs that are connected already keep their path.
    pub fn use_packets_only(&self) {
        self.packets_only.store(true, Ordering::Relaxed);
    }

    /// Sets whether packets between adapters of this daemon go through the switch, because its
    /// ports have rates or classes. Otherwise they go directly to the other adapter.
    pub fn use_switch(&self, by_switch: bool) {
        self.by_switch.store(by_switch, Ordering::Relaxed);
    }

    /// Returns whether there is a network outside of the daemon.
    #[must_use]
    pub fn has_uplink(&self) -> bool {
        self.addresses.uplink().is_some()
    }

    /// Returns whether the station at this address is reached by packets instead of by a copy:
    /// because it is outside, or because its adapter has no driver, so that the station may have a
    /// software device.
    #[must_use]
    pub fn needs_packets(&self, at: VlanMac) -> bool {
        self.packets_only.load(Ordering::Relaxed)
            || (self.addresses.uplink().is_some() && !self.has_driver(at))
    }

    /// Returns whether the station at this address is an adapter of this daemon that a driver uses.
    pub(crate) fn has_driver(&self, at: VlanMac) -> bool {
        self.station(at).is_some_and(|station| station.core().is_enabled())
    }

    /// Returns approximately how many frames the adapter with the MAC `source` can send with this
    /// direction before some are dropped.
    pub(crate) fn room(&self, source: MacAddr, Heading { to, service }: Heading) -> usize {
        match (self.station(to), self.addresses.uplink()) {
            (_, Some(uplink)) if self.by_switch() => uplink.room(source, service),
            (Some(station), _) => station.core().frame_room(),
            (None, Some(uplink)) => uplink.room(source, service),
            (None, None) => usize::MAX,
        }
    }

    /// Returns whether the network asks the adapter with the MAC `source` to send no frames of this
    /// class of service at present, which is so only if its port has classes.
    pub(crate) fn pauses(&self, source: MacAddr, service: impl FnOnce() -> ServiceFields) -> bool {
        self.by_switch()
            && self.addresses.uplink().is_some_and(|uplink| uplink.pauses(source, service()))
    }

    /// Returns where a frame goes, with the fields of its class if ports have classes.
    pub(crate) fn heading(&self, frame: &Frame) -> Heading {
        let fields = self.by_switch().then(|| ServiceFields::of(frame.bytes()));
        Heading { to: frame.receiver(), service: fields.unwrap_or_default() }
    }

    fn by_switch(&self) -> bool {
        self.by_switch.load(Ordering::Relaxed)
    }

    /// Returns approximately how many frames of the adapter with the MAC `source` have room both at
    /// the station that they go to, if it is in this daemon, and on the way outside.
    pub(crate) fn room_by_all_ways(&self, source: MacAddr, heading: Heading) -> usize {
        let Heading { to, service } = heading;
        let uplink = self.addresses.uplink();
        let uplink = uplink.map_or(usize::MAX, |uplink| uplink.room(source, service));
        let station = self.station(to).map_or(usize::MAX, |it| it.core().frame_room());
        uplink.min(station)
    }

    /// Sends frames to adapters of this daemon and to the network outside, and empties `frames`.
    /// Returns the number of copies for QPs of raw packets.
    fn transmit(&self, from: &Sender<'_>, frames: &mut Vec<Frame>) -> u64 {
        if let Some(watcher) = self.watch.of_leaving(|| from.has_rules) {
            watcher.leaving(from, frames);
        }
        self.deliver(from.mac, frames)
    }

    /// Sends frames of the adapter with the MAC `source` that the watcher has already seen, and
    /// empties `frames`. Returns the number of copies for QPs of raw packets. Can be called from
    /// any thread.
    pub fn deliver(&self, source: MacAddr, frames: &mut Vec<Frame>) -> u64 {
        let arrival = Arrival::direct(self.has_uplink(), self.watch.of_all());
        let by_switch = self.by_switch();
        // Frames of a turn mostly have the same destination.
        let mut last = None;
        frames.retain_mut(|frame| {
            if by_switch || frame.is_for_switch() {
                return true;
            }
            let to = frame.receiver();
            if last.as_ref().is_none_or(|(at, _)| *at != to) {
                last = Some((to, self.station(to)));
            }
            let Some((_, Some(station))) = &last else { return true };
            let back = ingress::offer(station, std::mem::take(frame), &arrival).other();
            let is_back = back.is_some();
            // The station's adapter has no driver, but its network card may have a software device.
            *frame = back.unwrap_or_default();
            is_back
        });
        match self.addresses.uplink() {
            Some(uplink) if !frames.is_empty() => uplink.send(source, frames),
            Some(_) => {}
            None => self.count_lost(source, frames),
        }
        frames.clear();
        arrival.copies()
    }

    /// Counts the frames of programs that neither an adapter nor an uplink takes.
    fn count_lost(&self, source: MacAddr, frames: &[Frame]) {
        let lost: usize = frames.iter().filter(|it| it.is_composed()).map(Frame::count).sum();
        if lost > 0
            && let Some(sender) = self.addresses.with_own(source)
        {
            sender.core().stats().add(Counter::TxRoceDiscards, lost as u64);
        }
    }

    /// Returns the objects of the adapter to which this MAC belongs in its VLAN.
    #[must_use]
    pub fn station(&self, at: VlanMac) -> Option<Arc<Objects<H>>> {
        self.addresses.owner(at)
    }

    /// Returns the objects of the first adapter whose own MAC is within this lower bound.
    #[must_use]
    pub fn next(&self, from: Bound<MacAddr>) -> Option<Arc<Objects<H>>> {
        self.addresses.next(from)
    }

    /// Claims a MAC in a VLAN for an adapter. Returns `None` if no station can have this MAC.
    pub(crate) fn claim(&self, at: VlanMac, station: &Arc<Objects<H>>) -> Option<Address<H>> {
        self.addresses.claim(at, station)
    }

    /// Returns the position of a QP that joins a multicast group, in the order of joining.
    pub(crate) fn join_group(&self) -> u64 {
        self.joined.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of adapters that have joined.
    pub(crate) fn joined(&self) -> u64 {
        self.joined.load(Ordering::Relaxed)
    }

    /// Returns the QP `qpn` of the adapter to which this MAC belongs in its VLAN.
    #[must_use]
    pub fn find(&self, at: VlanMac, qpn: Qpn) -> Option<Peer<H>> {
        let station = self.station(at)?;
        let qp = station.qp(qpn)?;
        Some(Peer { core: Arc::clone(station.core()), qp })
    }
}
