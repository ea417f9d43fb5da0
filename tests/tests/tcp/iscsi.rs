//! The kernel's iSCSI target in guest b, a disk in a file, and the initiator `vrnic_kiscsi`
//! (`driver/tests/kiscsi`) in guest a, whose adapter moves the data.
//!
//! Shows: iscsi

use anyhow::{Context, Result, ensure};
use vrnic_qemu::adapter::Transport;
use vrnic_qemu::agent::Running;
use vrnic_qemu::modules;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::{LONG_TIMEOUT, SHORT_TIMEOUT, said, settles};
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::object_counts::ObjectCounts;
use vrnic_tests::rules::{self, fault, hits};
use vrnic_tests::storage::ext4;

/// The modules of the initiator, and of the target.
const INITIATOR: [&str; 3] = ["scsi_common", "scsi_mod", "sd_mod"];
pub(super) const TARGET: [&str; 5] = [
    "scsi_common",
    "target_core_mod",
    "target_core_file",
    "target_core_iblock",
    "iscsi_target_mod",
];
/// The module that drops packets to simulate losses.
const NETEM: &str = "sch_netem";
/// The name of the target.
pub(super) const NAME: &str = "iqn.2026-11.org.vrnic:disk";
/// The target's folder.
pub(super) const PORTAL_GROUP: &str =
    "/sys/kernel/config/target/iscsi/iqn.2026-11.org.vrnic:disk/tpgt_1";
/// MiB of the disk.
const DISK: u32 = 96;
/// Fault rules of the daemon for packets of the adapter.
const FAULTS: [&str; 3] = ["drop", "duplicate", "reorder"];
/// Parameters of the initiator that ask for digests.
const DIGESTS: &str = "header_digest=1 data_digest=1";

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let case = |name: &'static str, run: fn(&Pair) -> Result<()>| {
        Case::new(name, move |pair: &mut Pair| leaves_nothing(pair, run))
    };
    let cases = vec![
        case("file_system", |pair| file_system(pair, "")),
        case("file_system_with_digests", |pair| file_system(pair, DIGESTS)),
        case("requests_of_all_sizes", sizes),
        case("lossy", lossy),
        case("refused_commands_stop_only_themselves", refused),
        case("a_command_is_aborted", aborted),
        case("a_target_that_comes_back", comes_back),
        case("a_target_that_does_not", stays_away),
        case("a_target_that_refuses", refusals),
    ];
    let mut names = [INITIATOR.as_slice(), &TARGET, &SLOW, &[NETEM]].concat();
    names.sort_unstable();
    names.dedup();
    let options =
        Options { personality: Transport::Iwarp, daemon: rules::arguments(), ..Options::default() };
    Suite::with_modules(&names, options, cases)
}

/// Runs a case, which must leave no objects.
fn leaves_nothing(pair: &Pair, run: impl FnOnce(&Pair) -> Result<()>) -> Result<()> {
    serve(pair)?;
    modules::load(&pair.a, &INITIATOR)?;
    let before = ObjectCounts::take(pair, &pair.a)?;
    run(pair)?;
    before.unchanged(pair, &pair.a)
}

/// Makes guest b offer its disk, unless it does.
pub(super) fn serve(pair: &Pair) -> Result<()> {
    let there = pair.b.agent().run(&format!("[ -d {PORTAL_GROUP} ]"), SHORT_TIMEOUT)?;
    if there.ok() {
        return Ok(());
    }
    pair.b.check("modprobe configfs || true", SHORT_TIMEOUT)?;
    modules::load(&pair.b, &TARGET)?;
    pair.b.agent().put(&ext4(pair.dir(), DISK)?, "/tmp/ext4.gz", 0o600)?;
    let bytes = DISK << 20;
    pair.b.check(
        &format!(
            "set -e
            cd /sys/kernel/config; [ -d target ] || mount -t configfs none .
            mkdir -p /var/target; mount -t tmpfs none /var/target
            gzip -dc /tmp/ext4.gz >/var/target/disk
            cd /sys/kernel/config/target; mkdir -p core/fileio_0/disk {PORTAL_GROUP}
            echo fd_dev_name=/var/target/disk,fd_dev_size={bytes} >core/fileio_0/disk/control
            echo 1 >core/fileio_0/disk/enable
            cd {PORTAL_GROUP}
            echo 0 >attrib/authentication; echo 1 >attrib/generate_node_acls
            echo 0 >attrib/demo_mode_write_protect
            mkdir lun/lun_0
            ln -s /sys/kernel/config/target/core/fileio_0/disk lun/lun_0/disk
            mkdir np/0.0.0.0:3260; echo 1 >enable"
        ),
        LONG_TIMEOUT,
    )?;
    Ok(())
}

