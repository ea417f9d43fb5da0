//! The choice of the accelerator for guests.
//!
//! An accelerator is not good only because /dev/kvm can be opened: there are kinds of KVM on which
//! a stock kernel does not boot. So a guest is booted under KVM, with a time limit. The result is
//! kept in the cache, for all images of guests, until the machine boots again, or for an hour if
//! the guest was only slow.

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Once, OnceLock};
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Result, bail};

use crate::machine::paths::Paths;
use crate::machine::process::Killed;
use crate::machine::progress::step;

/// Time limit for the first message of the guest. A real KVM needs a tenth of it.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The time for which a verdict is valid if no guest came up in time. Other work on the machine can
/// be the reason, so KVM is tried again later.
const SILENCE: Duration = Duration::from_secs(3600);
/// The first message of the guest.
const REACHED: &str = "VFS: ";

/// An accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accel {
    /// The processor's own virtualisation.
    Kvm,
    /// QEMU's translator.
    Tcg,
}

impl Accel {
    /// Returns the accelerator that `VRNIC_ACCEL` asks for, or the best that works. If that is not
    /// KVM, a line of progress contains the reason.
    ///
    /// # Errors
    /// If `VRNIC_ACCEL` is neither `kvm` nor `tcg`, or asks for KVM, and no guest boots under it.
    pub fn choose(paths: &Paths) -> Result<Self> {
        static FOUND: OnceLock<Verdict> = OnceLock::new();
        let asked = std::env::var("VRNIC_ACCEL").ok();
        chosen(asked.as_deref(), |again| FOUND.get_or_init(|| find(paths, again)))
    }

    /// Returns its name, as in `VRNIC_ACCEL`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    /// Returns QEMU's arguments for a processor of AMD's Zen family. With such a processor, the
    /// guest's kernel assumes that devices behind different root ports reach each other.
    pub(crate) fn zen(self) -> &'static [&'static str] {
        match self {
            Self::Kvm => &["-cpu", "host,vendor=AuthenticAMD,family=23"],
            Self::Tcg => &["-cpu", "max,family=23"],
        }
    }

    /// Returns QEMU's arguments for it.
    #[must_use]
    pub fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Kvm => &["-accel", "kvm", "-cpu", "host"],
            Self::Tcg => &["-accel", "tcg,thread=multi", "-cpu", "max"],
        }
    }
}

/// The result of a test of KVM on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// A guest boots under KVM.
    Works,
    /// No guest boots under KVM, for this reason.
    Fails(String),
    /// No guest came up in time.
    Silent(String),
}

/// Returns the accelerator that the user asks for, or that `find` finds. The parameter of `find` is
/// true if KVM must be tried again if it was only slow before.
fn chosen<'a>(asked: Option<&str>, find: impl FnOnce(bool) -> &'a Verdict) -> Result<Accel> {
    match asked {
        Some("tcg") => return Ok(Accel::Tcg),
        Some("kvm") | None => {}
        Some(other) => bail!("VRNIC_ACCEL is '{other}'; it must be kvm or tcg"),
    }
    match find(asked.is_some()) {
        Verdict::Works => Ok(Accel::Kvm),
        Verdict::Fails(why) | Verdict::Silent(why) if asked.is_some() => bail!(
            "VRNIC_ACCEL asks for KVM, which does not work here: {why}; without VRNIC_ACCEL, guests \
             run by translation"
        ),
        Verdict::Fails(why) | Verdict::Silent(why) => {
            static SAID: Once = Once::new();
            SAID.call_once(|| step(format!("KVM is not used: {why}")));
            Ok(Accel::Tcg)
        }
    }
}

/// Returns the verdict in the note of an earlier run, or tests KVM with a guest.
fn find(paths: &Paths, again: bool) -> Verdict {
    // Rights are checked each time, because they can change.
    if let Err(error) = File::options().read(true).write(true).open("/dev/kvm") {
        return Verdict::Fails(format!("/dev/kvm cannot be opened: {error}"));
    }
    remembered(paths, again, |paths| {
        step(format!("trying for up to {} s if guests boot under KVM", TIMEOUT.as_secs()));
        probe(paths)
    })
}

