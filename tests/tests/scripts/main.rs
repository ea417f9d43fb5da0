//! Tests of the messages that scripts print before they install or build anything. The path for
//! their cache is one where no folder can be made, so a script that begins its set-up fails without
//! changing this machine.
//!
//! Shows: tools
//!
//! | module | what it tests |
//! | --- | --- |
//! | [`action`] | the action for forges |
//! | [`commits`] | what `scripts/check-commits` says of messages |
//! | [`debug`] | the configuration of the kernel with KASAN and lockdep |
//! | [`help`] | what `--help` and `-h` print |
//! | [`lints`] | lints that run while tests do |
//! | [`packages`] | what `scripts/package` makes, refuses and removes |
//! | [`paths`] | what `scripts/lab` refuses: files, folders, rules |
//! | [`prebuilt`] | the option `--prebuilt` |
//! | [`prepared`] | whether a script builds something |
//! | [`release`] | what a release needs |

mod action;
mod commits;
mod debug;
mod help;
mod lints;
mod packages;
mod paths;
mod prebuilt;
mod prepared;
mod release;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use vrnic_tests::repository::script::{run, said, top};

/// A folder in which no user can make files, not even root.
const NO_CACHE: &str = "/proc/vrnic";

/// Returns a command without the settings that the script of this test run has given to its own
/// commands, and without git's.
fn plain(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    let of_scripts = |name: &OsString| {
        let name = name.as_encoded_bytes();
        name.starts_with(b"VRNIC_") || name.starts_with(b"GIT_")
    };
    for name in env::vars_os().map(|(name, _)| name).filter(of_scripts) {
        command.env_remove(name);
    }
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    command
}

/// Runs a script of the clone. Returns its exit status and what it prints.
fn script(name: &str, arguments: &[&str]) -> Result<(Option<i32>, String)> {
    let mut command = plain(top()?.join("scripts").join(name));
    let output = run(command.args(arguments).env("VRNIC_CACHE", NO_CACHE))?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.code(), String::from_utf8_lossy(&text).into_owned()))
}

/// Checks that a script fails with a sentence that contains this text, and does nothing before
/// that.
fn refuses(name: &str, arguments: &[&str], part: &str) -> Result<()> {
    let (status, text) = script(name, arguments)?;
    let failure = format!("{name} {arguments:?} ended with {status:?} and said:\n{text}");
    ensure!(matches!(status, Some(1 | 2)) && text.contains(part), "{failure}");
    ensure!(text.lines().count() == 1 && text.starts_with("error: "), "{failure}");
    Ok(())
}

#[test]
fn failed_tests_are_shown_at_the_end() -> Result<()> {
    let long: String = (1..=100).map(|n| format!("line {n}\n")).collect();
    let log = format!(
        "test a ... ok\n\nfailures:\n\n---- b stdout ----\nshort\n\n---- c ----\n{long}\n\nfailures:\n    \
         b\n    c\n\ntest result: FAILED. 1 passed; 2 failed\ntest d ... ok\n"
    );
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("tests.log");
    fs::write(&file, log)?;
    let script = format!(". scripts/lib/failures.sh; print_failures '{}'", file.display());
    let output = run(Command::new("bash").args(["-c", &script]).current_dir(top()?))?;
    let shown = String::from_utf8(output.stdout)?;
    let lines: Vec<_> = shown.lines().collect();
    ensure!(
        lines.starts_with(&["---- b stdout ----", "short", "", "---- c ----", "line 1"]),
        "{shown}"
    );
    ensure!(lines.contains(&"line 10") && !lines.contains(&"line 11"), "{shown}");
    ensure!(lines.contains(&"line 100") && !lines.contains(&"line 70"), "{shown}");
    ensure!(!shown.contains("test"), "{shown}");
    Ok(())
}

#[test]
fn images_replace_no_files_of_others() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (kept, into) = (folder.path().join("kept.txt"), folder.path().to_string_lossy());
    fs::write(&kept, "mine")?;
    refuses("image", &["--into", &into], "is not empty, and is not an image")?;
    refuses("image", &["--into", &kept.to_string_lossy()], "ends in .tar")?;
    refuses("image", &["--into", "/"], "this machine's files")?;
    ensure!(fs::read(&kept)? == b"mine", "the file has changed");
    Ok(())
}

