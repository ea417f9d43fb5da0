//! A bridge of the host with two TAP devices.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;

use vrnic_device::net::uplinks::interface::attach_tap;
use vrnic_testdriver::namespace::Namespace;

/// The MTU of the bridge.
const MTU: u32 = 4200;

/// A bridge with two TAP devices, which is removed on drop.
pub(super) struct Bridge<'a>(&'a Namespace);

impl<'a> Bridge<'a> {
    pub(super) fn new(host: &'a Namespace) -> Self {
        host.run(&format!(
            "ip link add br0 mtu {MTU} type bridge && ip link set br0 up && \
             for name in left right; do ip tuntap add $name mode tap && \
             ip link set $name mtu {MTU} master br0 up || exit; done"
        ));
        Self(host)
    }
}

impl Drop for Bridge<'_> {
    fn drop(&mut self) {
        self.0.run("ip link del left && ip link del right && ip link del br0");
    }
}

/// Opens a TAP device. With headers, frames of a connection pass the kernel as one.
pub(super) fn tap(name: &str, headers: bool) -> anyhow::Result<File> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    attach_tap(device.as_fd(), name, headers)?;
    Ok(device)
}
