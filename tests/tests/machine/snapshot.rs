//! Guests that start from a snapshot: what must differ between them does, and one that cannot start
//! from its snapshot boots.
//!
//! Shows: tools

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::machine::paths::Paths;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::{SHORT_TIMEOUT, works};
use vrnic_tests::harness::{Case, Suite};

/// Maximum difference between the clocks of a guest and of this machine.
const CLOCK: Duration = Duration::from_secs(10);
/// The port of a service.
const PORT: u16 = 18517;
/// A part of the parameters of the kernel of a guest of which a snapshot is made.
const TEMPLATE: &str = "hostname=snapshot";

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let cases = vec![
        Case::new("the_guests_start_from_a_snapshot", |pair| {
            [&pair.a, &pair.b].into_iter().try_for_each(restored)
        }),
        Case::new("random_numbers_differ", |pair| random(pair)),
        Case::new("keys_of_tcp_differ", |pair| ports(pair)),
        Case::new("each_has_its_name_its_address_and_the_time", |pair| {
            [&pair.a, &pair.b].into_iter().try_for_each(own)
        }),
        Case::new("rdma_between_them", |pair| works(pair)),
        Case::alone("a_guest_boots_if_its_snapshot_does_not_work", damaged),
    ];
    Ok(Suite::new(Options::default(), cases))
}

fn restored(guest: &Guest) -> Result<()> {
    let line = guest.check("cat /proc/cmdline", SHORT_TIMEOUT)?;
    ensure!(line.contains(TEMPLATE), "guest {} has booted: {line}", guest.setup().name);
    Ok(())
}

/// The kernels' random numbers, and what is made of them.
fn random(pair: &Pair) -> Result<()> {
    for guest in [&pair.a, &pair.b] {
        let noticed = "dmesg | grep 'crng reseeded due to virtual machine fork'";
        guest
            .check(noticed, SHORT_TIMEOUT)
            .context("the kernel does not know that it was copied")?;
    }
    let sources = [
        "head -c 32 /dev/urandom | od -An -tx1",
        "cat /proc/sys/kernel/random/uuid",
        "cat /proc/sys/kernel/random/boot_id",
        "mktemp -u",
        "sh -c 'exec cat /proc/self/maps' | tail -n 3",
    ];
    for source in sources {
        let [a, b] = [&pair.a, &pair.b].map(|guest| guest.check(source, SHORT_TIMEOUT));
        let (a, b) = (a?, b?);
        ensure!(a != b, "in both guests, {source} prints {a}");
    }
    let machine = "cat /etc/machine-id /var/lib/dbus/machine-id 2>/dev/null || true";
    let [a, b] = [&pair.a, &pair.b].map(|guest| guest.check(machine, SHORT_TIMEOUT));
    let (a, b) = (a?, b?);
    ensure!(a.is_empty() || a != b, "both guests have the machine id {a}");
    Ok(())
}

/// The key from which TCP makes its first sequence numbers also chooses the ports of clients. With
/// the same key, the first connections to a service have the same ones.
fn ports(pair: &Pair) -> Result<()> {
    let client = |guest: &Guest| {
        let server = guest.agent().start(&format!("exec ib_send_bw -p {PORT}"))?;
        guest.listens_on(PORT)?;
        // The connections to the port, each with its client first.
        let script = format!(
            "bash -c 'exec 3<>/dev/tcp/127.0.0.1/{PORT}; cat /proc/net/tcp' | \
             awk '$3 ~ /:{PORT:04X}$/ {{ print $2 }}'"
        );
        let client = guest.check(&script, SHORT_TIMEOUT)?;
        server.kill()?;
        anyhow::Ok(client)
    };
    let (a, b) = (client(&pair.a)?, client(&pair.b)?);
    ensure!(!a.trim().is_empty() && a != b, "the clients of the guests are '{a}' and '{b}'");
    Ok(())
}

fn own(guest: &Guest) -> Result<()> {
    let setup = guest.setup();
    let name = guest.check("hostname", SHORT_TIMEOUT)?;
    ensure!(name.trim() == setup.name, "guest {} has the name {name}", setup.name);
    let mac = guest.check("cat /sys/class/net/eth0/address", SHORT_TIMEOUT)?;
    ensure!(mac.trim() == setup.adapter.mac, "its network card has the address {mac}");
    let time: u64 = guest.check("date +%s", SHORT_TIMEOUT)?.trim().parse()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let apart = now.abs_diff(Duration::from_secs(time));
    ensure!(apart < CLOCK, "its clock is {apart:?} from that of this machine");
    Ok(())
}

/// A snapshot that was cut short: the guest boots, and the next one does not try.
fn damaged() -> Result<()> {
    let paths = Paths::from_env()?;
    let cache = tempfile::tempdir()?;
    // So that KVM is not tried again.
    let _untried = fs::copy(paths.cache.join("accel"), cache.path().join("accel"));
    let lab = || -> Result<(String, String)> {
        let output = Command::new(paths.bin.join("vrnic-lab"))
            .args(["--guests", "1", "--", "cat", "/proc/cmdline"])
            .env("VRNIC_CACHE", cache.path())
            .env_remove("VRNIC_SNAPSHOT")
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "the lab failed: {said}");
        Ok((String::from_utf8_lossy(&output.stdout).into_owned(), said))
    };
    let (line, said) = lab()?;
    ensure!(line.contains(TEMPLATE) && said.contains("making a snapshot"), "{line}{said}");
    let file = only_snapshot(&cache.path().join("snapshots"))?;
    let length = fs::metadata(&file)?.len();
    File::options().write(true).open(&file)?.set_len(length / 4)?;
    let (line, said) = lab()?;
    ensure!(!line.contains(TEMPLATE), "it started from a quarter of its snapshot: {said}");
    ensure!(said.contains("does not start from the snapshot, so it boots"), "{said}");
    let (line, said) = lab()?;
    ensure!(!line.contains(TEMPLATE) && said.contains("an earlier guest could not"), "{said}");
    Ok(())
}

fn only_snapshot(folder: &Path) -> Result<PathBuf> {
    let mut files = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    files.find(|file| file.extension().is_some_and(|it| it == "ram")).context("no snapshot")
}