/// Loads the initiator, and waits for its disk.
fn attach(pair: &Pair, parameters: &str) -> Result<()> {
    pair.a.check(&format!("dmesg -C; {}", load(pair, NAME, parameters)), SHORT_TIMEOUT)?;
    settles(&pair.a, "[ -b /dev/sda ]", 30)
}

/// Returns the command that loads the initiator.
fn load(pair: &Pair, target: &str, parameters: &str) -> String {
    let address = pair.b.ip();
    format!("insmod /vrnic/vrnic_kiscsi.ko portal={address}:3260 target={target} {parameters}")
}

fn detach(pair: &Pair) -> Result<()> {
    pair.a.check("rmmod vrnic_kiscsi && ! [ -e /dev/sda ]", SHORT_TIMEOUT)?;
    // The target has forgotten the session.
    let sessions = format!("cat {PORTAL_GROUP}/dynamic_sessions | grep -q .");
    settles(&pair.b, &format!("! {{ {sessions}; }}"), 30)
}

/// A file system on the disk: files are written, and read after a new mount. The bytes of the disk
/// are those of the target's file.
///
/// Shows: iscsi: file systems on disks of an iSCSI target, with digests
fn file_system(pair: &Pair, parameters: &str) -> Result<()> {
    attach(pair, parameters)?;
    let sum = pair.a.check(
        "set -e
        modprobe ext4; mkdir -p /mnt/disk; mount -t ext4 /dev/sda /mnt/disk; cd /mnt/disk; rm -rf *
        for n in $(seq 20); do mkdir d$n; head -c $((n * 54321)) /dev/urandom > d$n/file; done
        cp -r /usr/lib/modules big; ln d7/file link; rm -r d13; sync
        find . -type f | sort | xargs sha256sum > /tmp/sums
        cd /; umount /mnt/disk; echo 3 > /proc/sys/vm/drop_caches
        mount -t ext4 /dev/sda /mnt/disk; cd /mnt/disk; sha256sum --quiet -c /tmp/sums
        [ $(wc -l </tmp/sums) -gt 20 ]
        cd /; umount /mnt/disk; echo 3 > /proc/sys/vm/drop_caches; sha256sum </dev/sda",
        LONG_TIMEOUT,
    )?;
    detach(pair)?;
    let there = pair.b.check("sha256sum </var/target/disk", LONG_TIMEOUT)?;
    ensure!(sum == there, "the target has other bytes");
    Ok(())
}

/// Requests of 512 bytes to 1 MiB, at odd places, past the page cache. Those of 1 MiB consist of
/// scattered pages.
fn sizes(pair: &Pair) -> Result<()> {
    attach(pair, "")?;
    let max = pair.a.check("cat /sys/block/sda/queue/max_hw_sectors_kb", SHORT_TIMEOUT)?;
    ensure!(max.trim() == "1024", "requests of at most {max} KiB");
    pair.a.check(
        "set -e
        echo 1024 >/sys/block/sda/queue/max_sectors_kb
        head -c 32M /dev/urandom >/tmp/data
        for size in 512 1024 3584 4096 12288 65536 524288 1048576; do
            dd if=/tmp/data of=/dev/sda bs=$size count=$((size < 65536 ? 100 : 32)) seek=7 oflag=direct
            dd if=/dev/sda of=/tmp/back bs=$size count=$((size < 65536 ? 100 : 32)) skip=7 iflag=direct
            cmp -n $((size * (size < 65536 ? 100 : 32))) /tmp/data /tmp/back
        done 2>&1 | grep -v -E 'records|copied' || true
        dd if=/tmp/data of=/dev/sda bs=1M seek=40 2>/dev/null; sync; echo 3 >/proc/sys/vm/drop_caches
        dd if=/dev/sda bs=1M skip=40 count=32 2>/dev/null | cmp - /tmp/data",
        LONG_TIMEOUT,
    )?;
    detach(pair)?;
    // The adapter has placed all data, and has read all data that was asked for.
    let log = pair.a.check("dmesg | grep -o 'PDUs: .*dropped'", SHORT_TIMEOUT)?;
    let numbers: Vec<u32> = log.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [received, whole, placed, served, data_out, refused, dropped] = numbers[..] else {
        anyhow::bail!("the log has no counters: {log}");
    };
    ensure!(placed > 500 && served > 500 && data_out >= served, "{log}");
    ensure!(received == whole + placed && (refused, dropped) == (0, 0), "{log}");
    Ok(())
}