/// Returns the verdict in the note of an earlier run, whatever image its guests had. If there is
/// none, or if it is only that KVM was slow and `again` is true, calls `probe` and keeps its
/// verdict.
fn remembered(paths: &Paths, again: bool, probe: impl FnOnce(&Paths) -> Verdict) -> Verdict {
    // The kernel cannot change without a reboot.
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let (boot, now) = (boot.trim(), UNIX_EPOCH.elapsed().unwrap_or_default().as_secs());
    let file = paths.cache.join("accel");
    let note_before = fs::read_to_string(&file).unwrap_or_default();
    match noted(&note_before, boot, now) {
        Some(Verdict::Silent(_)) if again => {}
        Some(verdict) => return verdict,
        None => {}
    }
    let verdict = probe(paths);
    // Without the note, only a later start is slower.
    let _kept = fs::write(file, note(&verdict, boot, now));
    verdict
}

/// Returns the note of a verdict: the boot id of this machine, the time in seconds, the verdict.
fn note(verdict: &Verdict, boot: &str, now: u64) -> String {
    let text = match verdict {
        Verdict::Works => "works",
        Verdict::Fails(why) => &format!("fails {why}"),
        Verdict::Silent(why) => &format!("silent {why}"),
    };
    format!("{boot} {now} {text}")
}

/// Returns the verdict of a note if the note is still valid.
fn noted(note: &str, boot: &str, now: u64) -> Option<Verdict> {
    let (time, text) = note.strip_prefix(boot)?.strip_prefix(' ')?.split_once(' ')?;
    let (kind, why) = text.split_once(' ').unwrap_or((text, ""));
    match kind {
        "works" => Some(Verdict::Works),
        "fails" => Some(Verdict::Fails(why.to_owned())),
        "silent" if now.saturating_sub(time.parse().ok()?) < SILENCE.as_secs() => {
            Some(Verdict::Silent(why.to_owned()))
        }
        _ => None,
    }
}

/// Tests whether a guest under KVM boots until it looks for its root.
fn probe(paths: &Paths) -> Verdict {
    let logs = tempfile::NamedTempFile::new().and_then(|log| Ok((log, tempfile::tempfile()?)));
    let (log, errors) = match logs {
        Ok(logs) => logs,
        Err(error) => return Verdict::Silent(format!("no temporary file can be made: {error}")),
    };
    let mut command = paths.qemu_command();
    command
        .args(Accel::Kvm.arguments())
        .args(["-machine", "q35", "-m", "512M", "-nodefaults", "-display", "none", "-no-reboot"])
        .args(["-append", "console=ttyS0 panic=-1"])
        .arg("-kernel")
        .arg(paths.kernel())
        .arg("-serial")
        .arg(format!("file:{}", log.path().display()));
    reaches(command, log.path(), errors, TIMEOUT)
}

