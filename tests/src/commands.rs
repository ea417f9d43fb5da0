//! Commands in guests. If a command fails, the error has its output.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vrnic_qemu::adapter::Transport;
use vrnic_qemu::agent::{Output, Running};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::{Pair, load_module_with, ready};
use vrnic_qemu::traffic::perftest;

/// Time limit of a command that only reads something.
pub const SHORT_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit of a command that moves data.
pub const LONG_TIMEOUT: Duration = Duration::from_secs(180);

/// The results of a client and its server.
#[derive(Debug)]
pub struct Ends {
    client: Output,
    server: Output,
}

impl Ends {
    /// Waits for the server of a client that has ended. If the client has failed, the server is
    /// killed.
    pub fn of(server: Running, client: Output) -> Result<Self> {
        if !client.ok() {
            server.kill()?;
        }
        Ok(Self { client, server: server.wait(SHORT_TIMEOUT)? })
    }

    /// Returns whether both succeeded.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.client.ok() && self.server.ok()
    }

    /// Returns the output of both, the client's first.
    #[must_use]
    pub fn said(&self) -> String {
        format!("{}\n{}", said(&self.client), said(&self.server))
    }

    /// Checks that both have succeeded. The error has the output of both. Returns the client's
    /// output.
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

/// Kills a program and waits until it has ended.
pub fn stop(program: Running) -> Result<Output> {
    program.kill()?;
    program.wait(SHORT_TIMEOUT).context("a program cannot be ended")
}

/// Kills programs, and waits until they have ended, one after the other.
pub fn stop_all(programs: impl IntoIterator<Item = Running>) -> Result<()> {
    programs.into_iter().try_for_each(|program| stop(program).map(drop))
}

/// The end of a pipe from `rdma resource show cm_id` that leaves the lines of programs that listen.
/// Services of the kernel, which have their names in brackets, may listen for other cases.
pub const LISTENING: &str = "grep 'state LISTEN' | grep -v 'comm \\['";

/// Waits for half a minute until a program of the guest listens with the RDMA connection manager.
pub fn listens(guest: &Guest) -> Result<()> {
    settles(guest, &format!("rdma res show cm_id | {LISTENING} | grep -q ."), 30)
}

/// Starts a server of rping for one client after the other, and waits until it listens.
pub fn serve_pings(guest: &Guest) -> Result<Running> {
    let server = guest.agent().start("modprobe rdma_ucm; exec rping -s -P")?;
    listens(guest)?;
    Ok(server)
}

/// Returns the command of a client of [`serve_pings`] at this address that runs until it is ended.
#[must_use]
pub fn endless_pings(address: &str) -> String {
    format!("modprobe rdma_ucm; exec rping -c -a {address} -C 1000000")
}

/// Runs a server that listens with the RDMA connection manager, and then a client. Both must
/// succeed. Returns the client's output.
pub fn connect((server, serve): (&Guest, &str), (client, call): (&Guest, &str)) -> Result<String> {
    let serving = server.agent().start(&format!("modprobe rdma_ucm; exec {serve}"))?;
    listens(server)?;
    let there = client.agent().run(&format!("modprobe rdma_ucm; exec {call}"), LONG_TIMEOUT)?;
    Ends::of(serving, there)?.succeed(serve)
}

/// Waits for `seconds` until a condition of the guest's shell is true. It is tested ten times a
/// second.
pub fn settles(guest: &Guest, condition: &str, seconds: u32) -> Result<()> {
    let attempts = 10 * seconds;
    let script =
        format!("for n in $(seq {attempts}); do {condition} && exit 0; sleep 0.1; done; exit 1");
    // A test of the condition takes some time, too.
    let limit = Duration::from_secs(u64::from(seconds) * 3).max(LONG_TIMEOUT);
    guest.check(&script, limit).with_context(|| format!("never: {condition}"))?;
    Ok(())
}

/// Waits for half a minute until the port is in a state.
pub fn link_is(guest: &Guest, state: &str) -> Result<()> {
    settles(guest, &format!("rdma link show | grep -q 'state {state}'"), 30)
}

/// Sets the guest's network device up with its address.
pub fn netdev_up(guest: &Guest) -> Result<()> {
    let address = &guest.setup().adapter.address;
    let up = format!("ip link set eth0 up; ip addr replace {address} dev eth0");
    guest.check(&up, SHORT_TIMEOUT).map(drop)
}

