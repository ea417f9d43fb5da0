//! The addresses of adapters, and the messages that their connection managers exchange by queue
//! pairs 1.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use vrnic_abi::qp::AddressVector;
use vrnic_cm::manager::receive::Arrival;
use vrnic_cm::manager::{ConnectionId, Manager};
use vrnic_cm::parameters::Path;
use vrnic_cm::state::Event;
use vrnic_packet::Nanos;

use super::ids::Attached;
use super::sockaddr::gid;
use crate::join::neighbors::{FRESH, Found};
use crate::join::resolution::Neighbor;
use crate::trap::tree::guid;
use crate::uverbs::address::{contained, encode};
use crate::uverbs::device::{Device, PORT};
use crate::uverbs::write::QpDest;

/// Maximum number of connections of an adapter.
const CONNECTIONS_MAX: usize = 1 << 16;

/// Maximum number of messages of an adapter that are handled in a turn, because programs wait
/// meanwhile.
const MESSAGES_AT_ONCE: usize = 32;

/// What happened to a connection of an adapter.
#[derive(Debug)]
pub struct Happened {
    /// The number of the adapter.
    pub adapter: usize,
    /// The connection.
    pub connection: ConnectionId,
    /// What happened.
    pub event: Event,
}

/// The adapters, and their connection managers.
#[derive(Debug)]
pub struct Network {
    devices: Vec<Arc<Device>>,
    managers: Vec<Manager>,
}

/// Returns whether a GID is an IPv4 address.
fn is_ipv4(gid: &[u8; 16]) -> bool {
    Ipv6Addr::from(*gid).to_ipv4_mapped().is_some()
}

/// Returns the way of messages to a peer in the adapter's form. `None` if no station has the
/// address.
fn way(device: &Device, path: &Path) -> Option<AddressVector> {
    let index = device.gids().iter().position(|gid| *gid == path.source)?;
    let dest = QpDest {
        dgid: path.dest,
        flow_label: path.flow_label,
        sgid_index: u8::try_from(index).ok()?,
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        sl: path.level,
        is_global: 1,
        port_num: PORT,
        ..QpDest::default()
    };
    encode(device, &dest).ok()
}

impl Network {
    /// Returns these adapters, without connections. The numbers of connections begin after `first`.
    #[must_use]
    pub fn new(devices: &[Arc<Device>], first: u32) -> Self {
        let manager = |device: &Arc<Device>| {
            let guid = guid(device.driver().adapter().mac().0);
            Manager::new(u64::from_be_bytes(guid), CONNECTIONS_MAX, first)
        };
        Self { devices: devices.to_vec(), managers: devices.iter().map(manager).collect() }
    }

    /// Returns an adapter.
    #[must_use]
    pub fn device(&self, adapter: usize) -> Option<&Arc<Device>> {
        self.devices.get(adapter)
    }

    /// Returns the connection manager of an adapter.
    pub fn manager(&mut self, adapter: usize) -> Option<&mut Manager> {
        self.managers.get_mut(adapter)
    }

    /// Returns the number of adapters.
    #[must_use]
    pub fn count(&self) -> usize {
        self.devices.len()
    }

    /// Returns the adapter with an address. The first one has all loopback addresses that no
    /// adapter has.
    #[must_use]
    pub fn attached(&self, ip: IpAddr) -> Option<Attached> {
        let wanted = gid(ip);
        let of_device = |adapter: usize, device: &Device, is_it: &dyn Fn(&[u8; 16]) -> bool| {
            let index = device.gids().iter().position(is_it)?;
            let gid_index = u8::try_from(index).ok()?;
            Some(Attached { adapter, gid_index, gid: *device.gids().get(index)? })
        };
        let mut all = self.devices.iter().enumerate();
        let exact =
            all.find_map(|(adapter, device)| of_device(adapter, device, &|gid| *gid == wanted));
        let any = || {
            let family = |gid: &[u8; 16]| is_ipv4(gid) == ip.to_canonical().is_ipv4();
            of_device(0, self.devices.first()?, &family)
        };
        // In a shared network, others may have loopback addresses of IPv4.
        let ip = ip.to_canonical();
        let is_own = ip.is_loopback() && !(ip.is_ipv4() && self.is_shared());
        exact.or_else(|| if is_own { any() } else { None })
    }