/// Starts a guest, with `errors` as its standard error. Returns whether it writes [`REACHED`] to
/// its log in time.
fn reaches(mut command: Command, log: &Path, errors: File, timeout: Duration) -> Verdict {
    let started = errors.try_clone().and_then(|stderr| {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        Killed::start(command)
    });
    let mut guest = match started {
        Ok(guest) => guest,
        Err(error) => return Verdict::Silent(format!("QEMU cannot be started: {error}")),
    };
    let end = Instant::now() + timeout;
    loop {
        let alive = guest.alive();
        if fs::read(log).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(REACHED)) {
            return Verdict::Works;
        }
        if !alive {
            return Verdict::Fails(format!("a guest under it ended at once{}", last_line(errors)));
        }
        if Instant::now() > end {
            let seconds = timeout.as_secs();
            return Verdict::Silent(format!("no guest under it came up within {seconds} s"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the last line of a file, after a colon, or nothing if there is none.
fn last_line(mut file: File) -> String {
    let mut text = String::new();
    // Without the line the reason is only shorter.
    let _read = file.rewind().and_then(|()| file.read_to_string(&mut text));
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    line.map(|line| format!(": {line}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the verdict when a shell script runs in place of the guest.
    fn verdict(script: &str, timeout: Duration) -> std::io::Result<Verdict> {
        let log = tempfile::NamedTempFile::new()?;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).env("LOG", log.path());
        Ok(reaches(command, log.path(), tempfile::tempfile()?, timeout))
    }

    #[test]
    fn a_guest_that_ends_tells_why() -> std::io::Result<()> {
        let found = verdict("echo first >&2; echo no rights >&2; exit 1", TIMEOUT)?;
        assert_eq!(found, Verdict::Fails("a guest under it ended at once: no rights".into()));
        Ok(())
    }

    #[test]
    fn a_guest_with_the_message_has_come_up() -> std::io::Result<()> {
        let found = verdict("echo 'VFS: no root' >$LOG; exec sleep 60", TIMEOUT)?;
        assert_eq!(found, Verdict::Works);
        Ok(())
    }

    #[test]
    fn a_guest_that_takes_too_long_is_tried_again_later() -> std::io::Result<()> {
        let found = verdict("exec sleep 60", Duration::from_millis(60))?;
        assert!(matches!(found, Verdict::Silent(_)), "{found:?}");
        let note = note(&found, "boot", 1000);
        assert_eq!(noted(&note, "boot", 1100), Some(found));
        assert_eq!(noted(&note, "boot", 1000 + SILENCE.as_secs()), None);
        Ok(())
    }

    #[test]
    fn a_machine_is_probed_once_for_all_images() -> std::io::Result<()> {
        let cache = tempfile::tempdir()?;
        let paths = |image: &str| Paths {
            cache: cache.path().to_owned(),
            guest: cache.path().join(image),
            ..Paths::default()
        };
        for image in ["guest-plain", "guest-apps"] {
            fs::create_dir(cache.path().join(image))?;
        }
        let found =
            |image, again, verdict: &Verdict| remembered(&paths(image), again, |_| verdict.clone());
        let slow = Verdict::Silent("it is slow".into());
        assert_eq!(found("guest-plain", false, &slow), slow);
        assert_eq!(found("guest-apps", false, &Verdict::Works), slow, "it was probed again");
        let reason = Verdict::Fails("a reason".into());
        assert_eq!(found("guest-apps", true, &reason), reason, "the user has asked for KVM");
        assert_eq!(found("guest-plain", true, &Verdict::Works), reason, "it was probed again");
        Ok(())
    }

    #[test]
    fn a_user_who_asks_for_kvm_is_told_why_there_is_none() {
        let reason = Verdict::Silent("no guest under it came up within 10 s".into());
        let error = chosen(Some("kvm"), |_| &reason).map_err(|error| error.to_string());
        assert!(error.is_err_and(|text| text.contains("not work here: no guest under it")));
        assert_eq!(chosen(None, |_| &reason).ok(), Some(Accel::Tcg));
        for asked in [Some("kvm"), None] {
            assert_eq!(chosen(asked, |_| &Verdict::Works).ok(), Some(Accel::Kvm));
        }
        let tried = |_| panic!("KVM was tried");
        assert_eq!(chosen(Some("tcg"), tried).ok(), Some(Accel::Tcg));
        let error = chosen(Some("hvf"), tried).map_err(|error| error.to_string());
        assert_eq!(error, Err("VRNIC_ACCEL is 'hvf'; it must be kvm or tcg".into()));
    }

    /// Shows: tools: KVM that does not work is remembered until the machine boots again
    #[test]
    fn a_note_holds_until_the_machine_boots_again() {
        for verdict in [Verdict::Works, Verdict::Fails("a reason: text".into())] {
            let note = note(&verdict, "one", 1000);
            assert_eq!(noted(&note, "one", 1_000_000), Some(verdict));
            assert_eq!(noted(&note, "two", 1000), None);
        }
        // A note of an earlier version.
        assert_eq!(noted("kvm", "one", 1000), None);
    }
}
