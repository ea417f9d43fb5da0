//! The results that a run leaves for people: a file for JUnit, captures, counters, a summary; and
//! how a fault of a kernel, or its crash, fails the run; and what a signal leaves of it.
//!
//! Shows: tools

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use vrnic_qemu::machine::paths::Paths;
use vrnic_tests::repository::script::said;

use super::{command, lab};

/// Type of a block of pcapng that holds a packet.
const PACKET: u32 = 6;

/// A guest with two adapters talks to itself, and leaves all files.
pub(crate) fn alone() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (kept, junit, pcap) = (path("kept"), path("junit.xml"), path("all.pcapng"));
    let options = ["--guests", "1", "--adapters", "2", "--cpus", "2", "--memory", "768M"];
    let files = ["--output", &kept, "--junit", &junit, "--pcap", &pcap];
    let command = "set -e; ibv_rc_pingpong -g 1 -c -n 50 $VRNIC_PEER; \
                   set -- $VRNIC_DEVICES; test $# = 2; set -- $VRNIC_ADDRESSES; test $2 = $VRNIC_PEER; \
                   test $(nproc) = 2; test -e /dev/fd/0; test \"$VRNIC_PEERS\" = $VRNIC_PEER; \
                   getent hosts a1 | grep -q \"^$VRNIC_PEER \"; echo two adapters";
    let peer = ["--peer", "ibv_rc_pingpong -g 1 -c -n 50"];
    let ran = lab(&[&options[..], &files, &peer, &["--", command]].concat())?;
    let text = said(&ran);
    ensure!(ran.status.success() && text.contains("two adapters"), "{text}");
    ensure!(text.contains("ready after") && text.contains(" s for the kernels"), "{text}");
    let junit = fs::read_to_string(&junit)?;
    ensure!(junit.contains("tests=\"3\" skipped=\"0\" failures=\"0\""), "not three tests: {junit}");
    ensure!(junit.contains("name=\"guest a: ibv_rc_pingpong -g 1 -c -n 50\""), "{junit}");
    // Each of the 50 messages of both directions, and their acknowledgements.
    let packets = packets(&fs::read(&pcap)?)?;
    ensure!(packets > 100, "{packets} packets were captured");
    packets_of(&path("all.a1.pcapng"))?;
    let kept = |name: &str| fs::read_to_string(folder.path().join("kept").join(name));
    let report = kept("report.txt")?;
    let sends = report.lines().find(|line| line.starts_with("a ") && line.contains(" tx_bytes "));
    let after = sends.and_then(|line| line.split_whitespace().last()).context("no tx_bytes")?;
    ensure!(after.parse::<u64>()? >= 50 * 4096, "too few bytes were counted: {report}");
    let summary = kept("summary.md")?;
    ensure!(summary.contains("| passed |") && summary.contains("| a | tx_bytes |"), "{summary}");
    Ok(())
}

/// SIGTERM ends the run, which saves the files and the output until then.
pub(crate) fn ended() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (kept, junit) = (path("kept"), path("junit.xml"));
    let options = ["--guests", "1", "--memory", "512M", "--output", &kept, "--junit", &junit];
    let text = "echo text >$VRNIC_OUTPUT/file; echo it hangs; sleep 600";
    let mut command = command(&[&options[..], &["--", text]].concat())?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut lab = command.spawn()?;
    let (output, errors) = (lab.stdout.take(), lab.stderr.take());
    let said = std::thread::spawn(move || {
        let mut text = String::new();
        errors.map(|mut errors| errors.read_to_string(&mut text)).transpose().map(|_| text)
    });
    let first = BufReader::new(output.context("no output")?).lines().next();
    // The script has become the lab.
    kill(Pid::from_raw(i32::try_from(lab.id())?), Signal::SIGTERM)?;
    let status = lab.wait()?;
    let said = said.join().ok().context("the thread panicked")??;
    ensure!(first.transpose()?.as_deref() == Some("it hangs"), "the command did not run: {said}");
    ensure!(status.code() == Some(128 + 15), "{status}: {said}");
    ensure!(said.contains("the run was ended by SIGTERM"), "{said}");
    ensure!(fs::read(path("kept/a/file"))? == b"text\n", "no file: {said}");
    let report = fs::read_to_string(path("kept/report.txt"))?;
    ensure!(report.contains("--- guest a"), "no logs: {report}");
    let junit = fs::read_to_string(junit)?;
    let failure = "message=\"the run was ended by SIGTERM\">it hangs";
    ensure!(junit.contains(failure), "{junit}");
    Ok(())
}

fn packets_of(file: &str) -> Result<u64> {
    packets(&fs::read(file).with_context(|| file.to_owned())?)
}

/// Returns the number of packets in a file of pcapng.
fn packets(mut file: &[u8]) -> Result<u64> {
    let mut packets = 0;
    while !file.is_empty() {
        let word = |at: usize| -> Result<u32> {
            let bytes = file.get(at..at + 4).context("a block is cut")?;
            Ok(u32::from_le_bytes(bytes.try_into()?))
        };
        packets += u64::from(word(0)? == PACKET);
        let len = usize::try_from(word(4)?)?;
        ensure!(len >= 12, "a block has {len} bytes");
        file = file.get(len..).context("a block is cut")?;
    }
    Ok(packets)
}

/// A line of a guest's kernel log that reports a fault fails the run, although the command has
/// passed. The server of the peer opens no port: its output says that it is ready. The guest loads
/// modules of the stock kernel first, and boots from files that the options name.
pub(crate) fn warning() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let junit = folder.path().join("junit.xml").to_string_lossy().into_owned();
    let options = ["--guests", "1", "--memory", "512M", "--junit", &junit];
    let paths = Paths::from_env()?;
    let [kernel, module] = [paths.kernel(), paths.module()].map(|it| it.display().to_string());
    let own = ["--kernel", &kernel, "--module-file", &module];
    let modules = ["--module", "ib_iser", "--module", "bonding max_bonds=3", "--module", "macvlan"];
    let peer = ["--peer", "sleep 2; echo server number 7 is up; exec sleep 600"];
    let ready = ["--ready", "number [0-9]+ is up$"];
    let command = "set -e; ls -d /sys/module/ib_iser /sys/module/macvlan /sys/class/net/bond2; \
                   ps ax | grep -v grep | grep -q 'sleep 600'; \
                   echo '<4>WARNING: a test of CPU 0' >/dev/kmsg; echo the command has passed";
    let command = ["--", command];
    let ran = lab(&[&options[..], &own, &modules, &peer, &ready, &command].concat())?;
    let text = said(&ran);
    ensure!(text.contains("the command has passed"), "the command has failed: {text}");
    ensure!(!text.contains("does not listen"), "a port was waited for: {text}");
    ensure!(ran.status.code() == Some(125), "{text}");
    ensure!(text.contains("WARNING: a test of CPU 0"), "the fault is not shown: {text}");
    let junit = fs::read_to_string(&junit)?;
    ensure!(junit.contains("failures=\"1\"") && junit.contains("a test of CPU 0"), "{junit}");
    Ok(())
}
