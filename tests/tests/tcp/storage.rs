//! The kernel's iSCSI target in guest b, and open-iscsi in guest a with the transport `vrnic_iscsi`
//! (`driver/storage`), so that the adapter moves the data ([docs/storage.md]).
//!
//! [docs/storage.md]: ../../../docs/storage.md
//!
//! Shows: iscsi

use std::path::Path;

use anyhow::{Context, Result, ensure};
use vrnic_qemu::adapter::Transport;
use vrnic_qemu::agent::Running;
use vrnic_qemu::modules;
use vrnic_qemu::pair::{Options, Pair, ready};
use vrnic_tests::commands::{
    self, LONG_TIMEOUT, PCI, SHORT_TIMEOUT, recovers, registration, said, settles, stop,
};
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::object_counts::ObjectCounts;

use super::iscsi::{NAME, PORTAL_GROUP, SLOW, SLOW_DISK, Slow, TARGET, serve};

/// The modules of the initiator, without the transport.
const INITIATOR: [&str; 5] =
    ["scsi_common", "scsi_mod", "sd_mod", "scsi_transport_iscsi", "libiscsi"];
/// The folder of open-iscsi's interfaces.
const INTERFACES: &str = "/var/lib/iscsi/ifaces";
/// The name of a second target.
const OTHER: &str = "iqn.2026-11.org.vrnic:other";
/// MiB of its disk.
const OTHER_DISK: u32 = 32;

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let case = |name: &'static str, run: fn(&Pair) -> Result<()>| {
        Case::new(name, move |pair: &mut Pair| leaves_nothing(pair, run))
    };
    let cases = vec![
        case("file_system", |pair| file_system(pair, "None")),
        case("file_system_with_digests", |pair| file_system(pair, "CRC32C")),
        case("blocks_of_all_sizes_are_verified", verified),
        case("secrets_that_are_wrong_and_right", secrets),
        case("two_sessions", two_sessions),
        case("a_command_is_aborted", aborted),
        case("a_disk_that_is_reset", disk_reset),
        case("a_target_that_comes_back", comes_back),
        case("a_target_that_does_not", stays_away),
        case("targets_that_lie", lies),
        case("a_target_that_lies_at_the_login", lies_at_login),
        case("an_adapter_that_is_reset", reset),
        case("an_adapter_that_goes_and_comes_back", removed),
    ];
    let mut names = [INITIATOR.as_slice(), &TARGET, &SLOW].concat();
    names.sort_unstable();
    names.dedup();
    let options = Options { personality: Transport::Iwarp, memory: 2048, ..Options::default() };
    Suite::with_modules(&names, options, cases)
}

/// Runs a case, which must leave no session and no objects, so that the transport can go.
fn leaves_nothing(pair: &Pair, run: impl FnOnce(&Pair) -> Result<()>) -> Result<()> {
    serve(pair)?;
    prepare(pair)?;
    let before = ObjectCounts::take(pair, &pair.a)?;
    run(pair)?;
    let none = "! ls /sys/class/iscsi_host/* && ! ls /sys/class/iscsi_endpoint/*";
    pair.a.check(none, SHORT_TIMEOUT)?;
    before.unchanged(pair, &pair.a)?;
    pair.a.check("rmmod vrnic_iscsi", SHORT_TIMEOUT).map(drop)
}

/// Loads the transport, and makes open-iscsi know it and the target.
fn prepare(pair: &Pair) -> Result<()> {
    modules::load(&pair.a, &INITIATOR)?;
    pair.a.check(&format!("mkdir -p {INTERFACES}"), SHORT_TIMEOUT)?;
    let interface = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/iscsi/vrnic");
    pair.a.agent().put(&interface, &format!("{INTERFACES}/vrnic"), 0o600)?;
    let portal = format!("{}:3260", pair.b.ip());
    let script = format!(
        "set -e; dmesg -C; insmod /vrnic/vrnic_iscsi.ko; [ -d /sys/class/iscsi_transport/ocs ]
        if ! pgrep iscsid >/dev/null; then
            mkdir -p /run/lock/iscsi /etc/iscsi
            echo InitiatorName=iqn.2026-11.org.vrnic:initiator >/etc/iscsi/initiatorname.iscsi
            iscsid
        fi
        iscsiadm -m iface | grep -q '^vrnic ocs'
        iscsiadm -m node -o delete 2>/dev/null || true
        iscsiadm -m discovery -t st -p {portal} -I vrnic | grep -q {NAME}"
    );
    pair.a.check(&script, SHORT_TIMEOUT).map(drop)
}

