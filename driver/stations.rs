// SPDX-License-Identifier: GPL-2.0
//! The RDMA devices of an iWARP adapter in addition to its first one: one for each macvlan device,
//! bridge and bond on top of its network card.
//!
//! The connection manager of the kernel lets an iWARP device connect only with addresses of the one
//! network device that the port is paired with, and of its VLANs (`cma_validate_port` in `cma.c`).
//! So each of these network devices has an RDMA device of its own. All RDMA devices share the
//! adapter, and each has connections of its own.

use kernel::{device, prelude::*, sync::Arc};

use crate::{
    iwarp::Connections,
    listeners::Listeners,
    pairing::PORT,
    rdma::{
        event::DeviceLink,
        port::netdev::NetdevRef,
        registration::{Registration, Unregistered},
    },
    verbs::Verbs,
};

/// The RDMA device of a network device on top of the network card.
pub(crate) struct Station {
    netdev: NetdevRef,
    listeners: Arc<Listeners>,
    link: DeviceLink,
    _registration: Registration<'static, Verbs>,
    /// The last reference, whose drop sleeps.
    connections: Arc<Connections>,
}

impl Station {
    /// Pairs an RDMA device, whose connections these are, with `netdev`, and registers it below
    /// `parent`.
    pub(crate) fn new(
        netdev: NetdevRef,
        device: Unregistered<'static, Verbs>,
        parent: &'static device::Device<device::Bound>,
        listeners: Arc<Listeners>,
        connections: Arc<Connections>,
    ) -> Result<Self> {
        let link = device.link();
        link.set_netdev(PORT, Some(&netdev))?;
        let registration = Registration::new(device, parent)?;
        let this = Self { netdev, listeners, link, _registration: registration, connections };
        this.listeners.add_device(this.link.clone())?;
        this.report();
        Ok(this)
    }

    /// Passes on changes of the network device, and of the adapter's port.
    fn check(&self) {
        self.connections.check_listeners();
        self.report();
    }

    /// Tells the clients whether the port is active, unless they know it.
    fn report(&self) {
        let active = self.listeners.link.is_up() && self.netdev.is_active();
        self.link.report_port_state(PORT, active);
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        // The core waits for the last events of all connections.
        self.connections.end();
        self.listeners.remove_device(&self.link);
        let _ = self.link.set_netdev(PORT, None);
    }
}

/// Makes `stations` those of the network devices `present`. `add` makes the RDMA device of a
/// network device that has none. If that fails, it is tried again at the next change.
pub(crate) fn follow(
    stations: &mut KVec<Station>,
    present: KVec<NetdevRef>,
    add: impl Fn(NetdevRef) -> Result<Station>,
) -> Result {
    stations.retain(|station| present.iter().any(|netdev| *netdev == station.netdev));
    let mut result = Ok(());
    for netdev in present {
        match stations.iter().find(|station| station.netdev == netdev) {
            Some(station) => station.check(),
            None => {
                let added = add(netdev);
                result = result.and(added.and_then(|new| Ok(stations.push(new, GFP_KERNEL)?)));
            }
        }
    }
    result
}
