//! The agent inside a guest: runs the commands of the harness and returns their output.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use parking_lot::Mutex;
use vrnic_qemu::protocol::{Event, Request, receive, send};
use vrnic_qemu::roots::archive::unpacked;

/// The port that QEMU offers (see `guest.rs` of the harness). udev creates this name, or `init.sh`
/// if there is no udev.
const PORT: &str = "/dev/virtio-ports/vrnic.agent";

/// Number of turns of a millisecond in which the output of a program that has ended may arrive.
const MAX_TURNS: u32 = 2000;

type Shared<T> = Arc<Mutex<T>>;

fn main() -> io::Result<()> {
    let mut port = OpenOptions::new().read(true).write(true).open(PORT)?;
    let out = Arc::new(Mutex::new(port.try_clone()?));
    let groups: Shared<HashMap<u32, Pid>> = Arc::default();
    send(&mut *out.lock(), &Event::Ready)?;
    loop {
        match receive(&mut port)? {
            Request::Exec { id, script } => exec(id, &script, &out, &groups),
            Request::Kill { id } => {
                if let Some(group) = groups.lock().get(&id) {
                    // The group may have just ended.
                    let _gone = killpg(*group, Signal::SIGKILL);
                }
            }
            Request::Put { path, offset, mode, data } => {
                answer(&out, &path, put(&path, offset, mode, &data))?;
            }
            Request::Unpack { path } => answer(&out, &path, unpack(&path))?,
            Request::Greet => send(&mut *out.lock(), &Event::Ready)?,
        }
    }
}

/// Says whether a file was stored.
fn answer(out: &Shared<File>, path: &str, stored: io::Result<()>) -> io::Result<()> {
    let error = stored.err().map_or(String::new(), |error| format!("{path}: {error}"));
    send(&mut *out.lock(), &Event::Stored { error })
}

/// Unpacks an archive and removes it.
fn unpack(path: &str) -> io::Result<()> {
    unpacked(BufReader::new(File::open(path)?), Path::new("/"))?;
    std::fs::remove_file(path)
}

/// Starts a command. Separate threads report its output and its end.
fn exec(id: u32, script: &str, out: &Shared<File>, groups: &Shared<HashMap<u32, Pid>>) {
    let child = Command::new("/bin/sh")
        .args(["-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            tell(out, &Event::Output { id, stderr: true, data: error.to_string().into_bytes() });
            return tell(out, &Event::Exit { id, code: 127 });
        }
    };
    if let Ok(pid) = i32::try_from(child.id()) {
        groups.lock().insert(id, Pid::from_raw(pid));
    }
    let streams = [
        child.stdout.take().map(|pipe| carry(id, false, pipe, out)),
        child.stderr.take().map(|pipe| carry(id, true, pipe, out)),
    ];
    let (out, groups) = (Arc::clone(out), Arc::clone(groups));
    thread::spawn(move || {
        let code = child.wait().map_or(127, exit_code);
        groups.lock().remove(&id);
        // The output is sent before the end. A background child may keep the pipes open, so there
        // is a limit: turns and not time, in which a busy machine may let no thread run.
        for _turn in 0..MAX_TURNS {
            if streams.iter().flatten().all(thread::JoinHandle::is_finished) {
                break;
            }
            thread::sleep(std::time::Duration::from_millis(1));
        }
        tell(&out, &Event::Exit { id, code });
    });
}

fn carry(
    id: u32,
    stderr: bool,
    mut pipe: impl Read + Send + 'static,
    out: &Shared<File>,
) -> thread::JoinHandle<()> {
    let out = Arc::clone(out);
    thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(len @ 1..) = pipe.read(&mut buffer) {
            let data = buffer.get(..len).unwrap_or_default().to_vec();
            tell(&out, &Event::Output { id, stderr, data });
        }
    })
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(127)
}

fn put(path: &str, offset: u64, mode: u32, data: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(offset == 0).mode(mode).open(path)?;
    file.write_all_at(data, offset)
}

/// Sends an event. Without the port it cannot be reported.
fn tell(out: &Shared<File>, event: &Event) {
    if let Err(error) = send(&mut *out.lock(), event) {
        let _lost = writeln!(io::stderr(), "agent: {error}");
    }
}
