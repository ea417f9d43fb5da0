//! The daemon's package: its service under systemd, in guest a.
//!
//! Shows: tools

use anyhow::{Context, Result, ensure};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::Pair;
use vrnic_tests::commands::{LONG_TIMEOUT, SHORT_TIMEOUT, settles};

use super::packages::{apt, need};

/// Returns the definition, as `vrnic` takes it, of a function of the daemon with this name and
/// sockets in this folder.
fn function(name: &str, number: u8, folder: &str) -> String {
    format!(
        "name={name},mac=52:54:00:00:01:{number:02x},socket={folder}/{name}.sock,net={folder}/{name}.net"
    )
}

/// Returns the definition of the same function in a file of settings.
fn table(name: &str, number: u8, folder: &str) -> String {
    let fields = function(name, number, folder);
    let lines = fields.split(',').map(|field| field.replacen('=', " = \"", 1) + "\"\n");
    format!("[[function]]\n{}", lines.collect::<String>())
}

/// Tests the start, commands, a reload, a second daemon and the end, in the sandbox of the units.
pub(crate) fn service(pair: &mut Pair) -> Result<()> {
    let guest = &pair.a;
    need(guest, "vrnicd")?;
    // The service may take 70 s to stop (`TimeoutStopSec`).
    let run = |script: &str| guest.check(script, LONG_TIMEOUT);
    run("! systemctl is-active vrnicd && systemctl enable --now vrnicd")?;
    confined(guest, "vrnicd")?;

    run(&format!("vrnic function add {}", function("a", 1, "/run/vrnic")))?;
    shows(guest, "", "a")?;
    let modes = run("stat -c %a:%G /run/vrnic/a.sock /run/vrnic/a.net")?;
    ensure!(modes.lines().all(|line| line == "660:kvm"), "QEMUs cannot connect: {modes}");

    run(&format!("printf %s '{}' >>/etc/vrnic/vrnicd.toml", table("b", 2, "/run/vrnic")))?;
    let pid = run("systemctl show -P MainPID vrnicd")?;
    run("systemctl reload vrnicd")?;
    shows(guest, "", "b")?;
    ensure!(run("systemctl show -P MainPID vrnicd")? == pid, "a reload started the daemon again");

    let settings = "sed -e 's|/run/vrnic/|/run/vrnic-x/|' -e '/^\\[\\[/,$d' /etc/vrnic/vrnicd.toml";
    run(&format!("{settings} >/etc/vrnic/x.toml"))?;
    run(&format!("printf %s '{}' >>/etc/vrnic/x.toml", table("c", 3, "/run/vrnic-x")))?;
    run("systemctl enable --now vrnicd@x")?;
    confined(guest, "vrnicd@x")?;
    shows(guest, "--monitor /run/vrnic-x/monitor.sock", "c")?;

    run("systemctl stop vrnicd && systemctl is-active vrnicd@x")?;
    ensure!(run("systemctl show -P Result vrnicd")?.trim() == "success", "the end was a failure");
    run("! test -e /run/vrnic && systemctl restart vrnicd")?;
    // The restarted daemon has the functions of the file, but not those that commands have added.
    shows(guest, "", "b")?;
    run("! vrnic show function --function a")?;
    Ok(())
}

/// Checks that a service runs as a user without capabilities, and answers systemd's watchdog.
fn confined(guest: &Guest, unit: &str) -> Result<()> {
    guest.check(&format!("systemctl is-active {unit}"), SHORT_TIMEOUT)?;
    let process = format!("/proc/$(systemctl show -P MainPID {unit})");
    let status =
        guest.check(&format!("cat {process}/status; stat -c %G {process}"), SHORT_TIMEOUT)?;
    let has = |line: &str| status.lines().any(|found| found == line);
    ensure!(has("CapEff:\t0000000000000000") && has("NoNewPrivs:\t1") && has("kvm"), "{status}");
    ensure!(!has("Uid:\t0\t0\t0\t0"), "the daemon runs as root");
    Ok(())
}

/// Checks that a daemon shows a function.
fn shows(guest: &Guest, options: &str, name: &str) -> Result<()> {
    guest
        .check(&format!("vrnic {options} show function --function {name}"), SHORT_TIMEOUT)
        .with_context(|| format!("function {name}"))
        .map(drop)
}

/// The daemon notifies systemd that it still runs. systemd restarts a daemon that is stopped.
pub(crate) fn watchdog(pair: &mut Pair) -> Result<()> {
    let guest = &pair.a;
    need(guest, "vrnicd")?;
    let run = |script: &str| guest.check(script, LONG_TIMEOUT);
    let short = "/run/systemd/system/vrnicd.service.d";
    run(&format!("mkdir -p {short}; printf '[Service]\nWatchdogSec=15\n' >{short}/short.conf"))?;
    run("systemctl daemon-reload; systemctl restart vrnicd; systemctl reset-failed")?;
    let pid = run("systemctl show -P MainPID vrnicd")?;
    run("sleep 40")?;
    ensure!(run("systemctl show -P MainPID vrnicd")? == pid, "the daemon was started again");
    run(&format!("kill -STOP {pid}"))?;
    let pid = pid.trim();
    let again = format!(
        "[ \"$(systemctl show -P MainPID vrnicd)\" -gt 0 ] && \
        [ \"$(systemctl show -P MainPID vrnicd)\" != {pid} ] && systemctl is-active vrnicd"
    );
    settles(guest, &again, 90)?;
    ensure!(run("systemctl show -P NRestarts vrnicd")?.trim() == "1", "not one restart");
    run(&format!("rm -r {short}; systemctl daemon-reload; systemctl restart vrnicd"))?;
    Ok(())
}

/// A removal of the package ends all daemons. After a purge no file is left.
pub(crate) fn purge(pair: &mut Pair) -> Result<()> {
    let guest = &pair.a;
    need(guest, "vrnicd")?;
    let settings = "sed 's|/run/vrnic/|/run/vrnic-y/|' /etc/vrnic/vrnicd.toml >/etc/vrnic/y.toml";
    guest.check(&format!("{settings}; systemctl enable --now vrnicd vrnicd@y"), SHORT_TIMEOUT)?;
    apt(guest, "remove vrnicd")?;
    guest.check("! pgrep -x vrnicd && test -e /etc/vrnic/vrnicd.toml", SHORT_TIMEOUT)?;
    apt(guest, "purge vrnicd")?;
    let left = "find / -xdev -iname '*vrnicd*' ! -path '/var/log/*' ! -path '/var/lib/apt/*'";
    guest.check(&format!("! {left} | grep . && ! test -e /usr/bin/vrnic"), SHORT_TIMEOUT)?;
    guest.check(
        "! systemctl list-units --all --plain --type service | grep vrnicd",
        SHORT_TIMEOUT,
    )?;
    // The files that these tests have written themselves.
    guest.check("rm /etc/vrnic/?.toml && rmdir /etc/vrnic", SHORT_TIMEOUT)?;
    Ok(())
}
