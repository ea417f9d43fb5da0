//! Options that are refused before a guest boots, in one sentence and with status 125.
//!
//! Shows: tools

use std::fs;
use std::os::unix::fs::symlink;

use anyhow::{Context, Result, ensure};
use vrnic_tests::repository::script::said;

use super::lab;

/// Runs the script with options that it must refuse with a text.
fn refuses(options: &[&str], why: &str) -> Result<()> {
    let ran = lab(options)?;
    let text = said(&ran);
    ensure!(ran.status.code() == Some(125) && text.contains(why), "{options:?}: {text}");
    ensure!(!text.contains("booting"), "a guest was booted: {text}");
    let lines = text.lines().filter(|line| line.starts_with("error: ")).count();
    ensure!(lines == 1, "not one line: {text}");
    Ok(())
}

/// Roots, kernels, modules and memory with which the command could not run.
pub(crate) fn before_boot() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let run = ["--", "true"];
    let with = |options: &[&str], why| refuses(&[options, &run].concat(), why);
    with(&["--memory", "100M"], "cannot hold their image")?;
    with(&["--module", "no_such_module"], "the stock kernel has no module 'no_such_module'")?;
    fs::create_dir(path("empty"))?;
    with(&["--root", &path("empty")], "the root has no /bin/sh")?;
    let program = ["--root", &path("empty"), "--", "server", "-v"];
    refuses(&program, "the root has no program 'server'")?;
    fs::write(path("text"), "no archive")?;
    with(&["--root", &path("text")], "it is no tar archive")?;
    // A shell for ARM.
    fs::create_dir_all(path("arm/usr/bin"))?;
    symlink("usr/bin", path("arm/bin"))?;
    let mut head = b"\x7fELF\x02\x01\x01".to_vec();
    head.resize(18, 0);
    head.extend([183, 0]);
    fs::write(path("arm/usr/bin/sh"), head)?;
    with(&["--root", &path("arm")], "is for another processor (ELF machine 183)")?;
    fs::write(path("kernel"), kernel("6.1.0-other"))?;
    with(&["--kernel", &path("kernel")], "and the guests' kernel is 6.1.0-other")?;
    with(&["--kernel", &path("text")], "is no image of a kernel")?;
    with(&["--module-file", &path("text")], "is no kernel module")?;
    with(&["--disk", &path("text")], "is it an image of a disk?")?;
    // A disk with LVM, and an image of qcow2 whose other half is missing.
    let mut disk = vec![0; 0x2000];
    disk[512..520].copy_from_slice(b"LABELONE");
    fs::write(path("lvm"), &disk)?;
    with(&["--disk", &path("lvm")], "it has LVM, from which guests cannot start")?;
    fs::write(path("cut"), b"QFI\xfb\0\0\0\x03")?;
    with(&["--disk", &path("cut")], "QEMU says: ")?;
    fs::write(path("vmdk"), b"KDMV\x01")?;
    with(&["--disk", &path("vmdk")], "convert it with qemu-img")?;
    disk[512..520].fill(0);
    disk[0x438..0x43a].copy_from_slice(b"\x53\xef");
    fs::write(path("disk"), &disk)?;
    let other = ["--disk", &path("disk"), "--kernel", &path("kernel")];
    with(&other, "the guests' kernel is 6.1.0-other")?;
    let modules = ["--kernel", &path("kernel"), "--module", "nvme"];
    with(&modules, "--module nvme names a module of the stock kernel")?;
    refuses(&["--shell"], "--shell needs a terminal")
}

/// Returns the head of a kernel image with a release.
fn kernel(release: &str) -> Vec<u8> {
    let mut image = vec![0; 0x400];
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
    image[0x300..0x300 + release.len()].copy_from_slice(release.as_bytes());
    image
}

/// A regular expression that is none is refused by its name.
pub(crate) fn expressions() -> Result<()> {
    let ran = lab(&["--peer", "true", "--ready", "(", "--", "true"])?;
    let text = said(&ran);
    ensure!(ran.status.code() == Some(2) && text.contains("--ready"), "{text}");
    text.contains("unclosed group").then_some(()).context(text)
}
