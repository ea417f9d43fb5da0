//! `scripts/lab`: a program from outside of this project, in guests that the script boots.
//!
//! Shows: tools
//!
//! | module | contents |
//! | --- | --- |
//! | [`action`] | the same as a step of a job |
//! | [`disks`] | guests that start from a disk of the user |
//! | [`faults`] | faults during a program |
//! | [`people`] | shells, guests that are kept, networks outside |
//! | [`refused`] | what is refused before a guest boots |
//! | [`results`] | what a run leaves, and faults of kernels |
//! | [`roots`] | commands in the root of a container |

mod action;
mod disks;
mod faults;
mod people;
mod refused;
mod results;
mod roots;

use std::fs;
use std::process::{Command, Output};

use anyhow::{Result, ensure};
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::repository::script::{run, said, top, with_figures};

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    Ok(Suite::alone(vec![
        Case::alone("perftest_with_its_server_in_the_peer", perftest),
        Case::alone("the_status_of_a_command_that_fails", failure),
        Case::alone("a_guest_that_is_gone_leaves_its_logs", gone),
        Case::alone("times_are_refused_without_kvm", timing),
        Case::alone("packages_have_names_of_packages", names),
        Case::alone("what_cannot_run_is_refused_before_a_guest_boots", refused::before_boot),
        Case::alone("an_expression_that_is_none_is_refused", refused::expressions),
        Case::alone("guests_have_the_examples", examples),
        Case::alone("a_guest_alone_leaves_results", results::alone),
        Case::alone("an_ended_run_saves_its_results", results::ended),
        Case::alone("a_warning_of_a_kernel_fails_the_run", results::warning),
        Case::alone("perftest_in_the_root_of_an_image", roots::image),
        Case::alone("a_static_program_in_an_empty_root", roots::folder),
        Case::alone("perftest_in_systems_of_a_disk", disks::whole),
        Case::alone("a_disk_without_a_system", disks::empty),
        Case::alone("faults_must_hit", faults::must_hit),
        Case::alone("a_scenario_holds_or_fails", faults::scenario),
        Case::alone("a_python_program_sets_faults", faults::python),
        Case::alone("a_shell_in_a_terminal", people::shell),
        Case::alone("guests_are_kept_beside_another_lab", people::kept),
        Case::alone("a_network_outside_of_the_lab", people::uplink),
        Case::alone("the_action_runs_perftest", action::perftest),
        Case::alone("the_action_fails_as_its_command", action::failure),
    ]))
}

/// Returns the command with these options.
pub(crate) fn command(options: &[&str]) -> Result<Command> {
    let mut command = Command::new(top()?.join("scripts/lab"));
    command.args(options);
    Ok(command)
}

/// Runs the script.
pub(crate) fn lab(options: &[&str]) -> Result<Output> {
    run(&mut command(options)?)
}

/// Guests have the examples of the direct verbs, also if nothing but scripts/lab has ever built.
fn examples() -> Result<()> {
    let names = ["command", "echo", "files", "poster", "proxy", "switch"];
    let names = names.map(|name| format!("vrnicdv_{name}"));
    for name in &names {
        let file = top()?.join("build").join(name);
        if file.exists() {
            fs::remove_file(file)?;
        }
    }
    let look = names.map(|name| format!("command -v {name}")).join(" && ");
    let ran = lab(&["--guests", "1", "--", &look])?;
    ensure!(ran.status.success(), "{}", said(&ran));
    Ok(())
}

/// A script of a copied folder runs perftest with the server in the peer, and keeps its table.
fn perftest() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (copied, kept) = (folder.path().join("copied"), folder.path().join("kept"));
    fs::create_dir(&copied)?;
    let script = "set -e\nib_write_bw -d $VRNIC_DEVICE $1 $VRNIC_PEER | tee $VRNIC_OUTPUT/table\n\
                  ping -c 1 $VRNIC_PEERS >/dev/null\n";
    fs::write(copied.join("measure.sh"), script)?;
    let (from, to) = (copied.to_string_lossy(), kept.to_string_lossy());
    let options =
        ["--memory", "512M", "--copy", &from, "--output", &to, "--peer", "ib_write_bw -n 100"];
    let options = [&options[..], &["--", "sh", "measure.sh", "-n 100"]].concat();
    let ran = with_figures(|| lab(&options))?;
    ensure!(ran.status.success(), "{}", said(&ran));
    let table = fs::read_to_string(kept.join("a/table"))?;
    ensure!(table.contains("BW average") && table.contains(" 65536 "), "no table: {table}");
    ensure!(String::from_utf8_lossy(&ran.stdout) == table, "not what was printed: {}", said(&ran));
    let report = fs::read_to_string(kept.join("report.txt"))?;
    ensure!(report.contains("--- guest b"), "no logs: {report}");
    Ok(())
}

/// If the command fails, the script exits with its status, also over iWARP. A server that does not
/// end is not a failure.
fn failure() -> Result<()> {
    let command = "rping -c -C 3 -v -a $VRNIC_PEER && exit 42";
    let options = ["--memory", "768M", "--personality", "iwarp", "--peer", "rping -s -P"];
    let ran = lab(&[&options[..], &["--", command]].concat())?;
    let text = said(&ran);
    ensure!(ran.status.code() == Some(42), "not the command's status: {text}");
    ensure!(text.contains("ping data: rdma-ping-2"), "rping exchanged nothing: {text}");
    Ok(())
}

/// If guest a ends while its command runs, the logs and the files of guest b are still kept.
fn gone() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let kept = folder.path().join("kept");
    let options = ["--memory", "512M", "--output", &kept.to_string_lossy()];
    let peer = ["--peer", "echo kept >$VRNIC_OUTPUT/file"];
    let junit = folder.path().join("junit.xml").to_string_lossy().into_owned();
    // The guest does not reboot after a crash, but ends. Its console shows more than it would.
    let command = ["--", "dmesg -n 8; echo c >/proc/sysrq-trigger; sleep 600"];
    let files = ["--junit", &junit];
    let ran = lab(&[&options[..], &files, &peer, &command].concat())?;
    let text = said(&ran);
    ensure!(ran.status.code() == Some(125), "{text}");
    ensure!(text.contains("guest a has ended") && text.contains("crash"), "no log's end: {text}");
    let junit = fs::read_to_string(folder.path().join("junit.xml"))?;
    ensure!(junit.contains("message=\"guest a has ended\""), "no failure: {junit}");
    let report = fs::read_to_string(kept.join("report.txt"))?;
    ensure!(report.contains("--- guest b"), "no logs: {report}");
    ensure!(fs::read(kept.join("b/file"))? == b"kept\n", "no file: {text}");
    Ok(())
}

/// Without KVM, no guest boots for a command whose time should be measured.
fn timing() -> Result<()> {
    let ran = run(command(&["--timing", "--", "true"])?.env("VRNIC_ACCEL", "tcg"))?;
    let text = said(&ran);
    ensure!(ran.status.code() == Some(125) && text.contains("not under KVM"), "{text}");
    ensure!(!text.contains("booting"), "a guest was booted: {text}");
    Ok(())
}

/// A name that apt would interpret as an option is refused.
fn names() -> Result<()> {
    let ran = lab(&["--package", "-oDebug=1", "--", "true"])?;
    let text = said(&ran);
    ensure!(
        ran.status.code() == Some(1) && text.contains("not the name of a Debian package"),
        "{text}"
    );
    Ok(())
}
