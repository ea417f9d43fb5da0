//! Guests that people enter: a shell in a terminal, guests that are kept, two labs at once, and a
//! network outside of the lab.
//!
//! Shows: tools

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use vrnic_tests::repository::script::{run, said, top};

use super::{command, lab};

/// Time limit for an output that is waited for. It allows for a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(240);
/// The key that leaves a shell: Ctrl-].
const LEAVE: u8 = 0x1d;

/// A command in a terminal of its own, which script(1) makes.
struct Terminal {
    child: Child,
    output: Receiver<Vec<u8>>,
    text: String,
}

impl Terminal {
    fn start(command: &str) -> Result<Self> {
        let mut child = Command::new("script")
            .args(["-qec", command, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .context("cannot run script(1)")?;
        let mut output = child.stdout.take().context("no output")?;
        let (sender, receiver) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(len @ 1..) = output.read(&mut buffer) {
                let _unread = sender.send(buffer.get(..len).unwrap_or_default().to_vec());
            }
        });
        Ok(Self { child, output: receiver, text: String::new() })
    }

    /// Waits until the output contains this text.
    fn wait_for(&mut self, what: &str) -> Result<()> {
        let end = Instant::now() + TIMEOUT;
        while !self.text.contains(what) {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(data) = self.output.recv_timeout(left) else {
                bail!("the terminal did not show '{what}': {}", self.text)
            };
            self.text += &String::from_utf8_lossy(&data);
        }
        Ok(())
    }

    fn type_in(&mut self, bytes: &[u8]) -> Result<()> {
        let input = self.child.stdin.as_mut().context("no input")?;
        input.write_all(bytes)?;
        Ok(input.flush()?)
    }

    /// Leaves the shell. Returns the status.
    fn leave(mut self) -> Result<Option<i32>> {
        self.type_in(&[LEAVE])?;
        Ok(self.child.wait()?.code())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The program has ended, except after a failure.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A terminal is connected with a shell of guest a, which has the variables of commands.
pub(crate) fn shell() -> Result<()> {
    let script = top()?.join("scripts/lab");
    let mut terminal =
        Terminal::start(&format!("{} --guests 1 --memory 512M --shell", script.display()))?;
    terminal.wait_for("Ctrl-] leaves")?;
    // The terminal shows what is typed, too, so the answer must differ.
    terminal.type_in(b"echo =$((6*7))=$VRNIC_NAME=$VRNIC_ADDRESS=$PWD=\r")?;
    terminal.wait_for("=42=a=10.9.0.1=/lab=")?;
    let status = terminal.leave()?;
    ensure!(status == Some(0), "the status is {status:?}");
    Ok(())
}

/// Guests are kept and entered while another lab runs, and end with a signal.
pub(crate) fn kept() -> Result<()> {
    let mut kept = command(&["--guests", "1", "--memory", "512M", "--keep", "--", "exit 3"])?
        .stdin(Stdio::null())
        .stdout(File::create("/dev/null")?)
        .stderr(Stdio::piped())
        .spawn()?;
    let result = while_kept(&mut kept);
    // The script has become the lab, which ends in order.
    kill(Pid::from_raw(i32::try_from(kept.id())?), Signal::SIGTERM)?;
    let status = kept.wait()?;
    let folder = result?;
    ensure!(status.code() == Some(128 + 15), "the status is {status}");
    ensure!(!std::path::Path::new(&folder).exists(), "{folder} is left");
    Ok(())
}

/// Enters the guest, and runs a second lab. Returns the folder of the first one.
fn while_kept(kept: &mut Child) -> Result<String> {
    let second = thread::spawn(|| lab(&["--guests", "1", "--memory", "512M", "--", "echo second"]));
    let mut lines = BufReader::new(kept.stderr.take().context("no output")?).lines();
    let mut said_before = String::new();
    let socket = loop {
        let line = lines.next().with_context(|| said_before.clone())??;
        if let Some(rest) = line.trim().strip_prefix("scripts/lab --enter ") {
            break rest.split_whitespace().next().unwrap_or_default().to_owned();
        }
        said_before += &format!("{line}\n");
    };
    ensure!(said_before.contains("the command ended with 3"), "{said_before}");
    // The first lab would stop if the rest of its output were not read.
    thread::spawn(move || lines.for_each(drop));
    let Ok(ran) = second.join() else { bail!("the thread of the second lab panicked") };
    let ran = ran?;
    ensure!(ran.status.success() && ran.stdout == b"second\n", "{}", said(&ran));
    let script = top()?.join("scripts/lab");
    let mut terminal = Terminal::start(&format!("{} --enter {socket}", script.display()))?;
    terminal.type_in(b". /vrnic/shell; echo =$((6*7))=$VRNIC_NAME=\r")?;
    terminal.wait_for("=42=a=")?;
    let second = lab(&["--enter", &socket])?;
    let text = said(&second);
    ensure!(
        second.status.code() == Some(125) && text.contains("another terminal is in this guest"),
        "{text}"
    );
    let status = terminal.leave()?;
    ensure!(status == Some(0), "the status is {status:?}");
    let folder = socket.rsplit_once('/').map(|(folder, _)| folder.to_owned());
    folder.context("the socket is in no folder")
}

/// A guest reaches a TAP device of this machine, which has the network for itself.
pub(crate) fn uplink() -> Result<()> {
    let script = "ip tuntap add vrlab mode tap && ip addr add 10.9.0.200/24 dev vrlab && \
                  ip link set lo up && ip link set vrlab up && exec \"$@\"";
    let mut unshare = Command::new("unshare");
    unshare.args(["--net", "sh", "-c", script, "sh"]).arg(top()?.join("scripts/lab"));
    unshare.args(["--guests", "1", "--memory", "512M", "--uplink", "tap=vrlab", "--"]);
    let ran = run(unshare.arg("ping -c 3 -W 5 10.9.0.200"))?;
    ensure!(ran.status.success(), "{}", said(&ran));
    Ok(())
}
