//! Ends in the middle of a transfer: of a guest, of a process, of the daemon.
//!
//! Shows: daemon

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use vrnic_abi::uar::HEARTBEAT_OFFSET;
use vrnic_qemu::agent::Running;
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::{
    SHORT_TIMEOUT, hears_fatal, recovers, registration, said, settles, stop, succeed, transfer,
    watch, works,
};
use vrnic_tests::harness::health;
use vrnic_tests::harness::{Case, Suite};

/// Control port of the transfers.
const PORT: u16 = 18800;
/// Time in which a QP must fail whose peer does not exist any more: eight times perftest's timeout
/// (14: 67 ms), and more.
const FAILS: Duration = Duration::from_secs(30);
/// Number of tries to end the daemon. At least in one of them QEMU must not abort.
const DEATHS: u32 = 6;
/// The driver considers the adapter dead after 5 s without a heartbeat. This time allows for slow
/// guests.
const NOTICED: Duration = Duration::from_secs(30);
/// The driver waits another 40 s for a silent adapter, and a VMM that has lost its server also
/// needs time.
const FLUSHED: Duration = Duration::from_secs(120);
/// After another 40 s the driver considers a silent adapter gone. It then tries for half a minute
/// to bring it up.
const GONE: Duration = Duration::from_secs(120);

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let cases = vec![
        Case::new("peer_process_killed", peer_process),
        Case::new("client_process_killed", client_process),
        Case::new("guest_killed", guest_killed),
        Case::new("guest_rebooted_three_times", reboots),
        Case::new("daemon_stalls_for_4_s", daemon_hesitates),
        Case::new("addresses_change_while_the_daemon_stalls", addresses),
        Case::new("daemon_stalls_for_9_s", |pair| daemon_stalls(pair, Duration::from_secs(9))),
        Case::new("daemon_stalls_for_30_s", |pair| daemon_stalls(pair, Duration::from_secs(30))),
        Case::ruinous("adapter_is_gone", gone),
        Case::ruinous("daemon_killed", |pair| daemon_dies(pair, Death::Killed)),
        Case::ruinous("daemon_ends", |pair| daemon_dies(pair, Death::Ended)),
    ];
    Ok(Suite::new(Options::default(), cases))
}

/// Checks that the client ends in time, with an error that names a failed completion.
fn expect_failure(client: Running) -> Result<()> {
    let start = Instant::now();
    let output = client.wait(FAILS).context("the surviving program hangs")?;
    let text = said(&output);
    ensure!(!output.ok(), "the transfer did not fail: {text}");
    // perftest prints the status: 12 is "transport retry counter exceeded".
    let named = text.contains("status 12") || text.contains("retry counter exceeded");
    ensure!(named, "no retry error after {:?} in: {text}", start.elapsed());
    Ok(())
}

fn peer_process(pair: &mut Pair) -> Result<()> {
    for tool in ["ib_write_bw", "ib_read_bw", "ib_send_bw"] {
        let (server, client) = transfer(pair, tool, 60, PORT)?;
        server.kill()?;
        expect_failure(client).context(tool)?;
        works(pair).context(tool)?;
    }
    Ok(())
}

fn client_process(pair: &mut Pair) -> Result<()> {
    let (server, client) = transfer(pair, "ib_write_bw", 60, PORT)?;
    stop(client)?;
    stop(server)?;
    works(pair)
}

/// A guest ends as by a power cut: the QPs of the other guest fail, and no process hangs. The guest
/// is booted again and works with the same daemon.
fn guest_killed(pair: &mut Pair) -> Result<()> {
    let (_server, client) = transfer(pair, "ib_write_bw", 60, PORT)?;
    let daemon = pair.daemon.pid();
    pair.b.kill();
    expect_failure(client)?;
    health::kernel(&pair.a)?;
    health::daemon(pair)?;
    pair.a.check("ibv_devinfo | grep -q PORT_ACTIVE", SHORT_TIMEOUT)?;
    pair.reboot_b()?;
    ensure!(pair.daemon.pid() == daemon, "the daemon is another one");
    works(pair)
}

/// A function of the daemon serves one QEMU after the other.
fn reboots(pair: &mut Pair) -> Result<()> {
    for round in 1..=3 {
        pair.reboot_b().with_context(|| format!("round {round}"))?;
        works(pair).with_context(|| format!("round {round}"))?;
    }
    Ok(())
}

