//! Which accelerator guests run under.
//!
//! A /dev/kvm that opens is no proof: there are kinds of KVM on which a stock kernel does not boot.
//! So a guest is booted under KVM, with a time limit; what comes of it is kept in the cache.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::paths::Paths;
use crate::process::Killed;

/// Time limit for the probing guest's first message; a real KVM needs a tenth of it.
const PATIENCE: Duration = Duration::from_secs(10);

/// An accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accel {
    /// The processor's own virtualisation.
    Kvm,
    /// QEMU's translator.
    Tcg,
}

impl Accel {
    /// The one that `VRNIC_ACCEL` forces, or the best that works.
    ///
    /// # Errors
    /// When `VRNIC_ACCEL` is neither `kvm` nor `tcg`.
    pub fn choose(paths: &Paths) -> anyhow::Result<Self> {
        match std::env::var("VRNIC_ACCEL").as_deref() {
            Ok("kvm") => return Ok(Self::Kvm),
            Ok("tcg") => return Ok(Self::Tcg),
            Ok(other) => bail!("VRNIC_ACCEL is '{other}'; it must be kvm or tcg"),
            Err(_) => {}
        }
        if !Path::new("/dev/kvm").exists() {
            return Ok(Self::Tcg);
        }
        let note = paths.guest.join("accel");
        match fs::read_to_string(&note).as_deref() {
            Ok("kvm") => return Ok(Self::Kvm),
            Ok("tcg") => return Ok(Self::Tcg),
            _ => {}
        }
        let accel = if probe(paths) { Self::Kvm } else { Self::Tcg };
        // Only a later start would be slower without it.
        let _kept = fs::write(note, accel.name());
        Ok(accel)
    }

    /// Its name, as `VRNIC_ACCEL` has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    /// QEMU's arguments for it.
    #[must_use]
    pub fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Kvm => &["-accel", "kvm", "-cpu", "host"],
            Self::Tcg => &["-accel", "tcg,thread=multi", "-cpu", "max"],
        }
    }
}

/// Returns whether a guest under KVM gets as far as looking for its root.
fn probe(paths: &Paths) -> bool {
    let Ok(log) = tempfile::NamedTempFile::new() else { return false };
    let mut command = paths.qemu_command();
    command
        .args(Accel::Kvm.arguments())
        .args(["-machine", "q35", "-m", "512M", "-nodefaults", "-display", "none", "-no-reboot"])
        .args(["-append", "console=ttyS0 panic=-1"])
        .arg("-kernel")
        .arg(paths.kernel())
        .arg("-serial")
        .arg(format!("file:{}", log.path().display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    reaches(command, log.path(), "VFS: ")
}

fn reaches(command: Command, log: &Path, text: &str) -> bool {
    let Ok(mut guest) = Killed::start(command) else { return false };
    let end = Instant::now() + PATIENCE;
    loop {
        if fs::read(log).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(text)) {
            return true;
        }
        if Instant::now() > end || !guest.alive() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
