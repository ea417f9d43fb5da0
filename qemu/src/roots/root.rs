//! The kernel and the disk from which a guest boots.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::adapter::{Adapter, RAILS};
use crate::machine::paths::Paths;
use crate::roots::disk::{Disk, Line};
use crate::roots::system::System;

/// The root of a guest.
#[derive(Clone, Debug)]
pub enum Root {
    /// An initramfs, which is the guest's only file system.
    Memory(PathBuf),
    /// An initramfs of a guest of which a snapshot is made. Adapters are plugged in later.
    Template(PathBuf),
    /// The memory of such a guest.
    Snapshot {
        /// The snapshot.
        file: PathBuf,
        /// An archive with the files that the guest gets after it has started.
        overlay: PathBuf,
    },
    /// The disk of a whole Debian system.
    Disk(System),
    /// A disk of the user, which this initramfs mounts.
    Image {
        /// The initramfs that mounts the disk.
        initramfs: PathBuf,
        /// The disk with the system.
        disk: Disk,
    },
}

/// What a guest's kernel is started with.
#[derive(Debug)]
pub(crate) struct BootLine<'a> {
    /// Another kernel than the image has.
    pub(crate) kernel: Option<&'a Path>,
    /// The guest's hostname.
    pub(crate) name: &'a str,
    /// More parameters of the kernel.
    pub(crate) more: String,
}

impl BootLine<'_> {
    /// Returns the parameters that every kernel gets.
    pub(crate) fn parameters(&self) -> String {
        // On a busy host an emulated timer may come too late for the kernel's test of the timer and
        // of the time stamp counter. Without that counter, programs read the time from a device,
        // and perftest gives no figures if the device answers late. Between two loaded guests, one
        // in five runs had no figures; with the counter, none of 72.
        format!("console=ttyS0 quiet no_timer_check tsc=reliable {}", self.more)
    }

    /// Returns the kernel.
    fn image(&self, paths: &Paths) -> PathBuf {
        self.kernel.map_or_else(|| paths.kernel(), Path::to_owned)
    }
}

impl Root {
    /// Returns QEMU's arguments for the root: the kernel and its parameters.
    pub(crate) fn arguments(&self, paths: &Paths, line: &BootLine<'_>) -> Vec<String> {
        let text = |path: &Path| path.display().to_string();
        let name = line.name;
        let kernel = line.parameters();
        match self {
            // The root may take all memory, instead of half of the memory that the packed initramfs
            // leaves, so that guests with 512 MiB boot.
            Self::Memory(initramfs) | Self::Template(initramfs) => [
                "-no-reboot".to_owned(),
                "-kernel".to_owned(),
                text(&line.image(paths)),
                "-initrd".to_owned(),
                text(initramfs),
                "-append".to_owned(),
                format!(
                    "{kernel} rdinit=/init panic=-1 hostname={name} initramfs_options=size=100%"
                ),
            ]
            .into(),
            // QEMU needs the kernel only to have the same memory regions.
            Self::Snapshot { .. } => [
                "-no-reboot".to_owned(),
                "-kernel".to_owned(),
                text(&line.image(paths)),
                "-incoming".to_owned(),
                "defer".to_owned(),
            ]
            .into(),
            Self::Disk(system) => system.arguments(&kernel, name),
            Self::Image { initramfs, disk } => {
                let kernel = &line.image(paths);
                disk.arguments(&Line { kernel, initramfs, parameters: &line.parameters(), name })
            }
        }
    }

    /// Returns whether adapters and network cards are plugged into slots after the start.
    pub(crate) fn has_slots(&self) -> bool {
        matches!(self, Self::Template(_) | Self::Snapshot { .. })
    }

    /// Returns the time limit from a guest's start to its agent's first message. TCG on a loaded
    /// machine needs 30 s for an initramfs.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(match self {
            Self::Memory(_) | Self::Template(_) => 180,
            Self::Snapshot { .. } => 60,
            Self::Disk(_) | Self::Image { .. } => 480,
        })
    }

    /// Returns shell commands that give the guest's virtio NICs their addresses.
    pub(crate) fn addressing(&self, adapters: &[&Adapter]) -> String {
        match self {
            Self::Memory(_) | Self::Snapshot { .. } => by_hand(adapters),
            Self::Template(_) => "true".to_owned(),
            Self::Disk(_) => System::addressing(adapters),
            Self::Image { .. } => Disk::addressing(adapters),
        }
    }
}

/// The virtio NICs of an initramfs are `eth0` and so on.
fn by_hand(adapters: &[&Adapter]) -> String {
    let mut script = "set -e".to_owned();
    if adapters.len() > 1 {
        script += &format!("; {RAILS}");
    }
    for (number, Adapter { address, .. }) in adapters.iter().enumerate() {
        script += &format!("; ip link set eth{number} up");
        script += &format!("; ip addr add {address} dev eth{number}");
    }
    script
}
