//! The start of a guest from a snapshot: the machine's state, its adapters and network cards, and
//! then what is its own: files, name, time.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use vrnic_abi::pci::{DEVICE_ID, VENDOR_ID};

use crate::agent::Agent;
use crate::qmp::Qmp;
use crate::setup::Setup;

/// Command of QEMU after which a migration writes each page to a place of its own in the file.
const MAPPED: &str = r#"{"execute":"migrate-set-capabilities","arguments":{"capabilities":[{"capability":"mapped-ram","state":true}]}}"#;
/// Time between two looks at a migration.
const LOOKING: Duration = Duration::from_millis(5);
/// Time limit for reading a snapshot.
const READING: Duration = Duration::from_secs(60);
/// Time limit for a command in the guest.
const COMMAND: Duration = Duration::from_secs(60);
/// What a guest shows as the kind of a virtio device that is a file system (9P).
const FILE_SYSTEM: &str = "0x0009";
/// A shell function that waits until a command succeeds.
const UNTIL: &str = "until_so() { for n in $(seq 1500); do eval \"$1\" 2>/dev/null && return; sleep 0.02; done; \
                     echo \"not so within 30 s: $1\"; exit 1; }";

/// A snapshot from which a guest does not start, whatever else happens.
#[derive(Debug)]
pub(crate) struct Unfit;

impl fmt::Display for Unfit {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("the snapshot cannot be used")
    }
}

/// Reads the snapshot into a QEMU that waits for it, and lets the machine go on, with its first
/// adapter. The agent's port must be connected before, so that the guest does not notice a change.
/// Returns the connection.
///
/// # Errors
/// If QEMU refuses it.
pub(crate) fn load(setup: &Setup, file: &Path) -> Result<Qmp> {
    let mut qmp = Qmp::connect_early(&setup.qmp_socket())?;
    migrate(&mut qmp, "migrate-incoming", file, READING).context("reading the snapshot")?;
    for command in setup.plugging().iter().take(1).flatten() {
        qmp.run(command)?;
    }
    qmp.run(r#"{"execute":"cont"}"#)?;
    Ok(qmp)
}

/// Gives a guest that goes on from a snapshot its files, its name, the time, and its other devices.
///
/// # Errors
/// If that fails, or the guest does not find a device.
pub(crate) fn complete(setup: &Setup, qmp: &mut Qmp, agent: &Agent, overlay: &Path) -> Result<()> {
    agent.unpack(overlay)?;
    for (number, commands) in setup.plugging().iter().enumerate() {
        let mut script = format!("{UNTIL}; set -e; ");
        if number == 0 {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let (seconds, nanos) = (now.as_secs(), now.subsec_nanos());
            script +=
                &format!("date -s @{seconds}.{nanos:09} >/dev/null; hostname {}; ", setup.name);
        } else {
            commands.iter().try_for_each(|command| qmp.run(command).map(drop))?;
        }
        agent.check(&(script + &found(setup, number)), COMMAND)?;
    }
    Ok(())
}

/// Returns shell commands that wait until a guest has found adapter `number` and its network card,
/// or a second card of the first adapter.
fn found(setup: &Setup, number: usize) -> String {
    let Some(adapter) = setup.adapters().nth(number) else {
        return format!("until_so '[ -e /sys/class/net/eth{number} ]'");
    };
    let count = format!(
        "[ $(cd /sys/bus/pci/devices; for d in *; do read v <$d/vendor; read i <$d/device; echo $v:$i; done | \
         grep -c 0x{VENDOR_ID:04x}:0x{DEVICE_ID:04x}) -gt {number} ]"
    );
    let mut script = format!(
        "until_so 'grep -qi {} /sys/class/net/eth{number}/address'; until_so '{count}'",
        adapter.mac
    );
    if number == 0 && setup.share.is_some() {
        script += &format!("; until_so 'grep -qx {FILE_SYSTEM} /sys/bus/virtio/devices/*/device'");
    }
    script
}

/// Moves the state of a machine to a file, with the command `migrate`, or from it, with
/// `migrate-incoming`.
///
/// # Errors
/// If QEMU refuses or fails, or does not complete it within `timeout`.
pub(crate) fn migrate(qmp: &mut Qmp, command: &str, file: &Path, timeout: Duration) -> Result<()> {
    qmp.run(MAPPED)?;
    let uri = format!("file:{}", file.display());
    qmp.run(&json!({"execute": command, "arguments": {"uri": uri}}).to_string())?;
    let end = Instant::now() + timeout;
    loop {
        let answer = qmp.run(r#"{"execute":"query-migrate"}"#)?;
        match answer["status"].as_str() {
            Some("completed") => return Ok(()),
            Some("failed") => bail!("QEMU did not move the guest's state: {answer}"),
            _ => ensure!(Instant::now() < end, "moving the guest's state took too long"),
        }
        std::thread::sleep(LOOKING);
    }
}