/// Unloads the driver and loads it with these parameters.
pub fn reload(guest: &Guest, parameters: &str) -> Result<()> {
    guest.check("rmmod vrnic && ! ls /sys/class/infiniband/* 2>/dev/null", SHORT_TIMEOUT)?;
    load_module_with(guest, parameters)
}

/// Waits for `seconds` until `vrnic-stress hold` has written to `/tmp/hold` that it has created its
/// objects.
pub fn held(guest: &Guest, objects: u32, seconds: u32) -> Result<()> {
    settles(guest, &format!("grep -q '^{objects}' /tmp/hold"), seconds)
}

/// Returns the number of the guest's RDMA device. Each registration has a new number.
pub fn registration(guest: &Guest) -> Result<u32> {
    let text = guest.check("rdma dev show", SHORT_TIMEOUT)?;
    let number = text.split(':').next().unwrap_or_default().trim();
    number.parse().with_context(|| format!("no device's number: '{text}'"))
}

/// Waits for a minute and a half until the driver has registered the guest's RDMA device again,
/// after the registration `from`, and then until the device can be used.
pub fn recovers(guest: &Guest, from: u32) -> Result<()> {
    let number = "$(rdma dev show | cut -d : -f 1)";
    settles(guest, &format!("[ \"{number}\" -gt {from} ] 2>/dev/null"), 90)?;
    ready(guest)
}

/// Root can describe the node of the device, and rdma-ndd describes it with the name of the host.
/// The maximum length of a description is 64 bytes.
pub fn describes(guest: &Guest) -> Result<()> {
    let file = "/sys/class/infiniband/*/node_desc";
    let longest = "x".repeat(64);
    for (text, shown) in [("one of two", "one of two"), (&*format!("{longest}y"), &*longest)] {
        guest.check(&format!("printf %s '{text}' > $(echo {file})"), SHORT_TIMEOUT)?;
        let description = guest.check(&format!("cat {file}"), SHORT_TIMEOUT)?;
        ensure!(description == format!("{shown}\n"), "the node is described as '{description}'");
    }
    let daemon = guest.agent().start("exec rdma-ndd -f")?;
    let name = "$(uname -n | cut -d . -f 1) $(basename /sys/class/infiniband/*)";
    let described = settles(guest, &format!("[ \"$(cat {file})\" = \"{name}\" ]"), 20);
    stop(daemon)?;
    described
}

/// Starts a program that prints the device's asynchronous events, for [`hears_fatal`].
pub fn watch(guest: &Guest) -> Result<Running> {
    let watcher = guest.agent().start("exec stdbuf -oL ibv_asyncwatch")?;
    watches(guest)?;
    Ok(watcher)
}

/// Waits until the program of [`watch`] has opened the device.
pub fn watches(guest: &Guest) -> Result<()> {
    settles(
        guest,
        "ls -l /proc/$(pidof ibv_asyncwatch)/fd 2>/dev/null | grep -q infinibandevent",
        30,
    )
}

/// Ends the program of [`watch`]. It must have printed that the device has failed.
pub fn hears_fatal(watcher: Running) -> Result<()> {
    let events = said(&stop(watcher)?);
    ensure!(events.contains("DEVICE_FATAL"), "no fatal event: {events}");
    Ok(())
}

/// Shell words that name the adapter's folder in sysfs.
pub const PCI: &str = "$(dirname $(grep -l 0x524e /sys/bus/pci/devices/*/device))";

/// Starts a server and waits until it listens.
pub fn serve(guest: &Guest, command: &str, port: u16) -> Result<Running> {
    let running = guest.agent().start(&format!("exec {command}"))?;
    guest.listens_on(port)?;
    Ok(running)
}

/// Runs `command` in `server`, and the same with the server's address in `client`. Both must
/// succeed. Returns the client's output. Runs perftest again if it reports wrong clocks.
pub fn both(server: &Guest, client: &Guest, command: &str, port: u16) -> Result<String> {
    let once = || {
        let serving = serve(server, command, port)?;
        Ends::of(
            serving,
            client.agent().run(&format!("exec {command} {}", server.ip()), LONG_TIMEOUT)?,
        )
    };
    perftest::with_sound_clocks(once, |ends| (!ends.ok()).then(|| ends.said()))?.succeed(command)
}

