//! Commands in guests.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vrnic_qemu::agent::{Output, Running};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::{Pair, ready};
use vrnic_qemu::perftest;

/// For a command that only looks at something.
pub const SHORT: Duration = Duration::from_secs(60);
/// For one that moves data.
pub const LONG: Duration = Duration::from_secs(180);

/// Both ends of something that has ended.
#[derive(Debug)]
pub struct Ends {
    client: Output,
    server: Output,
}

impl Ends {
    /// Waits for the server of a client that has ended; it is killed if the client failed.
    ///
    /// # Errors
    /// When it does not end.
    pub fn of(server: Running, client: Output) -> Result<Self> {
        if !client.ok() {
            server.kill()?;
        }
        Ok(Self { client, server: server.wait(SHORT)? })
    }

    /// Returns whether both succeeded.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.client.ok() && self.server.ok()
    }

    /// Everything that both said, the client first.
    #[must_use]
    pub fn said(&self) -> String {
        format!("{}\n{}", said(&self.client), said(&self.server))
    }

    /// Checks that both succeeded. Gives what the client said.
    ///
    /// # Errors
    /// Fails with the output of both if one did not succeed.
    pub fn succeed(self, what: &str) -> Result<String> {
        let (client, server) = (self.client.code, self.server.code);
        ensure!(
            self.ok(),
            "'{what}' ended with {client} (client) and {server} (server)\n{}",
            self.said()
        );
        Ok(self.client.stdout)
    }
}

/// Waits until something of the guest listens with the RDMA connection manager.
///
/// # Errors
/// When nothing does within half a minute.
pub fn listens(guest: &Guest) -> Result<()> {
    settles(guest, "rdma res show cm_id | grep -q 'state LISTEN'", 30)
}

/// Waits until a condition of the guest's shell holds, which is looked at ten times a second.
///
/// # Errors
/// When it does not within `seconds`.
pub fn settles(guest: &Guest, condition: &str, seconds: u32) -> Result<()> {
    let looks = 10 * seconds;
    let script =
        format!("for n in $(seq {looks}); do {condition} && exit 0; sleep 0.1; done; exit 1");
    guest.check(&script, LONG).with_context(|| format!("never: {condition}"))?;
    Ok(())
}

/// Waits until the port is in a state.
///
/// # Errors
/// When it is not within half a minute.
pub fn link_is(guest: &Guest, state: &str) -> Result<()> {
    settles(guest, &format!("rdma link show | grep -q 'state {state}'"), 30)
}

/// Waits until `vrnic-stress hold` has said, in `/tmp/hold`, that its objects are made.
///
/// # Errors
/// When it does not within `seconds`.
pub fn held(guest: &Guest, objects: u32, seconds: u32) -> Result<()> {
    settles(guest, &format!("grep -q '^{objects}' /tmp/hold"), seconds)
}

/// The number of the guest's RDMA device: each registration has a new one.
///
/// # Errors
/// When there is no device.
pub fn registration(guest: &Guest) -> Result<u32> {
    let text = guest.check("rdma dev show", SHORT)?;
    let number = text.split(':').next().unwrap_or_default().trim();
    number.parse().with_context(|| format!("no device's number: '{text}'"))
}

/// Waits until the driver has registered the guest's RDMA device anew, after this registration, and
/// the device can be used.
///
/// # Errors
/// When it does not within a minute and a half.
pub fn recovers(guest: &Guest, from: u32) -> Result<()> {
    let number = "$(rdma dev show | cut -d : -f 1)";
    settles(guest, &format!("[ \"{number}\" -gt {from} ] 2>/dev/null"), 90)?;
    ready(guest)
}

/// Starts a program that tells of the device's events; see [`hears_fatal`].
///
/// # Errors
/// When it does not start.
pub fn watch(guest: &Guest) -> Result<Running> {
    let watcher = guest.agent().start("exec stdbuf -oL ibv_asyncwatch")?;
    std::thread::sleep(Duration::from_secs(1));
    Ok(watcher)
}

/// Ends such a program, which must have heard that the device has failed.
///
/// # Errors
/// When it has not.
pub fn hears_fatal(watcher: Running) -> Result<()> {
    watcher.kill()?;
    let events = said(&watcher.wait(SHORT)?);
    ensure!(events.contains("DEVICE_FATAL"), "no fatal event: {events}");
    Ok(())
}

/// Shell words that name the adapter's folder in sysfs.
pub const PCI: &str = "$(dirname $(grep -l 0x524e /sys/bus/pci/devices/*/device))";

/// Starts a server and waits until it listens.
///
/// # Errors
/// When it does not.
pub fn serve(guest: &Guest, command: &str, port: u16) -> Result<Running> {
    let running = guest.agent().start(&format!("exec {command}"))?;
    guest.listens_on(port)?;
    Ok(running)
}

/// Runs `command` in `server`, the same with the server's address behind it in `client`; both must
/// succeed. Gives what the client said. Perftest that finds its clocks wrong is run again.
///
/// # Errors
/// When one does not, with what both said.
pub fn both(server: &Guest, client: &Guest, command: &str, port: u16) -> Result<String> {
    let once = || {
        let serving = serve(server, command, port)?;
        Ends::of(serving, client.agent().run(&format!("exec {command} {}", server.ip()), LONG)?)
    };
    perftest::with_sound_clocks(once, |ends| (!ends.ok()).then(|| ends.said()))?.succeed(command)
}

/// Everything that a command said.
#[must_use]
pub fn said(output: &Output) -> String {
    format!("{}{}", output.stdout, output.stderr)
}

/// The folder of the device's counters in a guest, as shell words.
pub const COUNTERS: &str = "/sys/class/infiniband/*/ports/1/hw_counters";

/// The value of a counter of the guest's device.
///
/// # Errors
/// When there is none of that name.
pub fn counter(guest: &Guest, name: &str) -> Result<u64> {
    // The kernel asks the driver again after 10 ms.
    let text = guest.check(&format!("sleep 0.02; cat {COUNTERS}/{name}"), SHORT)?;
    Ok(text.trim().parse()?)
}

/// Checks that the pair moves data.
///
/// # Errors
/// Fails with the output of both sides.
pub fn works(pair: &Pair) -> Result<()> {
    both(&pair.b, &pair.a, "ibv_rc_pingpong -g 1 -c -n 200", 18515).map(|_| ())
}

/// Starts a transfer of `seconds` from a to b, with its control connection on `port`, and waits
/// until data flows. Gives server and client.
///
/// # Errors
/// When it does not get so far.
pub fn transfer(pair: &Pair, tool: &str, seconds: u32, port: u16) -> Result<(Running, Running)> {
    let command = format!("exec {tool} -D {seconds} -s 65536 -p {port}");
    let server = pair.b.agent().start(&command)?;
    pair.b.listens_on(port)?;
    let client = pair.a.agent().start(&format!("{command} {}", pair.b.ip()))?;
    settles(&pair.a, "rdma res show qp | grep -q 'state RTS'", 30)?;
    std::thread::sleep(Duration::from_secs(2));
    Ok((server, client))
}
