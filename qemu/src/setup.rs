//! The parameters of a guest, and QEMU's arguments for them.

use std::iter;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::adapter::Adapter;
use crate::console::tail;
use crate::iommu::Iommu;
use crate::memory::{MemoryDevice, PLUGGED_MEMORY};
use crate::roots::root::{BootLine, Root};

/// The name by which a guest mounts [`Setup::share`].
pub const SHARE: &str = "share";

/// Parameters of a guest.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Name of the guest, one word.
    pub name: String,
    /// First adapter of the guest.
    pub adapter: Adapter,
    /// The adapters of a guest after the first one.
    pub more: Vec<Adapter>,
    /// True if its adapter is plugged in later, with `Guest::plug`.
    pub plugged: bool,
    /// The device of memory that is plugged in later, too.
    pub more_memory: MemoryDevice,
    /// IOMMU of the guest, if there is one.
    pub iommu: Option<Iommu>,
    /// Virtual processors.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory: u32,
    /// True if it has a second network card with its adapter's MAC, and without a link.
    pub twins: bool,
    /// MiB of the disk of an NVMe controller that shares a PCIe switch with its adapter, if it has
    /// one.
    pub disk: Option<u32>,
    /// MiB of memory in a BAR of that controller, or zero for none.
    pub controller_memory: u32,
    /// A sector of that disk that can be neither read nor written, if it has one.
    pub bad_sector: Option<u32>,
    /// MiB of BAR 2 of each of two more devices, or zero if it has none: an ivshmem device, whose
    /// BAR QEMU maps for the adapter, and an NVMe controller, whose BAR it does not.
    pub spare_bars: u32,
    /// More parameters of its kernel.
    pub kernel: String,
    /// Another kernel than its image has.
    pub image: Option<PathBuf>,
    /// A folder of this machine that it can mount, read-only.
    pub share: Option<PathBuf>,
    /// Folder for its sockets and its console's log.
    pub dir: PathBuf,
    /// The initramfs or the disk that it boots from.
    pub root: Root,
}

impl Setup {
    /// Returns all its adapters. Their virtio NICs are `eth0` and so on.
    pub fn adapters(&self) -> impl Iterator<Item = &Adapter> {
        iter::once(&self.adapter).chain(&self.more)
    }

