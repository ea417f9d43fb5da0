//! Guests that start from a disk with a whole system, an image of the user.
//!
//! Shows: tools

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use vrnic_qemu::machine::paths::Paths;
use vrnic_tests::repository::script::{said, succeed, top, with_figures};

use super::lab;

/// The place in bytes of the partition.
const PARTITION: u64 = 1 << 20;
/// Size of a cluster of an image of the format qcow2.
const CLUSTER: u64 = 1 << 16;

/// perftest in systems with systemd, whose disk has a partition in an image of the format qcow2.
/// The commands run when the services of the system run, and find the files of the lab. What they
/// write is lost.
///
/// Shows: tools: machines that start from a disk with a whole system
pub(crate) fn whole() -> Result<()> {
    succeed(Command::new(top()?.join("scripts/setup")).arg("--system"))?;
    let system = Paths::from_env()?.system.join("disk");
    // Not in /tmp, which may be in memory.
    let folder = tempfile::TempDir::new_in("/var/tmp")?;
    let at = |name: &str| folder.path().join(name);
    let (disk, image) = (at("disk"), at("image.qcow2"));
    partition(&system, &disk)?;
    layer(&disk, &image)?;
    let before = fs::metadata(&disk)?.modified()?;
    let bytes = fs::read(&image)?;
    fs::create_dir(at("mine"))?;
    fs::write(at("mine/file"), "copied\n")?;
    let command = "set -e; cat file; test \"$(findmnt -no SOURCE /)\" = /dev/vda1; \
                   systemctl is-active systemd-journald multi-user.target; \
                   test \"$(cat /proc/1/comm)\" = systemd; modinfo nvme >/dev/null; \
                   ls /sys/class/infiniband | grep -x 'rocep.*'; test $(uname -n) = a; \
                   touch /written; echo kept >$VRNIC_OUTPUT/file; \
                   ib_write_bw -d $VRNIC_DEVICE -n 100 b";
    let [disk_text, mine, kept] =
        [&image, &at("mine"), &at("kept")].map(|it| it.to_string_lossy().into_owned());
    let options = ["--disk", &disk_text, "--copy", &mine, "--output", &kept];
    let options = [&options[..], &["--peer", "ib_write_bw -n 100", "--", command]].concat();
    let ran = with_figures(|| lab(&options))?;
    let text = said(&ran);
    ensure!(ran.status.success() && text.contains("BW average"), "{text}");
    ensure!(ran.stdout.starts_with(b"copied\nactive\nactive\nrocep"), "{text}");
    ensure!(
        fs::read(at("kept/b/file")).is_err() && fs::read(at("kept/a/file"))? == b"kept\n",
        "{text}"
    );
    ensure!(fs::metadata(&disk)?.modified()? == before, "the disk was changed");
    ensure!(fs::read(&image)? == bytes, "the image was changed");
    Ok(())
}

/// A disk whose file system has no system ends its guest with a sentence.
pub(crate) fn empty() -> Result<()> {
    let folder = tempfile::TempDir::new_in("/var/tmp")?;
    let disk = folder.path().join("disk");
    let mut make = Command::new("mkfs.ext4");
    make.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").arg("-q").arg(&disk).arg("16M");
    succeed(&mut make)?;
    let path = disk.to_string_lossy();
    let ran = lab(&["--guests", "1", "--disk", &path, "--", "true"])?;
    let text = said(&ran);
    ensure!(ran.status.code() == Some(125), "{text}");
    let why = "none of its file systems (vda:ext4) has a system that systemd starts";
    ensure!(text.contains(why), "{text}");
    Ok(())
}

/// Writes a disk whose second half is a partition with the contents of `system`.
fn partition(system: &Path, disk: &Path) -> Result<()> {
    let size = fs::metadata(system)?.len();
    let file = File::create(disk)?;
    file.set_len(PARTITION + size)?;
    let sector = |bytes: u64| -> Result<[u8; 4]> { Ok(u32::try_from(bytes / 512)?.to_le_bytes()) };
    // Linux, from this sector, of so many sectors.
    let entry = [&[0, 0, 0, 0, 0x83, 0, 0, 0][..], &sector(PARTITION)?, &sector(size)?].concat();
    file.write_all_at(&entry, 446)?;
    file.write_all_at(b"\x55\xaa", 510)?;
    let [from, to] =
        [("if", system), ("of", disk)].map(|(key, path)| format!("{key}={}", path.display()));
    succeed(Command::new("dd").args([&from, &to]).args([
        "bs=1M",
        "seek=1",
        "conv=sparse,notrunc",
        "status=none",
    ]))?;
    Ok(())
}

/// Writes an image of the format qcow2 in which nothing is written yet, on top of another disk.
fn layer(below: &Path, image: &Path) -> Result<()> {
    let size = fs::metadata(below)?.len();
    let below: PathBuf = below.canonicalize()?;
    let name = below.to_str().context("the path is not UTF-8")?.as_bytes();
    // Each entry of the first table stands for a second table, which has a cluster.
    let entries = size.div_ceil(CLUSTER * CLUSTER / 8);
    let place = 0x200_u64;
    let numbers: [(usize, u64, usize); 9] = [
        (4, 2, 4),
        (8, place, 8),
        (16, u64::try_from(name.len())?, 4),
        (20, 16, 4),
        (24, size, 8),
        (36, entries, 4),
        (40, CLUSTER, 8),
        (48, 2 * CLUSTER, 8),
        (56, 1, 4),
    ];
    let file = File::create(image)?;
    file.set_len(3 * CLUSTER)?;
    file.write_all_at(b"QFI\xfb", 0)?;
    for (at, number, len) in numbers {
        let bytes = number.to_be_bytes();
        file.write_all_at(bytes.get(8 - len..).unwrap_or_default(), u64::try_from(at)?)?;
    }
    // The format of the disk below, as an extension of the header.
    file.write_all_at(b"\xe2\x79\x2a\xca\0\0\0\x03raw", 72)?;
    file.write_all_at(name, place)?;
    Ok(())
}