/// Waits until no port of the pair is up.
fn ports_down(pair: &Pair) -> Result<()> {
    let script = "for n in $(seq 250); do rdma link show | grep -q ACTIVE || exit 0; sleep 0.1; done; \
                  rdma link show; exit 1";
    for guest in [&pair.a, &pair.b] {
        guest.agent().check(script, NOTICED).context("the port did not go down")?;
    }
    Ok(())
}

/// The daemon is stopped for less time than the driver allows: the transfer goes on.
///
/// Shows: daemon: a daemon that stands still for 4, 9 and 30 s
fn daemon_hesitates(pair: &mut Pair) -> Result<()> {
    let before = [registration(&pair.a)?, registration(&pair.b)?];
    let (server, client) = transfer(pair, "ib_write_bw", 15, PORT)?;
    pair.daemon.pause()?;
    sleep(Duration::from_secs(3));
    pair.daemon.resume()?;
    succeed([client, server], SHORT_TIMEOUT)?;
    let now = [registration(&pair.a)?, registration(&pair.b)?];
    ensure!(now == before, "an adapter was given up");
    works(pair)
}

/// Addresses are added and removed while the daemon is stopped. The driver does not access the
/// adapter for them, because this would stop the guest and end the adapter's connection. So the
/// guest's commands for the network end.
fn addresses(pair: &mut Pair) -> Result<()> {
    let before = [registration(&pair.a)?, registration(&pair.b)?];
    pair.daemon.pause()?;
    // The driver notices after a second that the adapter has stopped.
    sleep(Duration::from_secs(2));
    let script = "ip addr add 10.99.0.1/24 dev eth0 && ip addr add 10.99.1.1/24 dev eth0 && \
                  ip addr del 10.99.0.1/24 dev eth0 && sleep 1 && ip link >/tmp/link";
    let start = Instant::now();
    let answered = pair.a.agent().check(script, SHORT_TIMEOUT);
    let took = start.elapsed();
    sleep(Duration::from_secs(9).saturating_sub(start.elapsed()));
    pair.daemon.resume()?;
    answered?;
    ensure!(took < Duration::from_secs(4), "the guest's commands took {took:?}");
    recovers(&pair.a, before[0])?;
    recovers(&pair.b, before[1])?;
    pair.a.check("ip addr del 10.99.1.1/24 dev eth0", SHORT_TIMEOUT)?;
    works(pair)
}

/// The daemon is stopped in the middle of a transfer and goes on after the driver considers the
/// adapter dead. The driver reports a fatal event and the port down, and until the daemon goes on,
/// it keeps all memory that the daemon may still write to. After that it brings the adapter up
/// again by itself, and programs can open the device again.
fn daemon_stalls(pair: &mut Pair, stall: Duration) -> Result<()> {
    let watchers = [watch(&pair.a)?, watch(&pair.b)?];
    let before = [registration(&pair.a)?, registration(&pair.b)?];
    let (server, client) = transfer(pair, "ib_write_bw", 120, PORT)?;
    let start = Instant::now();
    pair.daemon.pause()?;
    ports_down(pair)?;
    // The exit of these programs has to wait for the daemon, which might still write to their
    // memory.
    client.kill()?;
    server.kill()?;
    sleep(stall.saturating_sub(start.elapsed()));
    pair.daemon.resume()?;
    for (program, name) in [(client, "client"), (server, "server")] {
        let output =
            program.wait(SHORT_TIMEOUT).with_context(|| format!("the {name} cannot be ended"))?;
        ensure!(!output.ok(), "a transfer without a device succeeded: {}", said(&output));
    }
    for ((guest, watcher), before) in [&pair.a, &pair.b].into_iter().zip(watchers).zip(before) {
        recovers(guest, before)?;
        hears_fatal(watcher)?;
    }
    works(pair)
}

/// Checks an adapter that is gone, whose registers read as all ones: the driver releases it at
/// once, without waiting for a daemon that may only be stopped. After the daemon's end the
/// registers read as all ones, and the test overwrites the heartbeat.
fn gone(pair: &mut Pair) -> Result<()> {
    let heartbeat = Heartbeat::of(pair, "a")?;
    pair.daemon.kill();
    let start = Instant::now();
    heartbeat.set(u64::MAX)?;
    settles(&pair.a, "dmesg | grep -q 'the adapter is gone'", 60)?;
    let noticed = start.elapsed();
    pair.a.check("rmmod vrnic", NOTICED)?;
    // If the driver did not notice this, it would wait as long as for a stopped daemon.
    ensure!(noticed < Duration::from_secs(15), "the driver waited for {noticed:?}");
    health::kernel(&pair.a)
}