/// 1 % of the packets in each direction is lost, and 1 % comes twice or in another order.
fn lossy(pair: &Pair) -> Result<()> {
    attach(pair, DIGESTS)?;
    modules::load(&pair.b, &[NETEM])?;
    let netem = "netem loss random 1% duplicate 1% delay 2ms reorder 90% limit 10000";
    pair.b.check(&format!("tc qdisc replace dev eth0 root {netem}"), SHORT_TIMEOUT)?;
    for action in FAULTS {
        fault(pair, &["add", action, "function=a", "prob=0.01"])?;
    }
    let moved = pair.a.check(
        "set -e
        head -c 16M /dev/urandom >/tmp/data
        dd if=/tmp/data of=/dev/sda bs=256k oflag=direct 2>/dev/null
        dd if=/dev/sda bs=256k count=64 iflag=direct 2>/dev/null | cmp - /tmp/data",
        LONG_TIMEOUT,
    );
    let hits = hits(pair)?;
    fault(pair, &["clear"])?;
    pair.b.check("tc qdisc del dev eth0 root", SHORT_TIMEOUT)?;
    moved?;
    ensure!(hits.len() == FAULTS.len() && hits.iter().all(|hit| *hit > 3), "{hits:?}");
    detach(pair)
}

/// The adapter refuses operations of tapes. Other commands go on, on the same connection.
///
/// Shows: iscsi: a refused command stops only itself
fn refused(pair: &Pair) -> Result<()> {
    attach(pair, "")?;
    let read = pair.a.check("vrnic_scsi /dev/sda mixed 50", LONG_TIMEOUT)?;
    let reads: u32 = read.split_whitespace().next().context("a number")?.parse()?;
    ensure!(reads > 50, "{read}");
    let log = pair.a.check("dmesg", SHORT_TIMEOUT)?;
    let refusals = log.matches("has refused command").count();
    ensure!(refusals == 50 && !log.contains("was lost"), "{refusals} refusals: {log}");
    detach(pair)
}

/// The modules of a disk that is as slow as one wants.
pub(super) const SLOW: [&str; 3] = ["scsi_mod", "sd_mod", "scsi_debug"];
/// Shell words that offer that disk, and make it slow. SG_IO waits at least 7 seconds.
const OFFER_SLOW: &str = "
    set -e; cd /sys/kernel/config/target
    for n in $(seq 100); do [ -b /dev/sda ] && break; sleep 0.1; done
    mkdir -p core/iblock_1/slow; echo udev_path=/dev/sda >core/iblock_1/slow/control
    echo 1 >core/iblock_1/slow/enable";

/// The slow disk, as the second one of the target.
pub(super) struct Slow<'a>(&'a Pair);

impl<'a> Slow<'a> {
    /// Offers it.
    pub(super) fn offer(pair: &'a Pair) -> Result<Self> {
        let lun = format!("{PORTAL_GROUP}/lun/lun_1");
        let link = format!("ln -s /sys/kernel/config/target/core/iblock_1/slow {lun}/slow");
        modules::load(&pair.b, &SLOW)?;
        pair.b.check(&format!("{OFFER_SLOW}; mkdir {lun}; {link}"), SHORT_TIMEOUT)?;
        Ok(Self(pair))
    }

    /// Sets for how many jiffies a command lasts, of which a second has 250. The disk must have no
    /// commands for that.
    pub(super) fn delay(&self, jiffies: u32) -> Result<()> {
        let file = "/sys/bus/pseudo/drivers/scsi_debug/delay";
        settles(&self.0.b, &format!("echo {jiffies} >{file}"), 30)
    }