/// Runs shell text with the functions of these script files. Returns what it prints.
fn functions(files: &[&str], text: &str, cache: &Path) -> Result<String> {
    let sources: String = ["common", "build"]
        .iter()
        .chain(files)
        .map(|file| format!(". scripts/lib/{file}.sh\n"))
        .collect();
    let mut command = plain("bash");
    let command = command.args(["-euc", &(sources + text)]).current_dir(top()?);
    let output = run(command.env("VRNIC_CACHE", cache))?;
    let text = [output.stdout, output.stderr].concat();
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Runs the check of the machine with one of its commands replaced. Returns what it prints.
fn machine(command: &str) -> Result<String> {
    // Root, Rust and room are available unless the replaced command says otherwise.
    let there = "id() { echo 0; }; cargo() { :; }; rustc() { echo 'rustc 9.0.0 (x)'; }; check_space() { :; }";
    functions(
        &["checks"],
        &format!("{there}\n{command}\ncheck_machine; echo done"),
        Path::new(NO_CACHE),
    )
}

#[test]
fn a_machine_that_lacks_something_is_told_so_in_a_sentence() -> Result<()> {
    for (command, part) in [
        ("uname() { echo aarch64; }", "for x86-64"),
        ("VRNIC_TOP='/my clone'", "the path of this clone, '/my clone', has a space"),
        ("id() { echo 1000; }", "need root; use sudo env"),
        ("rustc() { echo 'rustc 1.85.0 (x)'; }", "Rust is 1.85.0, and vrnic needs 1.95 or later"),
        ("command() { [ \"$2\" != apt-get ]; }", "need Debian 12 or later"),
        ("command() { [ \"$2\" != cargo ]; }", "install Rust 1.95 or later"),
        ("VRNIC_ACCEL=hvf", "VRNIC_ACCEL is 'hvf'; it must be kvm or tcg"),
    ] {
        let text = machine(command)?;
        ensure!(text.starts_with("error: ") && text.contains(part), "{command}: {text}");
        ensure!(text.lines().count() == 1, "{command}: {text}");
    }
    for rustc in ["rustc 1.95.0 (x)", "rustc 1.100.0-nightly (x)"] {
        let text = machine(&format!("rustc() {{ echo '{rustc}'; }}"))?;
        ensure!(text == "done\n", "{rustc}: {text}");
    }
    Ok(())
}

/// The disk is looked at before a folder is made. The numbers are MiB that are left on it.
#[test]
fn a_disk_without_room_is_named() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let target = folder.path().join("target");
    let room = |cache: u32, clone: u32| {
        let text = format!(
            "df() {{ case $4 in *cache*) echo; echo one 1 1 {cache} ;; *) echo; echo two 1 1 {clone} ;; esac; }}
             mkdir -p \"$VRNIC_CACHE\"/cache; VRNIC_CACHE+=/cache; CARGO_TARGET_DIR='{}'
             VRNIC_BIN=$CARGO_TARGET_DIR/quick; check_space; echo done",
            target.display()
        );
        functions(&["checks"], &text, folder.path())
    };
    ensure!(room(5000, 1300)? == "done\n");
    let text = room(4999, 1300)?;
    ensure!(text.contains("5000 MiB on the disk") && text.contains("4999 MiB left"), "{text}");
    ensure!(text.contains("/cache has") && text.lines().count() == 1, "{text}");
    let text = room(5000, 1299)?;
    ensure!(text.contains("1300 MiB") && text.contains("/target has 1299 MiB left"), "{text}");
    fs::create_dir_all(target.join("quick"))?;
    fs::write(target.join("quick/vrnicd"), "")?;
    ensure!(room(5000, 0)? == "done\n");
    let shared = "df() { echo; echo one 1 1 6299; }; CARGO_TARGET_DIR=/none VRNIC_BIN=/none/quick; check_space";
    let text = functions(&["checks"], shared, folder.path())?;
    ensure!(text.contains("needs 6300 MiB on the disk"), "{text}");
    Ok(())
}

#[test]
fn a_suite_without_the_kernel_is_named() -> Result<()> {
    let text = "in_root() { echo linux-headers-6.12.1+deb13-amd64; }\n\
                VRNIC_KERNEL_SERIES=7.3; toolroot_headers /dev/null";
    let said = functions(&["toolroot"], text, Path::new(NO_CACHE))?;
    ensure!(said.contains("has no linux-headers-7.3.*-amd64 any more"), "{said}");
    Ok(())
}

#[test]
fn folders_of_the_cache_go_when_nobody_uses_them() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let text = "cd \"$VRNIC_CACHE\" && mkdir toolroot-new toolroot-used guest-old mine\n\
                touch -d '40 days ago' toolroot-used guest-old mine\n\
                cache_used toolroot-used absent; cache_tidy 2>/dev/null; ls";
    let said = functions(&["cache"], text, folder.path())?;
    ensure!(said == "mine\ntoolroot-new\ntoolroot-used\n", "{said}");
    Ok(())
}

