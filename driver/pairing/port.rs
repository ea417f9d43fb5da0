// SPDX-License-Identifier: GPL-2.0
//! The adapter's port, which follows the state of an Ethernet device, and its link.

use abi::admin::{SetGid, SetPort, command};
use kernel::{
    prelude::*,
    sync::Arc,
    time::{Delta, delay::fsleep},
};

use crate::{
    hw::uar::Doorbells, listeners::Listeners, port_link::PortLink, quiesce::Liveness,
    rdma::port::netdev::NetdevRef,
};

/// The time between two checks in [`Port::wait_for_beat`].
const POLL: Delta = Delta::from_millis(10);

/// The state of an Ethernet device that its port takes over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// The largest path MTU (`enum ib_mtu`), if there is one.
    path_mtu: Option<u32>,
    /// True if the port may carry anything.
    pub(super) active: bool,
}

impl Settings {
    /// The settings of a port without an Ethernet device.
    pub(super) const CLOSED: Self = Self { path_mtu: None, active: false };

    /// Returns the present settings for the port of this Ethernet device.
    pub(super) fn of(netdev: &NetdevRef) -> Self {
        Self { path_mtu: netdev.path_mtu(), active: netdev.is_active() }
    }
}

pub(crate) struct Port {
    liveness: Arc<Liveness>,
    listeners: Arc<Listeners>,
    doorbells: Arc<Doorbells>,
    mac: [u8; 6],
    /// Number of MACs that the driver can tell the adapter itself. With RoCE the core does that, by
    /// GIDs, so this is zero.
    macs: u32,
}

impl Port {
    /// Returns the port, with this MAC, of an adapter that the driver can tell of `macs` more.
    pub(crate) fn new(
        liveness: Arc<Liveness>,
        listeners: Arc<Listeners>,
        doorbells: Arc<Doorbells>,
        mac: [u8; 6],
        macs: u32,
    ) -> Self {
        Self { liveness, listeners, doorbells, mac, macs }
    }

    /// Returns the link of the port.
    pub(super) fn link(&self) -> &PortLink {
        &self.listeners.link
    }

    /// Returns whether it is active for clients: it has a link, and so has its Ethernet device.
    pub(super) fn is_active(&self, netdev: &NetdevRef) -> bool {
        self.link().is_up() && netdev.is_active()
    }

    /// Returns the MAC of the port.
    pub(super) fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Returns the number of other MACs that the driver can tell the adapter.
    pub(super) fn macs(&self) -> usize {
        self.macs as usize
    }

    /// Tells the adapter of another MAC with which the guest sends, or that there is none at this
    /// index any more. Returns whether the adapter knows it.
    pub(super) fn set_mac(&self, index: usize, mac: Option<[u8; 6]>) -> bool {
        // CAST: there are at most 65,536 indices.
        let index = index as u16;
        let params = mac.map_or(SetGid::clear(index), |mac| SetGid::of_mac(index, mac));
        let result = self.liveness.execute::<command::SetGid>(&params);
        if let Err(error) = &result {
            if !self.liveness.is_dead() {
                let device = self.liveness.device();
                dev_warn!(device, "the adapter refuses the MAC {mac:02x?}: {error:?}\n");
            }
        }
        result.is_ok()
    }

    /// Reports that there are more MACs than the adapter can know.
    pub(super) fn warn_of_macs(&self, most: usize) {
        dev_warn!(
            self.liveness.device(),
            "there are network devices with more than {most} MACs on top of the network card; frames \
             of the others may be dropped\n"
        );
    }

    /// Sends its settings to the adapter. If the adapter stalls, this waits until it continues.
    pub(super) fn set(&self, settings: &Settings) {
        self.wait_for_beat();
        let mtu = u8::try_from(settings.path_mtu.unwrap_or(0)).unwrap_or(u8::MAX);
        let params = SetPort::new(mtu, settings.active);
        match self.liveness.execute::<command::SetPort>(&params) {
            Err(error) if !self.liveness.is_dead() => {
                let device = self.liveness.device();
                dev_warn!(device, "the adapter refuses {settings:?} for its port: {error:?}\n");
            }
            _ => {}
        }
    }

    /// Reports that the port could not be paired.
    pub(super) fn warn(&self, error: Error) {
        let device = self.liveness.device();
        dev_warn!(device, "pairing the port with its Ethernet device failed: {error:?}\n");
    }

    /// Waits until the adapter's heartbeat steps, or it has died. Each command writes a register,
    /// and such a write stops the whole machine while the adapter stalls, so a command that is not
    /// urgent waits for an adapter that runs.
    fn wait_for_beat(&self) {
        let beat = self.doorbells.heartbeat();
        while self.doorbells.heartbeat() == beat && !self.liveness.is_dead() {
            fsleep(POLL);
        }
    }
}
