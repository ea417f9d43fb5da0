//! The addresses of adapters, and messages between their connection managers.
//!
//! Messages are those that packets would carry between queue pairs 1. They are handed over in
//! memory here, and only here: [`Network::carry`].

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use vrnic_cm::manager::receive::Arrival;
use vrnic_cm::manager::{ConnectionId, Manager};
use vrnic_cm::state::Event;
use vrnic_packet::Nanos;

use super::ids::Attached;
use super::sockaddr::gid;
use crate::trap::tree::guid;
use crate::uverbs::device::Device;

/// Maximum number of connections of an adapter.
const CONNECTIONS_MAX: usize = 1 << 16;

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
            let family = |gid: &[u8; 16]| is_ipv4(gid) == ip.is_ipv4();
            of_device(0, self.devices.first()?, &family)
        };
        exact.or_else(|| if ip.is_loopback() { any() } else { None })
    }

    /// Returns the own address on the way to another one, as the routes of a loopback interface
    /// give it: that of the first adapter.
    #[must_use]
    pub fn source_for(&self, dest: IpAddr) -> Option<IpAddr> {
        let gids = self.devices.first()?.gids();
        let found = gids.iter().find(|gid| is_ipv4(gid) == dest.is_ipv4())?;
        let address = Ipv6Addr::from(*found);
        Some(address.to_ipv4_mapped().map_or(address.into(), IpAddr::from))
    }

    /// Returns the GID of a peer's address: an adapter's, or that of a multicast group.
    #[must_use]
    pub fn dest_gid(&self, ip: IpAddr) -> Option<[u8; 16]> {
        if ip.is_multicast() { Some(gid(ip)) } else { self.attached(ip).map(|to| to.gid) }
    }

    /// Carries all messages to the managers that they are for. One for nobody is lost.
    pub fn carry(&mut self, now: Nanos) {
        while let Some(out) = self.managers.iter_mut().find_map(Manager::message) {
            let has = |device: &Arc<Device>| device.gids().contains(&out.path.dest);
            let to = self.devices.iter().position(has);
            if let Some(manager) = to.and_then(|to| self.managers.get_mut(to)) {
                let from = Arrival { source: out.path.source, dest: out.path.dest };
                manager.receive(now, from, &out.mad);
            }
        }
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
