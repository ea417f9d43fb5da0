// SPDX-License-Identifier: GPL-2.0
//! The adapter's port, which follows the state of an Ethernet device.

use abi::admin::{SetPort, command};
use kernel::{
    prelude::*,
    sync::Arc,
    time::{Delta, delay::fsleep},
};

use crate::{hw::uar::Doorbells, quiesce::Liveness, rdma::netdev::NetdevRef};

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

/// The port.
pub(crate) struct Port {
    liveness: Arc<Liveness>,
    doorbells: Arc<Doorbells>,
}

impl Port {
    /// Returns the port of this adapter.
    pub(crate) fn new(liveness: Arc<Liveness>, doorbells: Arc<Doorbells>) -> Self {
        Self { liveness, doorbells }
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