#[test]
fn what_runs_in_the_background_ends_with_its_script() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let text = "job() { sleep 60 & echo $! >\"$VRNIC_CACHE/job\"; wait; }\n\
                background job; until [ -s \"$VRNIC_CACHE/job\" ]; do sleep 0.01; done; die ends";
    ensure!(functions(&[], text, folder.path())? == "error: ends\n");
    let job = fs::read_to_string(folder.path().join("job"))?;
    let state = || fs::read_to_string(format!("/proc/{}/stat", job.trim())).unwrap_or_default();
    // A process that was killed may be visible for a moment, as a zombie (Z).
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !state().is_empty() && !state().contains(") Z ") {
        ensure!(std::time::Instant::now() < end, "the child of the job goes on: {}", state());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Ok(())
}

/// The command of the script is started by another command, which gets no signal itself.
#[test]
fn a_script_that_a_signal_ends_says_so_and_ends_its_command() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let runs = folder.path().join("runs");
    let command = "sh -c 'echo >\"$VRNIC_CACHE/runs\"; sleep 60; true'; echo more";
    for (signal, part) in [
        (Signal::SIGTERM, "was ended by a signal"),
        (Signal::SIGINT, "was ended by SIGINT (Ctrl-C)"),
    ] {
        let text = format!(". scripts/lib/common.sh; {command}");
        // A program that a shell has started in the background ignores SIGINT.
        let mut script = plain("env");
        script.args(["--default-signal=INT", "bash", "-euc", &text]);
        script.current_dir(top()?).env("VRNIC_CACHE", folder.path());
        script.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let script = script.process_group(0).spawn()?;
        let end = Instant::now() + Duration::from_secs(10);
        while !runs.exists() {
            ensure!(Instant::now() < end, "the command does not run");
            std::thread::sleep(Duration::from_millis(10));
        }
        let process = Pid::from_raw(i32::try_from(script.id())?);
        // A terminal gives the signal of Ctrl-C to all processes of the group.
        match signal {
            Signal::SIGINT => killpg(process, signal)?,
            _ => kill(process, signal)?,
        }
        // The end of its output is the end of the command, too.
        let output = script.wait_with_output()?;
        let text = said(&output);
        ensure!(output.status.signal() == Some(signal as i32), "{text}");
        ensure!(text.contains(part) && !text.contains("more"), "{text}");
        fs::remove_file(&runs)?;
    }
    Ok(())
}

#[test]
fn scripts_that_build_the_same_take_turns() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let text = "job() { echo in; sleep 0.3; echo out; }\n\
                locked \"$VRNIC_CACHE/lock\" job 2>/dev/null & \
                locked \"$VRNIC_CACHE/lock\" job 2>/dev/null; wait";
    ensure!(functions(&[], text, folder.path())? == "in\nout\nin\nout\n");
    Ok(())
}

#[test]
fn help_and_unknown_options_need_no_set_up() -> Result<()> {
    for name in [
        "setup", "package", "image", "deny", "run", "lab", "bench", "soak", "fuzz", "test",
        "check", "release", "pictures",
    ] {
        for option in ["--help", "-h"] {
            let (status, text) = script(name, &[option])?;
            ensure!(text.lines().count() > 1, "{name}: {text}");
            ensure!(status == Some(0) && !text.contains("error"), "{name}: {text}");
        }
        refuses(name, &["--unheard"], "unknown")?;
    }
    for (name, arguments, part) in [
        ("run", &["--gests", "3"][..], "unknown option --gests"),
        ("run", &["--guests=3", "rping"], "'rping' belongs to no option"),
        ("run", &["--wire", "3"], "'3' belongs to no option"),
        ("run", &["--p2p", "--guests"], "--guests needs a value"),
        ("run", &["--guests", "--wire"], "--guests needs a value"),
        ("bench", &["--siw", "file"], "unknown option --siw"),
        ("soak", &["1", "--sed", "3"], "unknown option --sed"),
        ("soak", &["--seed", "3", "1"], "'1' belongs to no option"),
        ("fuzz", &["many"], "'many' is not a number of runs"),
        ("fuzz", &["5", "nothing like it"], "no line of scripts/lib/parsers.sh contains"),
        ("lab", &["--guests", "3", "true"], "'true' belongs to no option"),
        ("lab", &["--guests", "3"], "the command for guest a is missing"),
        ("lab", &["--guests", "3", "--"], "the command for guest a is missing"),
        ("lab", &["--image", "large", "--", "true"], "there is no image 'large'"),
        ("lab", &["--package", "-oDebug=1", "--", "true"], "not the name of a Debian package"),
    ] {
        refuses(name, arguments, part)?;
    }
    // These arguments are right, so the set-up begins, and fails because its cache has no room.
    for (name, arguments) in [
        ("run", &["--guests", "3", "--p2p", "64", "--p2p", "--exec", "a b", "--wire"][..]),
        ("lab", &["--memory=2G", "--peer", "a", "--timing", "--", "cmd", "--unheard", "x"]),
        ("bench", &["--devices", "vrnic,siw", "--wire"]),
        ("soak", &["0.5", "--seed", "3"]),
    ] {
        let (_, text) = script(name, arguments)?;
        ensure!(!text.is_empty() && !text.contains("--help"), "{arguments:?}: {text}");
    }
    Ok(())
}

