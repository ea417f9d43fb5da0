//! The actions, each between a client and a server. An error is a finding.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vrnic_qemu::agent::Running;
use vrnic_qemu::daemon::Daemon;
use vrnic_qemu::guest::Guest;
use vrnic_qemu::machine::accel::Accel;
use vrnic_qemu::machine::paths::Paths;
use vrnic_qemu::modules;
use vrnic_qemu::pair::{load_module, ready};
use vrnic_qemu::traffic::perftest::{self, SET};
use vrnic_tests::commands::{
    COUNTERS, LONG_TIMEOUT, PCI, PINGPONG, SHORT_TIMEOUT, connect, counter, netdev_up, recovers,
    registration, reload, said, serve, settles, stop,
};
use vrnic_tests::places::{Place, talk};
use vrnic_tests::{conformance, places};

use crate::plan::Action;

/// Messages of 4 KiB under a rule, each of which is checked.
const ROUNDS: u32 = 10_000;
/// Time limit of those, and of a run of perftest: four guests share the processors.
const SLOW: Duration = Duration::from_secs(300);
/// Seconds of a transfer that is ended before.
const TRANSFER: u32 = 120;
/// Control port of transfers.
const PORT: u16 = 18800;
/// Number of times that a link goes down in a row.
const FLAPS: u64 = 4;

/// A client and a server, and what they need.
pub(crate) struct Ends<'a> {
    pub(crate) client: &'a mut Guest,
    pub(crate) server: &'a Guest,
    pub(crate) daemons: &'a [&'a Daemon],
    pub(crate) accel: Accel,
}

