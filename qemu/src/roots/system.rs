//! Guests that are ordinary Debian systems: a disk with systemd, without any part of vrnic.
//!
//! A second, read-only disk contains the agent and the files of a test. systemd gets the agent's
//! unit from credentials, which QEMU passes on (systemd.system-credentials(7)). So the system's own
//! disk contains no file of this project.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::adapter::Adapter;
use crate::machine::paths::Paths;

/// The path at which these guests mount the read-only disk.
pub const KIT: &str = "/run/kit";

/// The agent's unit. The port may appear after the unit starts, and disappears while the machine
/// sleeps.
const AGENT: &str = "[Unit]\nStartLimitIntervalSec=0\n\
    [Service]\nEnvironment=HOME=/root\nLimitMEMLOCK=infinity\n\
    ExecStartPre=mkdir -p /run/kit\n\
    ExecStartPre=sh -c 'mountpoint -q /run/kit || mount -o ro LABEL=kit /run/kit'\n\
    ExecStart=/run/kit/agent\nRestart=always\nRestartSec=0.2\n";
/// The units that the target of an ordinary start needs in addition: the agent, and a second serial
/// line for users.
const WANTED: &str = "[Unit]\nWants=agent.service serial-getty@ttyS1.service\n";

/// The disks of such a guest.
#[derive(Clone, Debug)]
pub struct System {
    /// The folder with the system's disk, kernel and initramfs.
    folder: PathBuf,
    /// The read-only disk.
    kit: PathBuf,
}

impl System {
    /// Writes the read-only disk to `into`: the agent, and the contents of the folder `tree`.
    ///
    /// # Errors
    /// If a part is missing, or the disk cannot be written.
    pub fn new(paths: &Paths, tree: Option<&Path>, into: &Path) -> anyhow::Result<Self> {
        let folder = paths.system.clone();
        paths.need(&folder.join("disk"), "scripts/setup --system")?;
        let staging = tempfile::tempdir().context("cannot make a temporary folder")?;
        if let Some(tree) = tree {
            run(Command::new("cp").args(["-r", "-T"]).arg(tree).arg(staging.path()))?;
        }
        let agent = paths.bin.join("vrnic-agent");
        fs::copy(&agent, staging.path().join("agent"))
            .with_context(|| format!("cannot copy {}", agent.display()))?;
        run(Command::new("chmod").arg("755").arg(staging.path()))?;
        let mut disk = Command::new("mkfs.ext4");
        disk.args(["-q", "-L", "kit", "-d"]).arg(staging.path()).arg(into).arg("256M");
        // The path of root, for users who do not have it.
        disk.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        run(&mut disk)?;
        Ok(Self { folder, kit: into.to_owned() })
    }

    /// Returns QEMU's arguments. What the guest writes to its disk is lost when QEMU ends.
    #[must_use]
    pub fn arguments(&self, kernel: &str, name: &str) -> Vec<String> {
        let file = |name: &str| self.folder.join(name).display().to_string();
        let drive = |id: &str, file: &str, how: &str| {
            format!("if=none,id={id},format=raw,file={file},{how}")
        };
        let credential = |name: &str, text: &str| {
            // In QEMU's options, commas are doubled.
            let text = text.replace(',', ",,");
            format!("type=11,value=io.systemd.credential:{name}={text}")
        };
        let words = [
            ("-kernel", file("vmlinuz")),
            ("-initrd", file("initrd")),
            ("-append", format!("root=LABEL=system ro {kernel} systemd.hostname={name}")),
            ("-drive", drive("system", &file("disk"), "snapshot=on")),
            ("-device", "virtio-blk-pci,drive=system".to_owned()),
            ("-drive", drive("kit", &self.kit.display().to_string(), "readonly=on")),
            ("-device", "virtio-blk-pci,drive=kit".to_owned()),
            ("-smbios", credential("systemd.extra-unit.agent.service", AGENT)),
            ("-smbios", credential("systemd.unit-dropin.multi-user.target", WANTED)),
        ];
        words.into_iter().flat_map(|(option, value)| [option.to_owned(), value]).collect()
    }

    /// Returns shell commands that give the virtio NICs their addresses, now and after each boot,
    /// and wait until they have them.
    pub(crate) fn addressing(adapters: &[&Adapter]) -> String {
        let mut script = "set -e; mkdir -p /etc/systemd/network".to_owned();
        for Adapter { name, mac, address, .. } in adapters {
            let network = format!("[Match]\\nMACAddress={mac}\\n[Network]\\nAddress={address}\\n");
            script += &format!("; printf '{network}' >/etc/systemd/network/10-{name}.network");
        }
        script += "; systemctl enable --now systemd-networkd";
        for Adapter { address, .. } in adapters {
            script += &format!(
                "; for n in $(seq 200); do ip -o addr | grep -qF {address} && break; sleep 0.1; \
                 done; ip -o addr | grep -F {address}"
            );
        }
        script
    }
}

/// Runs a command on this machine, which must succeed.
fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {errors}");
    Ok(())
}
