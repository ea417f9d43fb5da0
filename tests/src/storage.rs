//! A RAM disk of one guest, the target. The kernel's `nvmet-rdma` offers it, and the kernel's
//! `nvme-rdma` attaches it in the other guest, the initiator.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::Pair;

use crate::commands::{LONG_TIMEOUT, SHORT_TIMEOUT};

/// MiB of the disk.
pub const DISK: u32 = 96;

/// Makes the target offer its RAM disk, unless it already does.
pub fn offer(target: &Guest) -> Result<()> {
    let disk = format!("modprobe brd rd_nr=1 rd_size=$(({DISK} * 1024))");
    target.check(&disk, SHORT_TIMEOUT)?;
    offer_device(target, "/dev/ram0", "")
}

/// Makes the target offer a block device, unless it already offers one. `settings` is a shell
/// command that runs in the folder of the namespace before the namespace is enabled.
pub fn offer_device(target: &Guest, device: &str, settings: &str) -> Result<()> {
    let address = target.ip();
    target.check(
        &format!(
            "set -e
            modprobe -a nvmet nvmet_rdma
            cd /sys/kernel/config 2>/dev/null
            [ -d nvmet ] || mount -t configfs none /sys/kernel/config
            cd /sys/kernel/config/nvmet
            [ -d ports/1 ] && exit 0
            mkdir subsystems/disk; echo 1 > subsystems/disk/attr_allow_any_host
            mkdir subsystems/disk/namespaces/1; cd subsystems/disk/namespaces/1
            echo -n {device} > device_path; {settings}
            echo 1 > enable
            cd /sys/kernel/config/nvmet; mkdir ports/1; cd ports/1
            echo rdma > addr_trtype; echo ipv4 > addr_adrfam
            echo {address} > addr_traddr; echo 4420 > addr_trsvcid
            ln -s ../../subsystems/disk subsystems/disk"
        ),
        SHORT_TIMEOUT,
    )?;
    Ok(())
}

/// Loads the target's driver again, with other parameters.
fn reload_target(target: &Guest, parameters: &str) -> Result<()> {
    let script = format!(
        "set -e; cd /sys/kernel/config/nvmet/ports/1/subsystems; rm disk
        rmmod nvmet_rdma; modprobe nvmet_rdma {parameters}
        ln -s ../../../subsystems/disk disk"
    );
    target.check(&script, SHORT_TIMEOUT).map(drop)
}

/// Runs `test` with a target whose QPs share receive queues. The target drains the QPs with the
/// event of the last receive.
pub fn with_shared_receives(
    pair: &mut Pair,
    test: impl FnOnce(&mut Pair) -> Result<()>,
) -> Result<()> {
    offer(&pair.b)?;
    reload_target(&pair.b, "use_srq=1")?;
    attach(&pair.a, &pair.b)?;
    let used = pair.b.check("rdma res show srq", SHORT_TIMEOUT)?;
    ensure!(used.contains("srqn"), "the target has no shared receive queue: {used}");
    detach(&pair.a)?;
    test(pair)?;
    reload_target(&pair.b, "")
}

/// Attaches the disk to the initiator as `/dev/nvme0n1`.
pub fn attach(initiator: &Guest, target: &Guest) -> Result<()> {
    offer(target)?;
    connect(initiator, target)
}

/// Attaches the disk that the target offers to the initiator as `/dev/nvme0n1`.
pub fn connect(initiator: &Guest, target: &Guest) -> Result<()> {
    let address = target.ip();
    initiator.check(
        &format!(
            "modprobe nvme_rdma && \
             echo transport=rdma,traddr={address},trsvcid=4420,nqn=disk > /dev/nvme-fabrics && \
             for n in $(seq 100); do [ -b /dev/nvme0n1 ] && exit 0; sleep 0.1; done; \
             echo no disk; exit 1"
        ),
        SHORT_TIMEOUT,
    )?;
    Ok(())
}

/// Detaches the disk from the initiator, which may have one of its own.
pub fn detach(initiator: &Guest) -> Result<()> {
    let gone = "set -e; controller=$(dirname $(grep -l rdma /sys/class/nvme/nvme*/transport))
        echo 1 > $controller/delete_controller; ! [ -e /dev/$(basename $controller)n1 ]";
    initiator.check(gone, SHORT_TIMEOUT).map(drop)
}

/// Attaches and detaches the disk several times.
pub fn attach_in_turn(pair: &Pair, times: u32) -> Result<()> {
    (1..=times).try_for_each(|round| {
        let attached = attach(&pair.a, &pair.b);
        attached.and_then(|()| detach(&pair.a)).with_context(|| format!("round {round}"))
    })
}

/// Writes some MiB of random data to the attached disk and reads it back, in large and in small
/// commands. The target's disk has the same data afterwards.
pub fn write_and_read(initiator: &Guest, target: &Guest, data: u32) -> Result<()> {
    let sums = initiator.check(
        &format!(
            "set -e; cd /tmp
            dd if=/dev/urandom of=written bs=1M count={data} 2>/dev/null
            dd if=written of=/dev/nvme0n1 bs=1M oflag=direct 2>/dev/null
            dd if=/dev/nvme0n1 of=read bs=256k count=$(({data} * 4)) iflag=direct 2>/dev/null
            cmp written read
            dd if=written of=/dev/nvme0n1 bs=4k count=$(({data} * 8)) seek=100 oflag=direct 2>/dev/null
            dd if=/dev/nvme0n1 of=read bs=4k count=$(({data} * 8)) skip=100 iflag=direct 2>/dev/null
            cmp -n $(({data} * 8 * 4096)) written read
            dd if=written of=/dev/nvme0n1 bs=1M oflag=direct 2>/dev/null
            sha256sum < written; rm written read"
        ),
        LONG_TIMEOUT,
    )?;
    // Reads around the target's page cache, which does not contain the data that was written over
    // the fabric.
    let there = format!("dd if=/dev/ram0 bs=1M count={data} iflag=direct 2>/dev/null | sha256sum");
    let there = target.check(&there, LONG_TIMEOUT)?;
    ensure!(sums == there, "the target has other data: {sums} here, {there} there");
    Ok(())
}

/// Returns an empty ext4 file system of `mib` MiB, compressed, in `folder`.
pub fn ext4(folder: &Path, mib: u32) -> Result<PathBuf> {
    let image = folder.join("ext4");
    File::create(&image)?.set_len(u64::from(mib) << 20)?;
    let run = |command: &mut Command| -> Result<()> {
        let status = command.stdin(Stdio::null()).status();
        let status = status.with_context(|| format!("cannot run {command:?}"))?;
        ensure!(status.success(), "{command:?} failed");
        Ok(())
    };
    run(Command::new("mkfs.ext4").arg("-q").arg("-F").arg(&image))?;
    run(Command::new("gzip").arg("-f").arg(&image))?;
    Ok(image.with_extension("gz"))
}