    /// Takes it away.
    pub(super) fn withdraw(self) -> Result<()> {
        let lun = format!("{PORTAL_GROUP}/lun/lun_1");
        let end = format!("rm {lun}/slow; rmdir {lun}; cd /sys/kernel/config/target/core");
        let end = format!("{end}; rmdir iblock_1/slow iblock_1; rmmod scsi_debug");
        self.0.b.check(&end, SHORT_TIMEOUT).map(drop)
    }
}

/// The file of this disk, for a shell of the initiator. It has the first free name when its probe
/// is the first to end.
pub(super) const SLOW_DISK: &str = "/dev/$(ls /sys/class/scsi_device/*:1/device/block)";

/// A command that the target does not execute in time is aborted. The connection goes on.
fn aborted(pair: &Pair) -> Result<()> {
    let slow = Slow::offer(pair)?;
    attach(pair, "")?;
    settles(&pair.a, "dmesg | grep -q ':0:1: .* Attached'", 30)?;
    // 12 seconds.
    slow.delay(3000)?;
    let script = format!("vrnic_scsi {SLOW_DISK} slow 7000 && dmesg | grep -E 'abort|lost'");
    let tried = pair.a.check(&script, LONG_TIMEOUT);
    slow.delay(1)?;
    let detached = detach(pair);
    slow.withdraw()?;
    let tried = tried?;
    ensure!(tried.contains("answers 0 to the abort") && !tried.contains("lost"), "{tried}");
    detached
}

/// Starts a reader of the whole disk in guest a.
fn reader(pair: &Pair) -> Result<Running> {
    pair.a.agent().start(
        "while ! [ -e /tmp/end ]; do \
         dd if=/dev/sda of=/dev/null bs=64k count=100 iflag=direct 2>/dev/null || exit 1; done",
    )
}

/// The target ends all sessions, and is there again a few seconds later. A program that uses the
/// disk notices nothing but the time.
///
/// Shows: iscsi: a target that comes back
fn comes_back(pair: &Pair) -> Result<()> {
    attach(pair, "")?;
    let reader = reader(pair)?;
    pair.b.check(
        &format!("sleep 1; echo 0 >{PORTAL_GROUP}/enable; sleep 4; echo 1 >{PORTAL_GROUP}/enable"),
        SHORT_TIMEOUT,
    )?;
    settles(&pair.a, "[ $(dmesg | grep -c 'logged in') = 2 ]", 40)?;
    pair.a.check("sleep 1; touch /tmp/end", SHORT_TIMEOUT)?;
    let read = reader.wait(SHORT_TIMEOUT).context("the reader hangs")?;
    pair.a.check("rm /tmp/end", SHORT_TIMEOUT)?;
    ensure!(read.ok(), "the reader: {}", said(&read));
    let log = pair.a.check("dmesg", SHORT_TIMEOUT)?;
    ensure!(log.contains("was lost"), "{log}");
    detach(pair)
}

/// The target does not come back in time: commands fail, and the module can go.
fn stays_away(pair: &Pair) -> Result<()> {
    attach(pair, "recovery_s=3")?;
    let reader = reader(pair)?;
    pair.b.check(&format!("sleep 1; echo 0 >{PORTAL_GROUP}/enable"), SHORT_TIMEOUT)?;
    let read = reader.wait(SHORT_TIMEOUT).context("the reader hangs");
    pair.b.check(&format!("echo 1 >{PORTAL_GROUP}/enable"), SHORT_TIMEOUT)?;
    let read = read?;
    ensure!(!read.ok(), "the reader read on: {}", said(&read));
    let log = pair.a.check("dmesg", SHORT_TIMEOUT)?;
    ensure!(log.contains("no connection to the target any more"), "{log}");
    detach(pair)
}

/// Without a session there is no disk, and the log has the reason.
fn refusals(pair: &Pair) -> Result<()> {
    let wrong = load(pair, "iqn.2026-11.org.vrnic:other", "");
    pair.a.check(
        &format!(
            "dmesg -C; {wrong}; dmesg | grep -q 'refuses the login: status 0x2, detail 0x3'
            ! [ -e /dev/sda ] && rmmod vrnic_kiscsi
            insmod /vrnic/vrnic_kiscsi.ko portal=nowhere target=x; ! [ -e /dev/sda ]
            rmmod vrnic_kiscsi; ! insmod /vrnic/vrnic_kiscsi.ko"
        ),
        SHORT_TIMEOUT,
    )?;
    Ok(())
}