/// Returns the command for the record of a target.
fn node(pair: &Pair, target: &str) -> String {
    format!("iscsiadm -m node -T {target} -p {}:3260 -I vrnic", pair.b.ip())
}

/// Sets values of the record of a target.
fn set(pair: &Pair, target: &str, values: &[(&str, &str)]) -> Result<()> {
    values.iter().try_for_each(|(name, value)| {
        let command = format!("{} -o update -n {name} -v {value}", node(pair, target));
        pair.a.check(&command, SHORT_TIMEOUT).map(drop)
    })
}

/// Logs in to the first target, and waits for its disk.
fn log_in(pair: &Pair) -> Result<()> {
    pair.a.check(&format!("{} --login", node(pair, NAME)), SHORT_TIMEOUT)?;
    settles(&pair.a, "[ -b /dev/sda ]", 30)
}

/// Logs out. The target has forgotten the session then.
fn log_out(pair: &Pair) -> Result<()> {
    let command = format!("{} --logout && ! [ -e /dev/sda ]", node(pair, NAME));
    pair.a.check(&command, SHORT_TIMEOUT)?;
    let sessions = format!("cat {PORTAL_GROUP}/dynamic_sessions | grep -q .");
    settles(&pair.b, &format!("! {{ {sessions}; }}"), 30)
}

/// A file system on the disk: files are written, and read after a new mount. The bytes of the disk
/// are those of the target's file.
///
/// Shows: iscsi: file systems on disks that open-iscsi attaches by the adapter, with digests
fn file_system(pair: &Pair, digest: &str) -> Result<()> {
    let digests = ["node.conn[0].iscsi.HeaderDigest", "node.conn[0].iscsi.DataDigest"];
    set(pair, NAME, &digests.map(|name| (name, digest)))?;
    log_in(pair)?;
    let agreed = pair.a.check(
        "cd /sys/class/iscsi_connection; cat */header_digest */data_digest | tr '\\n' ' '",
        SHORT_TIMEOUT,
    )?;
    let expected = if digest == "None" { "0 0 " } else { "1 1 " };
    ensure!(agreed == expected, "digests: {agreed}");
    let sum = pair.a.check(
        "set -e
        modprobe ext4; mkfs.ext4 -q -F /dev/sda
        mkdir -p /mnt/disk; mount -t ext4 /dev/sda /mnt/disk; cd /mnt/disk
        for n in $(seq 20); do mkdir d$n; head -c $((n * 54321)) /dev/urandom > d$n/file; done
        cp -r /usr/lib/modules big; ln d7/file link; rm -r d13; sync
        find . -type f | sort | xargs sha256sum > /tmp/sums
        cd /; umount /mnt/disk; echo 3 > /proc/sys/vm/drop_caches
        mount -t ext4 /dev/sda /mnt/disk; cd /mnt/disk; sha256sum --quiet -c /tmp/sums
        [ $(wc -l </tmp/sums) -gt 20 ]
        cd /; umount /mnt/disk; echo 3 > /proc/sys/vm/drop_caches; sha256sum </dev/sda",
        LONG_TIMEOUT,
    )?;
    log_out(pair)?;
    let there = pair.b.check("sha256sum </var/target/disk", LONG_TIMEOUT)?;
    ensure!(sum == there, "the target has other bytes");
    Ok(())
}

/// The command by which fio writes blocks of 512 bytes to 1 MiB in any order, and verifies them.
fn fio(disk: &str, mib: u32) -> String {
    format!(
        "fio --name=verify --filename={disk} --direct=1 --ioengine=libaio --rw=randwrite \
         --bsrange=512-1M --iodepth=16 --size={mib}M --verify=crc32c --verify_fatal=1 --do_verify=1"
    )
}

/// No data leaves that the target has not asked for, although open-iscsi offers it.
///
/// Shows: iscsi: blocks that fio writes and verifies
fn verified(pair: &Pair) -> Result<()> {
    log_in(pair)?;
    let max = pair.a.check("cat /sys/block/sda/queue/max_hw_sectors_kb", SHORT_TIMEOUT)?;
    ensure!(max.trim() == "1024", "requests of at most {max} KiB");
    pair.a.check("echo 1024 >/sys/block/sda/queue/max_sectors_kb", SHORT_TIMEOUT)?;
    pair.a.check(&fio("/dev/sda", 90), LONG_TIMEOUT)?;
    let statistics = pair.a.check("iscsiadm -m session -s", SHORT_TIMEOUT)?;
    let count = |name: &str| -> Option<u64> {
        let line = statistics.lines().find(|line| line.trim().starts_with(name))?;
        line.rsplit(' ').next()?.parse().ok()
    };
    // The adapter has moved the data: these PDUs were executed, and no Data-Out was made here.
    let (read, asked) = (count("datain_pdus"), count("r2t_pdus"));
    ensure!(read > Some(50) && asked > Some(50), "{statistics}");
    ensure!(count("dataout_pdus") == Some(0), "{statistics}");
    log_out(pair)
}