    /// Returns QEMU's arguments without accelerator and root.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let Self { name, cpus, memory, .. } = self;
        let path = |path: &Path| path.display().to_string();
        let mut arguments: Vec<String> = Vec::new();
        let mut add =
            |words: &[&str]| arguments.extend(words.iter().map(|word| (*word).to_owned()));
        add(&["-name", name, "-nodefaults", "-display", "none"]);
        // If only one processor were possible, TCG would translate locked instructions and barriers
        // to plain instructions, although the daemon shares this memory.
        let smp = format!("{cpus},maxcpus={}", (*cpus).max(2));
        let slots = if self.plugged {
            format!(",slots=1,maxmem={}M", memory.saturating_add(PLUGGED_MEMORY))
        } else {
            String::new()
        };
        add(&["-smp", &smp, "-m", &format!("{memory}M{slots}")]);
        add(&["-machine", "q35,memory-backend=ram"]);
        add(&["-object", &format!("memory-backend-memfd,id=ram,size={memory}M,share=on")]);
        if let Some(iommu) = self.iommu {
            add(&["-device", iommu.device()]);
        }
        self.add_function(&mut add);
        if self.spare_bars != 0 {
            self.add_spare_devices(&mut add);
        }
        if self.plugged {
            self.more_memory.arguments().iter().for_each(|word| add(&[word]));
        }
        add(&["-device", "virtio-serial-pci"]);
        if !self.root.has_slots() {
            self.add_cards(&mut add);
        }
        if let Some(share) = &self.share {
            // In QEMU's options, commas are doubled.
            let folder = path(share).replace(',', ",,");
            let export = format!(
                "local,id=share,path={folder},security_model=none,readonly=on,multidevs=remap"
            );
            add(&["-fsdev", &export]);
            if !self.root.has_slots() {
                add(&["-device", &format!("virtio-9p-pci,fsdev=share,mount_tag={SHARE}")]);
            }
        }
        // The socket of the agent is the sign that QEMU has made this one, too.
        add(&["-qmp", &format!("unix:{},server=on,wait=off", path(&self.qmp_socket()))]);
        let agent = path(&self.agent_socket());
        add(&["-chardev", &format!("socket,id=agent,path={agent},server=on,wait=off")]);
        add(&["-device", "virtserialport,chardev=agent,name=vrnic.agent"]);
        add(&["-serial", &format!("file:{}", path(&self.console_log()))]);
        add(&["-serial", &format!("unix:{},server=on,wait=off", path(&self.shell_socket()))]);
        arguments
    }

    /// Returns what the kernel is started with.
    pub(crate) fn boot_line(&self) -> BootLine<'_> {
        // Slots for several adapters lie above 4 GiB, where QEMU's firmware lets them overlap a
        // range that it has declared as used, because processors of AMD cannot reach it.
        let slots =
            if self.root.has_slots() && !self.more.is_empty() { " pci=no_e820" } else { "" };
        let more = self.kernel.clone() + self.iommu.map_or("", Iommu::kernel) + slots;
        BootLine { kernel: self.image.as_deref(), name: &self.name, more }
    }

    /// Adds the first adapter, or the slot into which it is plugged later.
    fn add_function(&self, add: &mut impl FnMut(&[&str])) {
        if self.root.has_slots() {
            self.add_slots(add);
        } else if self.plugged {
            // The address space that the firmware must reserve for the adapter's BARs.
            add(&["-device", "pcie-root-port,id=plug,chassis=1,slot=1,pref64-reserve=512M"]);
        } else if self.disk.is_some() {
            self.add_switch(add);
        } else {
            add(&["-device", &Self::function(&self.adapter, "pcie.0")]);
        }
    }

    /// Adds the network cards and the further adapters.
    fn add_cards(&self, add: &mut impl FnMut(&[&str])) {
        for Adapter { name, mac, net, .. } in self.adapters() {
            let net = net.display();
            let stream = format!("stream,id={name},server=off,addr.type=unix,addr.path={net}");
            add(&["-netdev", &stream]);
            add(&["-device", &format!("virtio-net-pci,netdev={name},mac={mac},romfile=")]);
        }
        if self.twins {
            add(&["-device", &format!("virtio-net-pci,mac={},romfile=", self.adapter.mac)]);
        }
        for adapter in &self.more {
            add(&["-device", &Self::function(adapter, "pcie.0")]);
        }
    }

    /// Adds a slot for each adapter, for each network card, and for [`Self::share`], and the device
    /// that tells the kernel of a restored guest that it is not the only one.
    fn add_slots(&self, add: &mut impl FnMut(&[&str])) {
        let adapters = 1 + self.more.len();
        for slot in 1..=2 * adapters + 2 {
            // The address space that the firmware must reserve for the adapter's BARs.
            let window = if slot <= adapters { ",pref64-reserve=512M" } else { "" };
            let port = slot_name(slot);
            let device = format!("pcie-root-port,id={port},chassis={slot},slot={slot}{window}");
            add(&["-device", &device]);
        }
        add(&["-device", "vmgenid,guid=auto"]);
    }

    /// Returns the commands of QEMU that plug the adapters, the network cards, and [`Self::share`]
    /// into the slots. The guest must have found what one list plugs in before the next one runs,
    /// because it names devices in the order in which it finds them: each list has an adapter and
    /// its card, and the last one a second card of [`Self::twins`].
    pub(crate) fn plugging(&self) -> Vec<Vec<String>> {
        let adapters = 1 + self.more.len();
        let plug = |slot: usize, mut device: Value| {
            device["bus"] = slot_name(slot).into();
            json!({"execute": "device_add", "arguments": device}).to_string()
        };
        let stage = |(number, adapter): (usize, &Adapter)| {
            let Adapter { name, mac, socket, net, .. } = adapter;
            let socket = json!({"type": "unix", "path": socket});
            let address = json!({"type": "unix", "path": net});
            let backend = json!({"type": "stream", "id": name, "server": false, "addr": address});
            let card =
                json!({"driver": "virtio-net-pci", "netdev": name, "mac": mac, "romfile": ""});
            vec![
                plug(1 + number, json!({"driver": "vfio-user-pci", "socket": socket})),
                json!({"execute": "netdev_add", "arguments": backend}).to_string(),
                plug(1 + adapters + number, card),
            ]
        };
        let mut stages: Vec<_> = self.adapters().enumerate().map(stage).collect();
        if self.share.is_some() {
            let device = json!({"driver": "virtio-9p-pci", "fsdev": "share", "mount_tag": SHARE});
            stages[0].push(plug(1 + 2 * adapters, device));
        }
        if self.twins {
            let mac = &self.adapter.mac;
            let card = json!({"driver": "virtio-net-pci", "mac": mac, "romfile": ""});
            stages.push(vec![plug(2 + 2 * adapters, card)]);
        }
        stages
    }

    /// Adds a switch with the adapter and the disk, which can then reach each other directly.
    fn add_switch(&self, add: &mut impl FnMut(&[&str])) {
        add(&["-device", "pcie-root-port,id=root,chassis=1,slot=1"]);
        add(&["-device", "x3130-upstream,id=switch,bus=root"]);
        for (port, chassis) in [("left", "2"), ("right", "3"), ("third", "4")] {
            let device = format!("xio3130-downstream,id={port},bus=switch,chassis={chassis}");
            add(&["-device", &device]);
        }
        add(&["-device", &Self::function(&self.adapter, "left")]);
        let spare = self.file("spare");
        add(&["-drive", &format!("if=none,id=spare,format=raw,file={}", spare.display())]);
        let file = self.file("disk").display().to_string();
        let mut drive = "if=none,id=disk,format=raw,file.".to_owned();
        if let Some(sector) = self.bad_sector {
            drive += "driver=blkdebug,file.image.";
            for (nth, event) in ["read_aio", "write_aio"].iter().enumerate() {
                let rule = format!("file.inject-error.{nth}");
                drive = format!("{rule}.event={event},{rule}.sector={sector},{drive}");
            }
        }
        add(&["-drive", &format!("{drive}filename={file}")]);
        let mut controller = "nvme,drive=disk,serial=vrnic,bus=right".to_owned();
        if self.controller_memory != 0 {
            controller += &format!(",cmb_size_mb={}", self.controller_memory);
        }
        add(&["-device", &controller]);
    }

    /// Adds the devices of [`Self::spare_bars`], each behind a root port, which separates it from
    /// all other devices.
    fn add_spare_devices(&self, add: &mut impl FnMut(&[&str])) {
        let size = self.spare_bars;
        let backend = format!("memory-backend-memfd,id=spare-bar,size={size}M,share=on");
        add(&["-object", &backend]);
        let devices = [
            ("mapped", "ivshmem-plain,memdev=spare-bar".to_owned()),
            ("unmapped", format!("nvme,serial=unmapped,cmb_size_mb={size}")),
        ];
        for (nth, (port, device)) in devices.iter().enumerate() {
            let chassis = nth + 11;
            let root = format!("pcie-root-port,id={port},chassis={chassis},slot={chassis}");
            add(&["-device", &root, "-device", &format!("{device},bus={port}")]);
        }
    }

    /// Returns QEMU's argument for an adapter on a bus.
    fn function(adapter: &Adapter, bus: &str) -> String {
        let socket = adapter.socket.display();
        let socket = format!(r#"{{"type":"unix","path":"{socket}"}}"#);
        format!(r#"{{"driver":"vfio-user-pci","bus":"{bus}","socket":{socket}}}"#)
    }

    pub(crate) fn file(&self, what: &str) -> PathBuf {
        self.dir.join(format!("{}.{what}", self.name))
    }

    pub(crate) fn agent_socket(&self) -> PathBuf {
        self.file("agent")
    }

    pub(crate) fn qmp_socket(&self) -> PathBuf {
        self.file("qmp")
    }

    pub(crate) fn shell_socket(&self) -> PathBuf {
        self.file("shell")
    }

    /// Returns the path of the console's log.
    #[must_use]
    pub fn console_log(&self) -> PathBuf {
        self.file("console.log")
    }

    pub(crate) fn qemu_log(&self) -> String {
        tail(&self.file("qemu.log"), 10)
    }
}

/// Returns the name of a slot, counted from 1.
fn slot_name(slot: usize) -> String {
    format!("slot{slot}")
}
