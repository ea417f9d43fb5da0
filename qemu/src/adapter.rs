//! An adapter of a guest: a function of the daemon and its virtio NIC.

use std::path::{Path, PathBuf};

use anyhow::Context;
pub use vrnic_abi::admin::Transport;

/// Shell commands for a guest with several adapters. All rails share an Ethernet. So each NIC
/// answers ARP only for its own addresses. The guest can also reach its own other addresses.
pub(crate) const RAILS: &str = "cd /proc/sys/net/ipv4/conf/all; echo 1 >arp_ignore; \
                                echo 2 >arp_announce; echo 1 >accept_local";

/// Parses the name of a protocol.
///
/// # Errors
/// If the protocol does not exist.
pub fn parse_transport(name: &str) -> anyhow::Result<Transport> {
    Transport::from_name(name).with_context(|| format!("there is no protocol '{name}'"))
}

/// An adapter. Each adapter of a guest belongs to another rail: the first adapters of all guests
/// are in one subnet, the second ones in another.
#[derive(Clone, Debug)]
pub struct Adapter {
    /// Name of the daemon's function: the guest's letter, followed by a number except for the first
    /// adapter.
    pub name: String,
    /// MAC of the function and of its virtio NIC.
    pub mac: String,
    /// IPv4 address of that NIC, with prefix length.
    pub address: String,
    /// vfio-user socket of the function.
    pub socket: PathBuf,
    /// Ethernet socket of the function.
    pub net: PathBuf,
    /// The protocol of the function.
    pub personality: Transport,
    /// True if the guest may set rules for faults of the function.
    pub guest_faults: bool,
}

impl Adapter {
    /// Returns adapter `rail` of guest `guest`, both counted from 0, with its sockets in `dir`.
    #[must_use]
    pub fn new(dir: &Path, guest: u8, rail: u8) -> Self {
        let name = name(guest, rail);
        Self {
            mac: format!(
                "52:54:00:76:{:02x}:{:02x}",
                0x72_u8.wrapping_add(rail),
                0x0a_u8.wrapping_add(guest)
            ),
            address: address(guest, rail) + "/24",
            socket: dir.join(format!("{name}.sock")),
            net: dir.join(format!("{name}.net")),
            name,
            personality: Transport::Roce,
            guest_faults: false,
        }
    }

    /// Returns the adapter with this protocol, and this permission for its guest.
    #[must_use]
    pub fn of(self, personality: Transport, guest_faults: bool) -> Self {
        Self { personality, guest_faults, ..self }
    }

    /// Returns its IPv4 address, without prefix length.
    #[must_use]
    pub fn ip(&self) -> &str {
        self.address.split('/').next().unwrap_or_default()
    }
}

/// Returns the IPv4 address of adapter `rail` of guest `guest`.
pub(crate) fn address(guest: u8, rail: u8) -> String {
    format!("10.9.{rail}.{}", u16::from(guest) + 1)
}

/// Returns the name of adapter `rail` of guest `guest`.
pub(crate) fn name(guest: u8, rail: u8) -> String {
    let rail = if rail > 0 { rail.to_string() } else { String::new() };
    guest_name(guest) + &rail
}

/// Returns the names of the adapters of so many guests, each of which has so many adapters.
#[must_use]
pub fn names(guests: u8, adapters: u8) -> Vec<String> {
    (0..guests).flat_map(|guest| (0..adapters).map(move |rail| name(guest, rail))).collect()
}

/// Returns the name of a guest, counted from 0: a letter.
#[must_use]
pub fn guest_name(guest: u8) -> String {
    char::from(b'a'.saturating_add(guest)).to_string()
}