/// A login without the secret, or with a wrong one, fails with open-iscsi's message, and leaves
/// nothing. With the right ones, in both directions, there is a session.
///
/// Shows: iscsi: logins with CHAP
fn secrets(pair: &Pair) -> Result<()> {
    pair.b.check(
        &format!(
            "set -e; cd {PORTAL_GROUP}; echo 1 >attrib/authentication
            echo -n us >auth/userid; echo -n the-secret-of-us >auth/password
            echo -n them >auth/userid_mutual; echo -n the-secret-of-them >auth/password_mutual"
        ),
        SHORT_TIMEOUT,
    )?;
    let refused = |why: &str| -> Result<()> {
        let tried = pair.a.agent().run(&format!("{} --login", node(pair, NAME)), SHORT_TIMEOUT)?;
        let text = said(&tried);
        ensure!(!tried.ok() && text.contains("authorization failure"), "{why}: {text}");
        pair.a.check("! ls /sys/class/iscsi_session/* && ! [ -e /dev/sda ]", SHORT_TIMEOUT)?;
        Ok(())
    };
    refused("no secret")?;
    let wrong = [
        ("node.session.auth.authmethod", "CHAP"),
        ("node.session.auth.username", "us"),
        ("node.session.auth.password", "another-secret-1"),
    ];
    set(pair, NAME, &wrong)?;
    refused("a wrong secret")?;
    let right = [
        ("node.session.auth.password", "the-secret-of-us"),
        ("node.session.auth.username_in", "them"),
        ("node.session.auth.password_in", "the-secret-of-them"),
    ];
    set(pair, NAME, &right)?;
    log_in(pair)?;
    pair.a.check("dd if=/dev/sda of=/dev/null bs=1M count=8 iflag=direct", SHORT_TIMEOUT)?;
    log_out(pair)?;
    let open = format!("echo 0 >{PORTAL_GROUP}/attrib/authentication");
    pair.b.check(&open, SHORT_TIMEOUT).map(drop)
}

/// Sessions with two targets at a time. One ends while the other one goes on.
///
/// Shows: iscsi: two sessions by one adapter
fn two_sessions(pair: &Pair) -> Result<()> {
    let bytes = OTHER_DISK << 20;
    pair.b.check(
        &format!(
            "set -e; cd /sys/kernel/config/target
            mkdir -p core/fileio_2/other iscsi/{OTHER}/tpgt_1
            echo fd_dev_name=/var/target/other,fd_dev_size={bytes} >core/fileio_2/other/control
            echo 1 >core/fileio_2/other/enable
            cd iscsi/{OTHER}/tpgt_1
            echo 0 >attrib/authentication; echo 1 >attrib/generate_node_acls
            echo 0 >attrib/demo_mode_write_protect
            mkdir lun/lun_0
            ln -s /sys/kernel/config/target/core/fileio_2/other lun/lun_0/other
            mkdir np/0.0.0.0:3260; echo 1 >enable"
        ),
        SHORT_TIMEOUT,
    )?;
    log_in(pair)?;
    let (first, second) = (fio("/dev/sda", 64), fio("/dev/sdb", OTHER_DISK - 2));
    let portal = format!("{}:3260", pair.b.ip());
    pair.a.check(
        &format!(
            "iscsiadm -m discovery -t st -p {portal} -I vrnic >/dev/null && {} --login",
            node(pair, OTHER)
        ),
        SHORT_TIMEOUT,
    )?;
    settles(&pair.a, "[ -b /dev/sdb ]", 30)?;
    let both = pair.a.agent().start(&format!("{first} & {second} && wait $!"))?;
    let both = both.wait(LONG_TIMEOUT).context("fio hangs")?;
    ensure!(both.ok(), "{}", said(&both));
    let reader = reader(pair)?;
    pair.a.check(&format!("{} --logout && ! [ -e /dev/sdb ]", node(pair, OTHER)), SHORT_TIMEOUT)?;
    goes_on(pair, reader)?;
    log_out(pair)?;
    pair.b.check(
        &format!(
            "cd /sys/kernel/config/target; t=iscsi/{OTHER}/tpgt_1; echo 0 >$t/enable
            rm $t/lun/lun_0/other; rmdir $t/lun/lun_0 $t/np/0.0.0.0:3260 $t iscsi/{OTHER}
            rmdir core/fileio_2/other core/fileio_2"
        ),
        SHORT_TIMEOUT,
    )?;
    Ok(())
}

