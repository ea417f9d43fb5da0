//! The files that the packages install (`packaging/`): units, settings, manual pages, the build of
//! the kernel module.
//!
//! Shows: tools

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// The highest exposure that `systemd-analyze security` may find, in tenths.
const EXPOSURE: &str = "19";
const UNITS: [&str; 2] = ["vrnicd.service", "vrnicd@.service"];

/// Copies a file of the packages, and replaces a text in it.
fn copy(name: &str, old: &str, new: &str) -> (TempDir, PathBuf) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name);
    let text = fs::read_to_string(source).expect("a file of the packages");
    assert!(text.contains(old), "no '{old}' in {name}");
    let folder = tempfile::tempdir().expect("a folder");
    // A template is checked as an instance of itself.
    let name = name.rsplit('/').next().expect("a name");
    let path = folder.path().join(name.replace("@.", "@a."));
    fs::write(&path, text.replace(old, new)).expect("a copy");
    (folder, path)
}

/// Runs systemd-analyze. Returns its output if it finds a fault. Returns nothing if it is not
/// installed.
fn analyze(arguments: &[&str], unit: &Path) -> Option<String> {
    let Ok(output) = Command::new("systemd-analyze").args(arguments).arg(unit).output() else {
        eprintln!("skipped: there is no systemd-analyze");
        return None;
    };
    let text = [output.stdout, output.stderr].concat();
    (!output.status.success()).then(|| String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn the_units_are_sound_and_confine_the_daemon() {
    for name in UNITS {
        let daemon = env!("CARGO_BIN_EXE_vrnicd");
        let (_folder, unit) = copy(name, "/usr/bin/vrnicd", daemon);
        assert_eq!(analyze(&["verify", "--man=no", "--recursive-errors=no"], &unit), None);
        let threshold = format!("--threshold={EXPOSURE}");
        assert_eq!(analyze(&["security", "--offline=yes", &threshold], &unit), None);
    }
}

/// Both units have the same lines, apart from the names of a daemon's settings, folder and user.
#[test]
fn the_units_are_alike() {
    let [one, template] = UNITS.map(|name| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name);
        fs::read_to_string(path).expect("a unit")
    });
    let named = template
        .replace(" (%i)", "")
        .replace("/%i.toml", "/vrnicd.toml")
        .replace("vrnic-%i", "vrnic");
    assert_eq!(named, one);
    // systemd restarts the daemon each time it ends, and starts it when the host has its addresses.
    for line in ["RestartSec=2", "StartLimitIntervalSec=0", "After=network-online.target"] {
        assert!(one.lines().any(|found| found == line), "no {line}");
    }
}

#[test]
fn the_settings_of_the_service_are_valid() {
    // The group kvm does not exist on every machine.
    let (_folder, settings) = copy("vrnicd.toml", "\"kvm\"", "\"root\"");
    let output = Command::new(env!("CARGO_BIN_EXE_vrnicd"))
        .args(["--check", "--config"])
        .arg(settings)
        .output()
        .expect("vrnicd runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Parses an AppArmor profile, without AppArmor in the kernel. Returns the parser's output about
/// its rules, or nothing if there is no parser.
fn parse_profile(profile: &Path, base: &Path) -> Option<String> {
    let mut command = Command::new("apparmor_parser");
    // The path of root, for users who do not have it.
    let command = command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let command = command.args(["--skip-kernel-load", "--skip-cache", "--dump", "rule-exprs"]);
    let Ok(output) = command.arg("--base").arg(base).arg(profile).output() else {
        eprintln!("skipped: there is no apparmor_parser");
        return None;
    };
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{text}");
    Some(text)
}

/// The rules for libvirt's QEMUs, in the profiles of two domains.
#[test]
fn a_qemu_of_libvirt_may_use_the_sockets_of_its_own_domain_alone() {
    let (folder, rules) = copy("apparmor/libvirt-qemu", "/run/vrnic", "/run/vrnic");
    let text = fs::read_to_string(&rules).expect("rules");
    let paths = text.lines().filter(|line| line.trim_start().starts_with(['/', '@']));
    assert!(paths.clone().count() > 0);
    for path in paths {
        assert!(path.contains("/@{profile_name}{,-*}.{sock,net} "), "for every domain: {path}");
    }
    for name in ["libvirt-0a", "libvirt-0b"] {
        let profile = folder.path().join(name);
        let text = format!("profile {name} {{\n  include \"{}\"\n}}\n", rules.display());
        fs::write(&profile, text).expect("a file");
        let Some(said) = parse_profile(&profile, folder.path()) else { return };
        let of_vrnic: Vec<_> = said.lines().filter(|line| line.contains("/run/vrnic")).collect();
        assert!(!of_vrnic.is_empty(), "{said}");
        for line in of_vrnic {
            assert!(line.contains(&format!("/{name}")), "{line}");
        }
    }
}

#[test]
fn the_services_have_a_profile_of_apparmor() {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let profile = packaging.join("apparmor/vrnicd");
    let text = fs::read_to_string(&profile).expect("a profile");
    // The profile has no path after its name, so it applies only to the services.
    assert!(text.lines().any(|line| line.starts_with("profile vrnicd flags=")));
    for name in UNITS {
        let unit = fs::read_to_string(packaging.join(name)).expect("a unit");
        assert!(unit.lines().any(|line| line == "AppArmorProfile=-vrnicd"), "{name}");
    }
    let base = Path::new("/etc/apparmor.d");
    if base.join("tunables/global").exists() {
        parse_profile(&profile, base);
    }
}

#[test]
fn manual_pages_and_completions_name_the_options() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_vrnic"));
    let status = command.arg("manual").arg(folder.path()).status().expect("vrnic runs");
    assert!(status.success());
    for (file, part) in [
        ("vrnicd.1", "socket\\-mode"),
        ("vrnic.1", "monitor"),
        ("vrnic-fault-add.1", "rule"),
        ("vrnicd.bash", "--socket-mode"),
        ("_vrnic", "--monitor"),
        ("vrnic.fish", "pcap"),
    ] {
        let text = fs::read_to_string(folder.path().join(file)).expect(file);
        assert!(text.contains(part), "no '{part}' in {file}");
    }
}

/// The build of the kernel module prints one sentence for each thing that is missing.
#[test]
fn the_build_of_the_module_says_what_is_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    let headers = folder.path().join("headers");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/dkms/dkms-build");
    let refused = |part: &str| {
        let mut command = Command::new(&script);
        let command = command.arg("7.3.0-none").arg(&headers).env("VRNIC_DKMS_KEPT", folder.path());
        let output = command.output().expect("a shell");
        assert!(!output.status.success(), "nothing is missing");
        let error = String::from_utf8(output.stderr).expect("text");
        assert!(error.starts_with("vrnic.ko cannot be built for kernel 7.3.0-none: "), "{error}");
        assert!(error.contains(part) && error.lines().count() == 1, "{error}");
    };
    refused("install linux-headers-7.3.0-none");
    fs::create_dir(&headers).expect("a folder");
    let config = |text: &str| fs::write(headers.join(".config"), text).expect("a file");
    config("CONFIG_MODULES=y\n");
    refused("no support for Rust");
    config("CONFIG_RUST=y\nCONFIG_RUSTC_VERSION_TEXT=\"rustc 0.1\"\n");
    refused("it was built by 'rustc 0.1'");
}