impl Ends<'_> {
    /// Carries an action out.
    pub(crate) fn run(&mut self, action: &Action) -> Result<()> {
        match action {
            Action::Perftest(case) => self.perftest(*case),
            Action::Verify { group, sq } => {
                let options = format!("--sq {sq} --skip 500_qps --only {group}/");
                conformance::between(self.server, self.client, &options)
            }
            Action::Stress(options) => {
                let command = format!("exec vrnic-stress {options}");
                self.client.check(&command, LONG_TIMEOUT).map(drop)
            }
            Action::Managed(serve, call) => {
                let call = format!("{call} {}", self.server.ip());
                connect((self.server, serve), (self.client, &call)).map(drop)
            }
            Action::Rule(rule) => self.rule(rule),
            Action::Failure(rule) => self.failure(rule),
            Action::Flap => self.flap(),
            Action::Kill { server } => self.kill(*server),
            Action::Reload { busy } => self.disturbed(*busy, |client| reload(client, "")),
            Action::Rescan => self.disturbed(true, |client| {
                let gone = "! ls /sys/class/infiniband/* 2>/dev/null";
                client.check(&format!("echo 1 >{PCI}/remove; {gone}"), SHORT_TIMEOUT)?;
                client.check("echo 1 >/sys/bus/pci/rescan", SHORT_TIMEOUT)?;
                ready(client)
            }),
            Action::Reset => self.disturbed(true, |client| {
                let before = registration(client)?;
                client.check(&format!("echo 1 >{PCI}/reset"), SHORT_TIMEOUT)?;
                recovers(client, before)
            }),
            Action::PowerCut => self.power_cut(),
            Action::Bond => self.bond(),
        }
    }

    /// Checks that both exchange data.
    pub(crate) fn works(&self) -> Result<()> {
        vrnic_tests::commands::both(
            self.server,
            self.client,
            "ibv_rc_pingpong -g 1 -c -n 200",
            PINGPONG,
        )
        .map(drop)
    }

    fn perftest(&self, case: usize) -> Result<()> {
        let outcome = perftest::with_sound_clocks(
            || perftest::between(self.server, self.client, &SET[case], SLOW),
            |outcome| (outcome.code != 0).then(|| outcome.text.clone()),
        )?;
        ensure!(outcome.passed(), "{outcome}\n{}", outcome.text);
        Ok(())
    }

    /// Starts messages that are checked, with this option. Returns the programs, the client first.
    fn messages(&self, option: &str) -> Result<[Running; 2]> {
        let command = format!("ibv_rc_pingpong -g 1 -c {option} -n {ROUNDS}");
        let server = serve(self.server, &command, PINGPONG)?;
        let call = format!("exec {command} {}", self.server.ip());
        Ok([self.client.agent().start(&call)?, server])
    }

    /// Starts a transfer, and waits until data is exchanged.
    fn transfer(&self) -> Result<[Running; 2]> {
        let command = format!("ib_write_bw -F -D {TRANSFER} -s 65536 -p {PORT}");
        let server = serve(self.server, &command, PORT)?;
        let more = counter(self.client, "tx_bytes")? + (10 << 20);
        let client = self.client.agent().start(&format!("exec {command} {}", self.server.ip()))?;
        settles(self.client, &format!("[ $(cat {COUNTERS}/tx_bytes) -gt {more} ]"), 60)?;
        Ok([client, server])
    }

    /// Adds a rule for the client's function. Returns its number, and the daemon.
    fn arm(&self, rule: &str) -> Result<Rule<'_>> {
        let name = &self.client.setup().adapter.name;
        let daemon = self.daemons.iter().find(|daemon| daemon.has(name)).context("no daemon")?;
        let function = format!("function={name}");
        let words = ["fault", "add"].into_iter().chain(rule.split(' ')).chain([&*function]);
        let added = daemon.ask(&words.collect::<Vec<_>>()).context(rule.to_owned())?;
        let number = added.trim().strip_prefix("rule ").context(added.clone())?.to_owned();
        Ok(Rule { daemon, number })
    }

    /// All messages arrive although a rule hits some.
    fn rule(&self, rule: &str) -> Result<()> {
        // Programs that poll their queues cause neither events nor interrupts.
        let option = if rule.starts_with("delay-") { "-e" } else { "" };
        let rule = self.arm(rule)?;
        let programs = self.messages(option)?;
        let hit = rule.hits();
        let ended = succeed(programs);
        rule.end()?;
        ended.and(hit)?;
        self.works()
    }

    /// The client's transfer fails by a rule, and afterwards everything works.
    fn failure(&self, rule: &str) -> Result<()> {
        let before = registration(self.client)?;
        let [client, server] = self.transfer()?;
        let armed = self.arm(rule)?;
        armed.hits()?;
        armed.end()?;
        if rule.starts_with("fail-device") {
            recovers(self.client, before)?;
            stop(client)?;
        } else {
            fails(client)?;
        }
        stop(server)?;
        self.works()
    }

    /// All messages arrive although the client's link goes down.
    fn flap(&self) -> Result<()> {
        let before = counter(self.client, "link_downed")?;
        let sent = counter(self.client, "tx_pkts")? + 100;
        let programs = self.messages("")?;
        // The programs have connected by TCP, which the link also carries.
        settles(self.client, &format!("[ $(cat {COUNTERS}/tx_pkts) -gt {sent} ]"), 60)?;
        let script = "printf 'link set eth0 down\\nlink set eth0 up\\n' | ip -b -";
        for n in 1..=FLAPS {
            self.client.check(script, SHORT_TIMEOUT)?;
            let down = format!("[ $(cat {COUNTERS}/link_downed) = {} ]", before + n);
            settles(self.client, &down, 30)?;
        }
        succeed(programs)?;
        self.works()
    }

    fn kill(&self, server: bool) -> Result<()> {
        let [calling, serving] = self.transfer()?;
        if server {
            stop(serving)?;
            fails(calling)?;
        } else {
            stop(calling)?;
            stop(serving)?;
        }
        self.works()
    }

    /// Everything works after a disturbance, which may have come in the middle of a transfer.
    fn disturbed(&self, busy: bool, disturb: impl FnOnce(&Guest) -> Result<()>) -> Result<()> {
        let programs = if busy { Some(self.transfer()?) } else { None };
        disturb(self.client)?;
        programs.into_iter().flatten().try_for_each(|program| stop(program).map(drop))?;
        self.works()
    }

    fn power_cut(&mut self) -> Result<()> {
        let [_, server] = self.transfer()?;
        self.client.kill();
        // The client's requests were under way; the server is only their target.
        sleep(Duration::from_secs(1));
        stop(server)?;
        let setup = self.client.setup().clone();
        *self.client = Guest::boot(&Paths::from_env()?, self.accel, setup)?;
        plug(self.client)?;
        self.works()
    }

    /// The client's address moves to a bond and back, and works there.
    fn bond(&self) -> Result<()> {
        modules::load(self.client, &places::MODULES)?;
        let address = &self.client.setup().adapter.address;
        let script = format!(
            "ip link add bond8 type bond mode active-backup miimon 100 && \
             ip addr flush dev eth0 && ip link set eth0 down && ip link set eth0 master bond8 && \
             ip link set eth0 up && ip link set bond8 up && ip addr add {address} dev bond8"
        );
        self.client.check(&script, SHORT_TIMEOUT)?;
        self.server.check("ip neigh flush all", SHORT_TIMEOUT)?;
        let (client, server) = (Place::host(self.client), Place::host(self.server));
        self.client.check(&format!("ping -c 2 -W 5 {}", server.ip), LONG_TIMEOUT)?;
        let talked = talk(&server, &client, None);
        self.client.check("ip link del bond8", SHORT_TIMEOUT)?;
        self.server.check("ip neigh flush all", SHORT_TIMEOUT)?;
        netdev_up(self.client)?;
        talked?;
        ready(self.client)?;
        self.works()
    }
}

/// Plugs the adapter into a guest, and loads its driver.
pub(crate) fn plug(guest: &Guest) -> Result<()> {
    guest.plug()?;
    load_module(guest)
}

/// A rule of a daemon.
struct Rule<'a> {
    daemon: &'a Daemon,
    number: String,
}

impl Rule<'_> {
    /// Waits until it has hit.
    fn hits(&self) -> Result<()> {
        let wait = ["fault", "wait", &self.number, "--timeout", "60"];
        self.daemon.ask(&wait).map(drop).context("the rule does not hit")
    }

    fn end(&self) -> Result<()> {
        self.daemon.ask(&["fault", "clear", &self.number]).map(drop)
    }
}

/// Waits until both programs have ended, and checks that all messages were right.
fn succeed(programs: [Running; 2]) -> Result<()> {
    for program in programs {
        let text = program.wait(SLOW)?;
        let fine = text.ok() && !said(&text).contains("invalid data");
        ensure!(fine, "a program failed: {}", said(&text));
    }
    Ok(())
}

/// Checks that a program fails in time, by a failed completion.
fn fails(program: Running) -> Result<()> {
    let output = program.wait(SHORT_TIMEOUT).context("a program whose request failed hangs")?;
    let text = said(&output);
    ensure!(!output.ok() && text.contains("status"), "no failed completion in: {text}");
    Ok(())
}