/// A command that the target does not execute in time is aborted. The connection goes on.
fn aborted(pair: &Pair) -> Result<()> {
    let slow = Slow::offer(pair)?;
    log_in(pair)?;
    settles(&pair.a, "dmesg | grep -q ':0:1: .* Attached'", 30)?;
    // 20 seconds. libiscsi aborts a command at the third time limit: at the first one the command
    // was sent since the last look, and at the second one the target is pinged.
    slow.delay(5000)?;
    let script = format!(
        "vrnic_scsi {SLOW_DISK} slow 3000 && iscsiadm -m session -s | grep -E 'tmf.*: [1-9]' && dmesg"
    );
    let tried = pair.a.check(&script, LONG_TIMEOUT);
    slow.delay(1)?;
    let ended = log_out(pair);
    slow.withdraw()?;
    let tried = tried?;
    ensure!(tried.contains("tmfrsp_pdus: 1") && !tried.contains("conn error"), "{tried}");
    ended
}

/// Resets of the disk end the commands that are under way, which are sent again, each up to five
/// times. The connection goes on.
///
/// Shows: iscsi: a disk that is reset while a program writes to it
fn disk_reset(pair: &Pair) -> Result<()> {
    log_in(pair)?;
    let writer = writer(pair)?;
    let reset = pair.a.check("sleep 1; vrnic_scsi /dev/sda resets 4", LONG_TIMEOUT);
    pair.a.check("! [ -e /tmp/written ]", SHORT_TIMEOUT)?;
    writes_on(pair, writer)?;
    reset?;
    let log = pair.a.check("iscsiadm -m session -s | grep tmf; dmesg", SHORT_TIMEOUT)?;
    ensure!(log.contains("tmfrsp_pdus: 4") && !log.contains("conn error"), "{log}");
    log_out(pair)
}

/// Starts a writer of the disk in guest a, which verifies what it has written.
fn writer(pair: &Pair) -> Result<Running> {
    pair.a.agent().start(&format!("{} && touch /tmp/written", fio("/dev/sda", 90)))
}

/// Checks that a writer notices nothing. It must not have ended before.
fn writes_on(pair: &Pair, writer: Running) -> Result<()> {
    let written = writer.wait(LONG_TIMEOUT).context("the writer hangs")?;
    ensure!(written.ok(), "the writer: {}", said(&written));
    pair.a.check("rm /tmp/written", SHORT_TIMEOUT).map(drop)
}

/// Starts a reader of the whole disk in guest a.
fn reader(pair: &Pair) -> Result<Running> {
    pair.a.agent().start(
        "rm -f /tmp/end; while ! [ -e /tmp/end ]; do \
         dd if=/dev/sda of=/dev/null bs=64k count=100 iflag=direct 2>/dev/null || exit 1; done",
    )
}

/// Checks that a reader has gone on, and ends it.
fn goes_on(pair: &Pair, reader: Running) -> Result<()> {
    pair.a.check(
        "dd if=/dev/sda of=/dev/null bs=64k count=10 iflag=direct && touch /tmp/end",
        LONG_TIMEOUT,
    )?;
    let read = reader.wait(LONG_TIMEOUT).context("the reader hangs")?;
    ensure!(read.ok(), "the reader: {}", said(&read));
    Ok(())
}

/// Waits until the connection has failed, and there is another one.
fn reconnects(pair: &Pair) -> Result<()> {
    settles(&pair.a, "dmesg | grep -q 'detected conn error'", 60)?;
    settles(&pair.a, "grep -q LOGGED_IN /sys/class/iscsi_session/session*/state", 60)
}

/// The target ends all sessions, and is there again a few seconds later. A program that writes to
/// the disk notices nothing but the time.
///
/// Shows: iscsi: a target that comes back
fn comes_back(pair: &Pair) -> Result<()> {
    log_in(pair)?;
    let writer = writer(pair)?;
    pair.b.check(
        &format!("sleep 1; echo 0 >{PORTAL_GROUP}/enable; sleep 4; echo 1 >{PORTAL_GROUP}/enable"),
        SHORT_TIMEOUT,
    )?;
    pair.a.check("! [ -e /tmp/written ]", SHORT_TIMEOUT)?;
    reconnects(pair)?;
    writes_on(pair, writer)?;
    log_out(pair)
}