    /// Returns the own address on the way to another one, as the routes of a loopback interface
    /// give it: that of the first adapter. The family is that of the other address, which may be
    /// one of IPv4 in the form of IPv6.
    #[must_use]
    pub fn source_for(&self, dest: IpAddr) -> Option<IpAddr> {
        let gids = self.devices.first()?.gids();
        let found = gids.iter().find(|gid| is_ipv4(gid) == dest.to_canonical().is_ipv4())?;
        let address = IpAddr::from(*found);
        Some(if dest.is_ipv4() { address.to_canonical() } else { address })
    }

    /// Returns the GID of a peer's address: an adapter's, that of a multicast group, or in a shared
    /// network any.
    #[must_use]
    pub fn dest_gid(&self, ip: IpAddr) -> Option<[u8; 16]> {
        let own = || self.attached(ip).map(|to| to.gid);
        if ip.is_multicast() { Some(gid(ip)) } else { own() }
            .or_else(|| self.is_shared().then(|| gid(ip)))
    }

    /// Returns whether other runs or guests are in the network.
    fn is_shared(&self) -> bool {
        self.devices.first().is_some_and(|device| device.neighbors().is_shared())
    }

    /// Looks for the station that has a GID, on the way from an adapter.
    #[must_use]
    pub fn find(&self, from: &Attached, gid: &[u8; 16]) -> Found {
        let Some(device) = self.devices.get(from.adapter) else { return Found::Nowhere };
        let asks = || device.neighbors().find_fresh(&from.gid, gid, FRESH);
        contained(gid).map_or_else(asks, Found::Known)
    }

    /// Returns a number that changes when addresses of others become known.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.devices.first().map_or(0, |device| device.neighbors().generation())
    }

    /// Sends messages of the managers, as many as there is room for. One to an unknown address is
    /// lost.
    pub fn send(&mut self) {
        for (device, manager) in self.devices.iter().zip(&mut self.managers) {
            let driver = device.driver();
            while manager.has_message() && driver.gsi().has_room(driver.host()) {
                let Some(out) = manager.message() else { break };
                if let Some(to) = way(device, &out.path) {
                    driver.gsi().send(driver.host(), &to, &out.mad);
                }
            }
        }
    }

    /// Returns whether messages wait for room.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.managers.iter().any(Manager::has_message)
    }

    /// Hands some messages that have arrived to the managers. Returns whether others wait.
    pub fn receive(&mut self, now: Nanos) -> bool {
        let mut more = false;
        for (device, manager) in self.devices.iter().zip(&mut self.managers) {
            let driver = device.driver();
            for _ in 0..MESSAGES_AT_ONCE {
                if !driver.gsi().has_received(driver.host()) {
                    break;
                }
                if let Some(received) = driver.gsi().receive(driver.host()) {
                    let (gid, mac) = (received.source, received.mac);
                    device.neighbors().learn_new(&Neighbor { gid, mac });
                    let from = Arrival { source: received.source, dest: received.dest };
                    manager.receive(now, from, &received.mad);
                }
            }
            more |= driver.gsi().has_received(driver.host());
        }
        more
    }

    /// Returns what happened next.
    pub fn happened(&mut self) -> Option<Happened> {
        let mut managers = self.managers.iter_mut().enumerate();
        managers.find_map(|(adapter, manager)| {
            let (connection, event) = manager.event()?;
            Some(Happened { adapter, connection, event })
        })
    }

    /// Returns the time at which [`Self::expire`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        self.managers.iter().filter_map(Manager::deadline).min()
    }

    /// Does what is due.
    pub fn expire(&mut self, now: Nanos) {
        self.managers.iter_mut().for_each(|manager| manager.expire(now));
    }
}
