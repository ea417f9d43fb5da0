//! A program that the host asked for.

use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use super::Line;
use crate::wire::{DATA_MAX, Id, Reply, Status};

/// A running program, leader of a process group of its own.
pub(super) struct Process {
    group: Pid,
    input: Option<mpsc::Sender<Vec<u8>>>,
    ended: Arc<AtomicBool>,
}

impl Process {
    /// Starts the program, and the threads that pass its input, output and end.
    pub(super) fn start(
        id: Id,
        argv: &[String],
        env: &[(String, String)],
        line: &Line,
    ) -> Result<Self> {
        let Some((program, arguments)) = argv.split_first() else { bail!("no program named") };
        let mut child = Command::new(program)
            .args(arguments)
            .envs(env.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        let input = child.stdin.take().map(pass_input);
        let stdout = child.stdout.take().map(|from| pass(from, Reply::Stdout(id), line));
        let stderr = child.stderr.take().map(|from| pass(from, Reply::Stderr(id), line));
        let group = Pid::from_child(&child);
        let ended = Arc::new(AtomicBool::new(false));
        let passing = [stdout, stderr].into_iter().flatten().collect();
        let (line, flag) = (line.clone(), Arc::clone(&ended));
        thread::spawn(move || {
            let status = end(child, passing);
            flag.store(true, Ordering::Release);
            // Without the port there is nobody left to tell.
            let _ = line.send(&Reply::Exited { id, status }, b"");
        });
        Ok(Self { group, input, ended })
    }

    /// Queues data for standard input.
    pub(super) fn input(&self, data: Vec<u8>) {
        if let Some(input) = &self.input {
            // Fails when the program has closed its input, as it may.
            let _ = input.send(data);
        }
    }

    /// Ends standard input after what was queued.
    pub(super) fn close_input(&mut self) {
        self.input = None;
    }

    /// Sends a signal to the whole group.
    pub(super) fn signal(&self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal) {
            // Fails when all of the group have ended meanwhile.
            let _ = kill_process_group(self.group, signal);
        }
    }

    /// Whether the program ended and was reaped.
    pub(super) fn ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

/// Waits for the program's end, then for that of its output: what it left running in the
/// background must not hold its pipes.
fn end(mut child: Child, passing: Vec<thread::JoinHandle<()>>) -> Status {
    let status = child.wait();
    for thread in passing {
        // A panic in there was reported by itself.
        let _ = thread.join();
    }
    status.map_or(Status::Code(-1), to_status)
}

fn to_status(status: ExitStatus) -> Status {
    match (status.code(), status.signal()) {
        (Some(code), _) => Status::Code(code),
        (None, Some(signal)) => Status::Signal(signal),
        (None, None) => Status::Code(-1),
    }
}

fn pass_input(mut to: impl Write + Send + 'static) -> mpsc::Sender<Vec<u8>> {
    let (sender, data) = mpsc::channel::<Vec<u8>>();
    thread::spawn(move || {
        for data in data {
            if to.write_all(&data).and_then(|()| to.flush()).is_err() {
                break;
            }
        }
    });
    sender
}

fn pass(mut from: impl Read + Send + 'static, head: Reply, line: &Line) -> thread::JoinHandle<()> {
    let line = line.clone();
    thread::spawn(move || {
        let mut buffer = vec![0; DATA_MAX];
        loop {
            match from.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(length) => {
                    if line.send(&head, buffer.get(..length).unwrap_or_default()).is_err() {
                        break;
                    }
                }
            }
        }
    })
}