#[test]
fn names_and_numbers_that_do_not_exist_are_refused() -> Result<()> {
    refuses("test", &["tools", "verfy"], "there is no suite 'verfy'")?;
    refuses("test", &["ports/none"], "there is no script ci/ports/none")?;
    for (arguments, part) in [
        (&["tools::x", "verfy::x"][..], "there is no suite 'verfy'"),
        (&["--all", "tools"], "--all takes no names"),
        (&["--all", "--wire"], "exclude each other"),
        (&["--only", "rping"], "need the name of a suite"),
        (&["--repeat", "none", "cm"], "'none' is none"),
        (&["cm", "--repeat"], "--repeat needs a value"),
        (&["--debug", "--only", "x", "cm"], "--debug takes neither"),
        (&["--junit", "/proc/none/file"], "cannot be written"),
    ] {
        refuses("test", arguments, part)?;
    }
    refuses("release", &["--into"], "--into needs a folder")?;
    refuses("check", &["none"], "there is no crate 'none'")?;
    refuses("pictures", &["none"], "there is no picture 'none'")?;
    refuses("setup", &["--with", "minimal"], "needs packages")?;
    refuses("setup", &["--with", "large", "fio"], "needs an image")?;
    refuses("setup", &["--apps", "--force"], "takes one option")?;
    Ok(())
}

#[test]
fn scripts_and_clones_have_one_path_whatever_link_leads_to_them() -> Result<()> {
    let (folder, top) = (tempfile::tempdir()?, top()?);
    let (link, clone) = (folder.path().join("lab"), folder.path().join("clone"));
    std::os::unix::fs::symlink(top.join("scripts/lab"), &link)?;
    std::os::unix::fs::symlink(&top, &clone)?;
    let output = run(plain(&link).arg("--help"))?;
    ensure!(output.status.success(), "{}", said(&output));
    let text = format!(". {}/scripts/lib/common.sh; echo $VRNIC_TOP", clone.display());
    let output = run(Command::new("bash").args(["-euc", &text]))?;
    ensure!(output.stdout == format!("{}\n", top.display()).as_bytes(), "{}", said(&output));
    Ok(())
}

/// The last line says what was not checked.
#[test]
fn known_faults_that_were_not_checked_are_named_at_the_end() -> Result<()> {
    let check = |fetch: &str| {
        let text = format!(
            "timeout() {{ shift; \"$@\"; }}\n\
             cargo() {{ if [ \"$2\" = fetch ]; then {fetch}; else echo \"$*\"; fi; }}\ncheck_crates"
        );
        functions(&["deny"], &text, Path::new(NO_CACHE))
    };
    let said = check("true")?;
    ensure!(said.contains("bans licenses sources advisories\n"), "{said}");
    ensure!(!said.contains("NOT CHECKED"), "{said}");
    let said = check("echo no network; false")?;
    ensure!(said.contains("bans licenses sources\n") && said.contains("no network\n"), "{said}");
    let last = said.lines().last().unwrap_or_default();
    ensure!(last.contains("NOT CHECKED: known faults"), "{said}");
    Ok(())
}

#[test]
fn shellcheck_warns_of_nothing() -> Result<()> {
    let files = "cd scripts; scripts=$(grep -l -d skip '^#!.*bash' ../scripts/* ../ci/ports/*)
                 exec shellcheck -x -S warning -P SCRIPTDIR -P ../scripts $scripts lib/*.sh \
                 ../ci/action.sh ../.ci/run ../.ci/suites ../packaging/dkms/dkms-build";
    if run(Command::new("shellcheck").arg("--version")).is_err() {
        eprintln!("skipped: there is no shellcheck");
        return Ok(());
    }
    let ran = run(Command::new("bash").args(["-euc", files]).current_dir(top()?))?;
    ensure!(ran.status.success(), "{}", said(&ran));
    Ok(())
}