/// An adapter's heartbeat, in the memory that the daemon shares with the guest.
struct Heartbeat(File);

impl Heartbeat {
    /// Opens the heartbeat of the function of this name.
    fn of(pair: &Pair, name: &str) -> Result<Self> {
        let memory = format!("/memfd:vrnic-{name} (deleted)");
        for entry in std::fs::read_dir(format!("/proc/{}/fd", pair.daemon.pid()))? {
            let path = entry?.path();
            if std::fs::read_link(&path).is_ok_and(|target| target.as_os_str() == memory.as_str()) {
                return Ok(Self(File::options().read(true).write(true).open(path)?));
            }
        }
        bail!("the daemon has no {memory}")
    }

    fn set(&self, beat: u64) -> Result<()> {
        Ok(self.0.write_all_at(&beat.to_le_bytes(), HEARTBEAT_OFFSET.into())?)
    }
}

/// The way in which a daemon ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Death {
    /// By SIGKILL, as in a crash.
    Killed,
    /// As systemd ends it: the daemon notifies the drivers.
    Ended,
}

/// The daemon ends: stores into the BAR still succeed, but the heartbeat stops. Programs get a
/// fatal event and an error, the port goes down, the module can be unloaded, and no process hangs.
/// QEMU 11.1's vfio-user client sometimes aborts when its server ends with a request unread,
/// because it reports the broken socket twice in one error. The guest is lost then, and the case
/// starts again with new guests.
///
/// Shows: daemon: a killed daemon: programs that poll or wait learn it, and the adapter is released
fn daemon_dies(pair: &mut Pair, how: Death) -> Result<()> {
    for _ in 1..DEATHS {
        match daemon_dies_once(pair, how) {
            Err(error) if qemu_aborted(pair) => {
                eprintln!("QEMU aborted, trying again: {error:#}");
                *pair = Pair::boot(Options::default())?;
            }
            result => return result,
        }
    }
    daemon_dies_once(pair, how)
}

fn qemu_aborted(pair: &Pair) -> bool {
    [&pair.a, &pair.b].iter().any(|guest| guest.report(1).contains("error_setv: Assertion"))
}

/// Starts a program that uses the device until the device fails.
fn survivor(guest: &Guest) -> Result<Running> {
    let program = guest.agent().start("exec vrnic-stress outlive >/tmp/outlive 2>&1")?;
    settles(guest, "grep -q '^in use' /tmp/outlive", 30)?;
    Ok(program)
}

/// Checks that the program has ended, and that all requests that it had posted were completed.
fn survived(program: Running, guest: &Guest) -> Result<()> {
    let output = program.wait(FLUSHED).context("a program on the dead device hangs")?;
    let text = guest.agent().run("cat /tmp/outlive", SHORT_TIMEOUT)?;
    ensure!(output.ok(), "on the dead device: {}", said(&text));
    Ok(())
}

fn daemon_dies_once(pair: &mut Pair, how: Death) -> Result<()> {
    let watcher = watch(&pair.a)?;
    let survivor = survivor(&pair.b)?;
    let (_server, client) = transfer(pair, "ib_write_bw", 60, PORT)?;
    match how {
        Death::Killed => pair.daemon.kill(),
        Death::Ended => pair.daemon.end(),
    }
    ports_down(pair)?;
    if how == Death::Ended {
        for guest in [&pair.a, &pair.b] {
            guest.check("dmesg | grep 'the adapter has failed: code 5'", SHORT_TIMEOUT)?;
        }
    }
    survived(survivor, &pair.b)?;
    client.kill()?;
    let output = client.wait(GONE).context("a program on the dead device cannot be ended")?;
    ensure!(!output.ok(), "a transfer without a device succeeded: {}", said(&output));
    hears_fatal(watcher)?;
    for guest in [&pair.a, &pair.b] {
        guest.agent().check("pkill ib_write_bw; sleep 0.5; rmmod vrnic", GONE).context("rmmod")?;
        health::kernel(guest)?;
    }
    Ok(())
}
