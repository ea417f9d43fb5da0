//! The steps of `ci/action.yml`, as a job of a forge runs them.
//!
//! Shows: tools

use std::cell::RefCell;
use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use vrnic_tests::repository::forge::{Machine, packed};
use vrnic_tests::repository::script::{said, with_figures};

/// A job copies a script with a space in its name, and keeps the files that the script has written.
/// Its page has a table of the commands. The forge keeps the cache at its end, and a later job on
/// another machine starts with it.
pub(crate) fn perftest() -> Result<()> {
    let store = tempfile::tempdir()?;
    let machine = Machine::new()?.with_cache()?;
    fs::create_dir(machine.work.join("mine"))?;
    let script = "ib_write_bw -n 100 $VRNIC_PEER | tee $VRNIC_OUTPUT/table\n";
    fs::write(machine.work.join("mine/a test.sh"), script)?;
    let given = [
        ("command", "sh 'a test.sh' && test \"$(uname -n)\" = a"),
        ("peer", "ib_write_bw -n 100"),
        ("copy", "mine"),
        ("memory", "512M"),
        ("pcap", "true"),
    ];
    let seen = RefCell::default();
    let ran = with_figures(|| {
        let _of_a_failed_attempt = fs::remove_file(machine.home("page.md"));
        let done = machine.act(store.path(), &given)?;
        seen.replace((done.steps, done.page));
        Ok(done.last)
    })?;
    ensure!(ran.status.success(), "{}", said(&ran));
    let (steps, page): (Vec<String>, String) = seen.into_inner();
    ensure!(steps == ["kvm", "key", "unpack", "lab", "pack"], "the steps were {steps:?}");
    let kept = |file: &str| machine.work.join("vrnic-output").join(file);
    let table = fs::read_to_string(kept("a/table"))?;
    ensure!(table.contains("BW average") && table.contains(" 65536 "), "no table: {table}");
    ensure!(page.contains("| a | `sh 'a test.sh'") && page.contains("| passed |"), "{page}");
    let junit = fs::read_to_string(kept("junit.xml"))?;
    ensure!(junit.contains("failures=\"0\""), "{junit}");
    ensure!(fs::metadata(kept("traffic.pcapng"))?.len() > 10_000, "no traffic was captured");
    let names = packed(store.path())?;
    ensure!(names.iter().any(|name| name.contains("toolroot")), "the forge keeps {names:?}");
    later(store.path())
}

/// A job whose machine has only what the forge has kept. It does not keep that again.
fn later(store: &Path) -> Result<()> {
    let machine = Machine::new()?;
    let given = [("command", "ibv_devices | grep -c vrnic"), ("guests", "1"), ("memory", "512M")];
    let done = machine.act(store, &given)?;
    ensure!(done.last.status.success(), "{}", said(&done.last));
    ensure!(done.steps == ["kvm", "key", "unpack", "lab"], "the steps were {:?}", done.steps);
    ensure!(!machine.home(".cache/vrnic-action.tar").exists(), "the archive is still there");
    ensure!(!said(&done.last).contains("guest 1/3"), "an image was made: {}", said(&done.last));
    Ok(())
}

/// The job fails with the command's status. Only the guest's shell interprets the text of the
/// command. The forge keeps nothing of a job that fails.
pub(crate) fn failure() -> Result<()> {
    let store = tempfile::tempdir()?;
    let machine = Machine::new()?.with_cache()?;
    let command = "ibv_devices | grep -c 0 >$VRNIC_OUTPUT/devices; exit $((40 + 3))";
    let done = machine.act(store.path(), &[("command", command), ("output", "kept here")])?;
    let text = said(&done.last);
    ensure!(done.last.status.code() == Some(43), "not the command's status: {text}");
    ensure!(done.steps == ["kvm", "key", "unpack", "lab"], "the steps were {:?}", done.steps);
    let devices = fs::read_to_string(machine.work.join("kept here/a/devices"))?;
    ensure!(devices.trim() == "1", "not one device: {devices}");
    ensure!(
        done.page.contains("the command ended with 43"),
        "the page has no failure: {}",
        done.page
    );
    ensure!(packed(store.path())?.is_empty(), "the forge keeps something");
    Ok(())
}