/// The target does not come back in time: commands fail. The session is there again when the target
/// is.
fn stays_away(pair: &Pair) -> Result<()> {
    set(pair, NAME, &[("node.session.timeo.replacement_timeout", "3")])?;
    log_in(pair)?;
    let reader = reader(pair)?;
    pair.b.check(&format!("sleep 1; echo 0 >{PORTAL_GROUP}/enable"), SHORT_TIMEOUT)?;
    let read = reader.wait(LONG_TIMEOUT).context("the reader hangs");
    pair.b.check(&format!("echo 1 >{PORTAL_GROUP}/enable"), SHORT_TIMEOUT)?;
    let read = read?;
    ensure!(!read.ok(), "the reader read on: {}", said(&read));
    reconnects(pair)?;
    log_out(pair)
}

/// Lies of a target, and the numbers of libiscsi for them (`enum iscsi_err`): PROTO, BAD_ITT and
/// DATALEN.
const LIES: [(&str, u32); 9] = [
    ("beyond", 1008),
    ("unknown", 1008),
    ("r2t", 1008),
    ("reject", 1008),
    ("ping", 1010),
    ("abort", 1010),
    ("login", 1010),
    ("long", 1006),
    ("tasks", 1010),
];

/// Each lie ends the connection, and no command by it.
///
/// Shows: iscsi: targets that lie
fn lies(pair: &Pair) -> Result<()> {
    let node = new_liar(pair)?;
    for (lie, number) in LIES {
        let liar = commands::serve(&pair.b, &format!("vrnic_liar 3261 {lie}"), 3261)?;
        pair.a.check(&format!("dmesg -C; {node} --login"), SHORT_TIMEOUT).context(lie)?;
        let error = format!("dmesg | grep -q 'detected conn error ({number})'");
        let ended = settles(&pair.a, &error, 30);
        pair.a.check(&format!("{node} --logout"), LONG_TIMEOUT).context(lie)?;
        stop(liar)?;
        ended.context(lie)?;
    }
    Ok(())
}

/// Makes a record of the target that lies, and returns the command for it.
fn new_liar(pair: &Pair) -> Result<String> {
    let ip = pair.b.ip();
    let node = format!("iscsiadm -m node -T iqn.2026-11.org.vrnic:liar -p {ip}:3261 -I vrnic");
    pair.a.check(&format!("{node} -o new"), SHORT_TIMEOUT)?;
    Ok(node)
}

/// An answer to a login with the tag of a task that does not exist ends the connection. The login
/// fails, and leaves nothing.
fn lies_at_login(pair: &Pair) -> Result<()> {
    let node = new_liar(pair)?;
    let liar = commands::serve(&pair.b, "vrnic_liar 3261 stranger", 3261)?;
    let script = format!(
        "{node} -o update -n node.session.initial_login_retry_max -v 1
        {node} -o update -n 'node.conn[0].timeo.login_timeout' -v 2
        dmesg -C; ! {node} --login && dmesg | grep 'detected conn error (1010)'
        ended=$?; ! ls /sys/class/iscsi_session/* && exit $ended"
    );
    pair.a.check(&script, LONG_TIMEOUT)?;
    stop(liar).map(drop)
}

/// A reset of the adapter ends its connections. open-iscsi makes new ones.
///
/// Shows: iscsi: an adapter that is reset
fn reset(pair: &Pair) -> Result<()> {
    log_in(pair)?;
    let writer = writer(pair)?;
    let before = registration(&pair.a)?;
    pair.a
        .check(&format!("sleep 1; ! [ -e /tmp/written ] && echo 1 > {PCI}/reset"), SHORT_TIMEOUT)?;
    recovers(&pair.a, before)?;
    reconnects(pair)?;
    writes_on(pair, writer)?;
    log_out(pair)
}

/// The same with an adapter that is removed and found again: a session belongs to no adapter.
fn removed(pair: &Pair) -> Result<()> {
    log_in(pair)?;
    let writer = writer(pair)?;
    let remove = format!("sleep 1; ! [ -e /tmp/written ] && echo 1 > {PCI}/remove");
    pair.a.check(&format!("{remove} && ! ls /sys/class/infiniband/*"), SHORT_TIMEOUT)?;
    settles(&pair.a, "dmesg | grep -q 'detected conn error'", 60)?;
    pair.a.check("echo 1 > /sys/bus/pci/rescan", SHORT_TIMEOUT)?;
    ready(&pair.a)?;
    reconnects(pair)?;
    writes_on(pair, writer)?;
    log_out(pair)
}