/// Calls [`both`] for `ibv_xsrq_pingpong`. Its server sends as soon as it is connected, while the
/// client still connects, and does not look whether that failed: if the client takes longer than
/// the server's retries, both wait forever. A client on a busy machine does, so it runs again if
/// the server's device has counted such a failure.
pub fn both_xsrq(server: &Guest, client: &Guest, command: &str) -> Result<String> {
    for _ in 0..3 {
        let before = counter(server, RETRIES)?;
        match both(server, client, &format!("timeout 60 {command}"), PINGPONG) {
            Err(error) if counter(server, RETRIES)? > before => {
                eprintln!("the client was too late to receive, so it runs again: {error:#}");
            }
            ended => return ended,
        }
    }
    both(server, client, command, PINGPONG)
}

/// The counter of requests that failed because nobody acknowledged them.
const RETRIES: &str = "retry_exceeded_err";

/// Returns the whole output of a command.
#[must_use]
pub fn said(output: &Output) -> String {
    format!("{}{}", output.stdout, output.stderr)
}

/// The folder of the device's counters in a guest, as shell words.
pub const COUNTERS: &str = "/sys/class/infiniband/*/ports/1/hw_counters";

/// Returns the value of a counter of the guest's device.
pub fn counter(guest: &Guest, name: &str) -> Result<u64> {
    // The kernel queries the driver again after 10 ms.
    let text = guest.check(&format!("sleep 0.02; cat {COUNTERS}/{name}"), SHORT_TIMEOUT)?;
    Ok(text.trim().parse()?)
}

/// Checks that the pair moves data.
pub fn works(pair: &Pair) -> Result<()> {
    let (server, client) = (&pair.b, &pair.a);
    match client.setup().adapter.personality {
        Transport::Roce => {
            both(server, client, "ibv_rc_pingpong -g 1 -c -n 200", PINGPONG).map(drop)
        }
        Transport::Iwarp => {
            let call = format!("rping -c -V -C 20 -a {}", server.ip());
            connect((server, "rping -s -V -C 20"), (client, &call)).map(drop)
        }
    }
}

/// Port of the control connection of pingpong programs.
pub const PINGPONG: u16 = 18515;

/// Starts `rounds` of a pingpong from a to b, which checks its content, and waits until data is
/// exchanged. Returns client and server.
pub fn pingpong(pair: &Pair, rounds: u32) -> Result<[Running; 2]> {
    let command = format!("ibv_rc_pingpong -g 1 -c -n {rounds}");
    let server = serve(&pair.b, &command, PINGPONG)?;
    let client = pair.a.agent().start(&format!("exec {command} {}", pair.b.ip()))?;
    receives(&pair.a)?;
    Ok([client, server])
}

/// Waits until both programs have ended, each for `timeout`, and checks that they have succeeded.
pub fn succeed(programs: [Running; 2], timeout: Duration) -> Result<()> {
    for program in programs {
        let output = program.wait(timeout)?;
        ensure!(output.ok(), "a program failed: {}", said(&output));
    }
    Ok(())
}

/// Waits for ten seconds until the guest has received 100 packets more.
pub fn receives(guest: &Guest) -> Result<()> {
    let more = counter(guest, "rx_pkts")? + 100;
    settles(guest, &format!("[ $(cat {COUNTERS}/rx_pkts) -gt {more} ]"), 10)
}

/// Starts a transfer of `seconds` from a to b, with its control connection on `port`, and waits
/// until data is exchanged. Returns server and client.
pub fn transfer(pair: &Pair, tool: &str, seconds: u32, port: u16) -> Result<(Running, Running)> {
    let command = format!("exec {tool} -F -D {seconds} -s 65536 -p {port}");
    let server = pair.b.agent().start(&command)?;
    pair.b.listens_on(port)?;
    let client = pair.a.agent().start(&format!("{command} {}", pair.b.ip()))?;
    settles(&pair.a, "rdma res show qp | grep -q 'RC state RTS'", 30)?;
    std::thread::sleep(Duration::from_secs(2));
    Ok((server, client))
}
