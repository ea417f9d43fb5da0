//! The part that runs inside a guest: starts programs for the host and passes their output.

mod process;

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::system::{RebootCommand, reboot};

use crate::wire::{self, Id, Reply, Request};
use process::Process;

/// How long the port may take to appear after the driver was loaded.
const PORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves the host until the port ends.
///
/// # Errors
/// When there is no port, or it fails.
pub fn run() -> Result<()> {
    let path = find_port()?;
    let port = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    let line = Line(Arc::new(Mutex::new(port.try_clone()?)));
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    line.send(&Reply::Hello { release }, b"")?;
    serve(BufReader::new(port), &line)
}

fn serve(mut port: BufReader<File>, line: &Line) -> Result<()> {
    let mut processes: HashMap<Id, Process> = HashMap::new();
    loop {
        let (request, data) = wire::receive(&mut port).context("virtio-serial port")?;
        match request {
            Request::Start { id, argv, env } => match Process::start(id, &argv, &env, line) {
                Ok(process) => drop(processes.insert(id, process)),
                Err(error) => {
                    let error = format!("{error:#}");
                    line.send(&Reply::NotStarted { id, error }, b"")?;
                }
            },
            Request::Input(id) => {
                if let Some(process) = processes.get(&id) {
                    process.input(data);
                }
            }
            Request::CloseInput(id) => {
                if let Some(process) = processes.get_mut(&id) {
                    process.close_input();
                }
            }
            Request::Signal { id, signal } => {
                if let Some(process) = processes.get(&id) {
                    process.signal(signal);
                }
            }
            Request::PowerOff => {
                rustix::fs::sync();
                reboot(RebootCommand::PowerOff).context("power off")?;
            }
        }
        processes.retain(|_, process| !process.ended());
    }
}

/// The way to the host, shared by all who have something to say.
#[derive(Clone)]
struct Line(Arc<Mutex<File>>);

impl Line {
    fn send(&self, reply: &Reply, data: &[u8]) -> io::Result<()> {
        let port = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        wire::send(&*port, reply, data)
    }
}

fn find_port() -> Result<PathBuf> {
    let deadline = Instant::now() + PORT_TIMEOUT;
    loop {
        for entry in fs::read_dir("/sys/class/virtio-ports").into_iter().flatten().flatten() {
            let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
            if name.trim_end() == wire::PORT {
                return Ok(PathBuf::from("/dev").join(entry.file_name()));
            }
        }
        if Instant::now() > deadline {
            bail!("no virtio-serial port named {} (is virtio_console loaded?)", wire::PORT);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
