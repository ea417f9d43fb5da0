//! A disk with a whole system as the root of guests: an image of the user, which is not changed.
//!
//! The guests boot a kernel of the lab, with the usual initramfs. That mounts the root of the
//! disk, adds the agent, the modules and the plugin, and starts systemd of the disk. QEMU keeps
//! what a guest writes to the disk in a file of its own, which ends with QEMU.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`contents`] | the contents of a disk |
//! | [`image`] | the format of an image |
//! | [`nbd`] | the contents of an image that QEMU has opened |
//! | [`table`] | partitions, and the file systems in them |

pub mod contents;
pub mod image;
pub mod nbd;
pub mod table;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::adapter::{Adapter, RAILS};
use crate::machine::paths::Paths;
use crate::roots::disk::image::Format;
use crate::roots::disk::table::{FileSystem, Kind, Volume};
use crate::roots::overlay::PLUGIN_FOLDERS;

/// The path in the initramfs of the script that starts the disk's system.
const SCRIPT: &str = "/vrnic/disk";
/// The path in the initramfs of the script that loads the modules for it.
const LOADER: &str = "/vrnic/disk-modules";
/// The script that starts the disk's system. Lines with variables come before it.
const START: &str = include_str!("start.sh");

/// An image that guests can start from.
#[derive(Clone, Debug)]
pub struct Disk {
    file: PathBuf,
    format: Format,
    /// The volumes that may be its root.
    volumes: Vec<Volume>,
}

/// What the initramfs of such guests has in addition.
#[derive(Debug)]
pub struct Start<'a> {
    /// The release of the guests' kernel.
    pub release: &'a str,
    /// The name of the guests' share, if that has the modules of this kernel.
    pub share: Option<&'a str>,
    /// Shell commands that load the modules that mount the disk.
    pub modules: &'a str,
}

/// What a guest boots with.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    pub(crate) kernel: &'a Path,
    pub(crate) initramfs: &'a Path,
    /// The parameters that every kernel gets.
    pub(crate) parameters: &'a str,
    /// The guest's hostname.
    pub(crate) name: &'a str,
}

impl Disk {
    /// Opens an image, and looks for a root in it.
    ///
    /// # Errors
    /// If there is no such file, it is no image of a disk, or no file system in it can be a root.
    pub fn open(paths: &Paths, file: &Path) -> Result<Self> {
        ensure!(file.exists(), "there is no disk {}", file.display());
        ensure!(file.is_file(), "the disk {} is not a file", file.display());
        let file = file.canonicalize().with_context(|| format!("{}", file.display()))?;
        let format = Format::of(&file)?;
        let mut contents = image::open(paths, &file, format)?;
        let found = table::volumes(contents.as_mut())?;
        let (roots, other): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|volume| matches!(volume.kind, Kind::Root(_)));
        ensure!(
            !roots.is_empty(),
            "no root file system was found on the disk {} (ext4, xfs or btrfs){}",
            file.display(),
            table::others(&other)
        );
        Ok(Self { file, format, volumes: roots })
    }

    /// Returns the modules that mount its root.
    #[must_use]
    pub fn modules(&self) -> Vec<&'static str> {
        let mut names = vec!["virtio_blk"];
        for file_system in self.file_systems() {
            if !names.contains(&file_system.name()) {
                names.push(file_system.name());
            }
        }
        names
    }

    fn file_systems(&self) -> impl Iterator<Item = FileSystem> {
        self.volumes.iter().filter_map(|volume| match volume.kind {
            Kind::Root(file_system) => Some(file_system),
            Kind::Other(_) => None,
        })
    }

    /// Returns the files that the initramfs needs so that it starts the disk's system.
    #[must_use]
    pub fn files(&self, start: &Start<'_>) -> Vec<(String, Vec<u8>)> {
        let volumes = self.volumes.iter().zip(self.file_systems());
        let volumes = volumes.map(|(volume, kind)| format!("{}:{}", volume.device(), kind.name()));
        let numbers: Vec<String> = vrnic_layouts::numbers().map(|it| it.to_string()).collect();
        let share = start.share.unwrap_or_default();
        let script = format!(
            "volumes='{}'\nrelease={}\nshare={share}\nfolders='{}'\nnumbers='{}'\nloader={LOADER}\n{START}",
            volumes.collect::<Vec<_>>().join(" "),
            start.release,
            PLUGIN_FOLDERS.join(" "),
            numbers.join(" "),
        );
        vec![
            (SCRIPT.to_owned(), script.into_bytes()),
            (LOADER.to_owned(), start.modules.as_bytes().to_vec()),
        ]
    }

    /// Returns QEMU's arguments.
    pub(crate) fn arguments(&self, line: &Line<'_>) -> Vec<String> {
        // In QEMU's options, commas are doubled.
        let text = |path: &Path| path.display().to_string().replace(',', ",,");
        let drive = format!(
            "if=none,id=system,format={},snapshot=on,discard=unmap,file={}",
            self.format.name(),
            text(&self.file)
        );
        let append = format!(
            "{} rdinit=/init panic=-1 initramfs_options=size=100% hostname={name} \
             systemd.hostname={name} cloud-init=disabled enforcing=0 systemd.firstboot=off \
             systemd.mask=systemd-networkd-wait-online.service \
             systemd.mask=NetworkManager-wait-online.service",
            line.parameters,
            name = line.name,
        );
        let words = [
            ("-kernel", line.kernel.display().to_string()),
            ("-initrd", line.initramfs.display().to_string()),
            ("-append", append),
            ("-drive", drive),
            ("-device", "virtio-blk-pci,drive=system".to_owned()),
        ];
        let words = words.into_iter().flat_map(|(option, value)| [option.to_owned(), value]);
        std::iter::once("-no-reboot".to_owned()).chain(words).collect()
    }

    /// Returns shell commands that give the virtio NICs their addresses. The disk's system may
    /// have given them any names.
    pub(crate) fn addressing(adapters: &[&Adapter]) -> String {
        let mut script = "set -e".to_owned();
        if adapters.len() > 1 {
            script += &format!("; {}", RAILS);
        }
        for Adapter { mac, address, .. } in adapters {
            script += &format!(
                "; nic=$(grep -lix {mac} /sys/class/net/*/address); nic=${{nic%/address}}; \
                 nic=${{nic##*/}}; ip link set $nic up; ip addr add {address} dev $nic"
            );
        }
        script
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_knows_where_a_root_may_be() {
        let volume = |number, kind| Volume { partition: number, kind: Kind::Root(kind) };
        let disk = Disk {
            file: "/disk".into(),
            format: Format::Raw,
            volumes: vec![volume(Some(1), FileSystem::Ext), volume(Some(3), FileSystem::Xfs)],
        };
        assert_eq!(disk.modules(), ["virtio_blk", "ext4", "xfs"]);
        let files =
            disk.files(&Start { release: "7.3.4", share: Some("share"), modules: "true\n" });
        let text = String::from_utf8_lossy(&files[0].1).into_owned();
        assert!(text.starts_with("volumes='vda1:ext4 vda3:xfs'\nrelease=7.3.4\nshare=share\n"));
        assert_eq!(files[1], (LOADER.to_owned(), b"true\n".to_vec()));
    }
}
