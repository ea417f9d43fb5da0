//! The settings of guests and daemons, and the parameters of each guest for them.

use std::path::{Path, PathBuf};

use crate::adapter::{Adapter, Transport, guest_name};
#[cfg(doc)]
use crate::guest::Guest;
use crate::iommu::Iommu;
use crate::memory::MemoryDevice;
use crate::roots::disk::Disk;
#[cfg(doc)]
use crate::roots::overlay::TREE;
use crate::roots::root::Root;
#[cfg(doc)]
use crate::roots::system::KIT;
use crate::setup::Setup;

/// Maximum number of guests.
pub const GUESTS_MAX: u8 = 16;
/// Maximum number of adapters of a guest that starts from a snapshot. The firmware reserves 512 MiB
/// of the address space for each.
const MAX_ADAPTERS: u8 = 4;

/// A host: a network namespace with the network of one guest's daemon.
#[derive(Clone, Debug)]
pub struct Host {
    /// Name of the namespace.
    pub namespace: String,
    /// The daemon's uplink, such as `tap=vr0`.
    pub uplink: String,
}

/// Settings of a pair.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of guests, up to [`GUESTS_MAX`]: at least 2 in a pair, and 1 in a fleet.
    pub guests: u8,
    /// Virtual processors of each guest.
    pub cpus: u32,
    /// Memory of each guest in MiB.
    pub memory: u32,
    /// Adapters of each guest, at least 1.
    pub adapters: u8,
    /// The protocol of all adapters.
    pub personality: Transport,
    /// True if guests may set rules for faults of their adapters.
    pub guest_faults: bool,
    /// The IOMMUs of the guests a and b, if they have one.
    pub iommus: [Option<Iommu>; 2],
    /// True if each guest has a second network card with its adapter's MAC, and without a link.
    pub twins: bool,
    /// MiB of a disk next to each guest's first adapter; see [`Setup::disk`].
    pub disk: Option<u32>,
    /// MiB of memory in a BAR of the disk's controller, or zero for none.
    pub controller_memory: u32,
    /// A sector of these disks that can be neither read nor written, if they have one.
    pub bad_sector: Option<u32>,
    /// MiB of BARs of two more devices of guest a, or zero; see [`Setup::spare_bars`].
    pub spare_bars: u32,
    /// True if each guest has a separate daemon. The daemons are joined by trunks, one between any
    /// two of them, so all messages between guests are packets.
    pub apart: bool,
    /// Number of daemons, joined in the same way, if more than one daemon serves several guests
    /// each: the first guests belong to the first daemon.
    pub daemons: u8,
    /// True if each daemon has a control socket.
    pub controlled: bool,
    /// The hosts of the guests' daemons, one for each guest. Empty if this machine is the host.
    pub hosts: Vec<Host>,
    /// True if the adapters of both guests are plugged in later, with [`Guest::plug`].
    pub plugged: bool,
    /// The devices of memory that are plugged into the guests a and b later, if their adapters are.
    pub more_memory: [MemoryDevice; 2],
    /// True if the guests are whole Debian systems, without any part of vrnic.
    pub system: bool,
    /// True if vrnic.ko is loaded, and the RDMA devices are waited for.
    pub module: bool,
    /// More parameters of the guests' kernels.
    pub kernel: String,
    /// More files for the guests: path and content.
    pub files: Vec<(String, Vec<u8>)>,
    /// A folder of this machine whose contents are copied to [`TREE`] in the guests, or to [`KIT`]
    /// in whole systems.
    pub tree: Option<PathBuf>,
    /// More arguments for the daemon.
    pub daemon: Vec<String>,
    /// Another kernel than the image of the guests has.
    pub image: Option<PathBuf>,
    /// A disk of the user with the guests' root.
    pub root: Option<Disk>,
    /// A folder of this machine that the guests can mount, read-only.
    pub share: Option<PathBuf>,
    /// Shell commands that each guest runs before vrnic.ko is loaded.
    pub prepare: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            guests: 2,
            cpus: 1,
            memory: 1536,
            adapters: 1,
            personality: Transport::Roce,
            guest_faults: false,
            iommus: [None; 2],
            twins: false,
            disk: None,
            controller_memory: 0,
            bad_sector: None,
            spare_bars: 0,
            apart: false,
            daemons: 1,
            controlled: false,
            hosts: Vec::new(),
            plugged: false,
            more_memory: [MemoryDevice::Module; 2],
            system: false,
            module: true,
            kernel: String::new(),
            files: Vec::new(),
            tree: None,
            daemon: Vec::new(),
            image: None,
            root: None,
            share: None,
            prepare: String::new(),
        }
    }
}

impl Options {
    /// Returns why such guests must boot, or nothing if they can start from a snapshot.
    pub(crate) fn obstacle(&self) -> Option<&'static str> {
        if std::env::var_os("VRNIC_SNAPSHOT").is_some_and(|it| it == "no") {
            return Some("VRNIC_SNAPSHOT is no");
        }
        let obstacles = [
            (self.system || self.root.is_some(), "their root is a disk"),
            (self.iommus.iter().any(Option::is_some), "one has an IOMMU"),
            (self.disk.is_some() || self.spare_bars != 0, "they have more devices"),
            (self.plugged, "a test plugs in their adapters"),
            (self.adapters > MAX_ADAPTERS, "they have more adapters than slots have address space"),
        ];
        obstacles.into_iter().find_map(|(there, why)| there.then_some(why))
    }

    /// Returns the parameters of a guest, counted from 0.
    pub(crate) fn setup(&self, dir: &Path, guest: u8, root: Root) -> Setup {
        let adapter = |rail| Adapter::new(dir, guest, rail).of(self.personality, self.guest_faults);
        Setup {
            name: guest_name(guest),
            adapter: adapter(0),
            more: (1..self.adapters).map(adapter).collect(),
            plugged: self.plugged,
            more_memory: self.more_memory[usize::from(guest) % 2],
            iommu: self.iommus.get(usize::from(guest)).copied().flatten(),
            cpus: self.cpus,
            memory: self.memory,
            twins: self.twins,
            disk: self.disk,
            controller_memory: self.controller_memory,
            bad_sector: self.bad_sector,
            spare_bars: if guest == 0 { self.spare_bars } else { 0 },
            kernel: self.kernel.clone(),
            image: self.image.clone(),
            share: self.share.clone(),
            root,
            dir: dir.to_owned(),
        }
    }
}
