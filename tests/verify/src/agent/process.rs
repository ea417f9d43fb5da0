//! The life of agent processes.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use serde::{Deserialize, Serialize};

use super::dispatch::handle;
use super::objects::Objects;
use crate::rpc::calls::Request;
use crate::rpc::frame;

/// The provider's choice of where send queues lie.
const SQ_VARIABLE: &str = "VRNIC_SQ";
/// Longest time a call may take; a process that hangs for longer ends itself, so that nothing is
/// left behind when the device stops answering.
const WATCHDOG: Duration = Duration::from_secs(140);

/// Settings of an agent; a client of [`serve`] sends them first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    /// Memory of its send queues (`guest`, `device`): the value of the provider's variable; `None`
    /// for its default.
    pub(crate) sq: Option<String>,
    /// True if its CQs and QPs have the extended interfaces.
    pub(crate) extended: bool,
}

/// Starts an agent that is commanded through `stream`.
pub(crate) fn spawn(stream: OwnedFd, start: &Start) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("agent").stdin(Stdio::from(stream));
    if start.extended {
        command.arg("--extended");
    }
    match &start.sq {
        Some(place) => command.env(SQ_VARIABLE, place),
        None => command.env_remove(SQ_VARIABLE),
    };
    command.spawn()
}

/// Starts an agent for each connection, until it is killed.
pub(crate) fn serve(listen: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(listen)?;
    println!("serving on {}", listener.local_addr()?);
    for stream in listener.incoming() {
        let stream = stream?;
        thread::spawn(move || {
            if let Err(e) = serve_one(stream) {
                eprintln!("connection: {e}");
            }
        });
    }
    Ok(())
}

fn serve_one(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let Some(start): Option<Start> = frame::receive(&mut stream)? else { return Ok(()) };
    let status = spawn(OwnedFd::from(stream), &start)?.wait()?;
    if !status.success() {
        eprintln!("agent ended: {status}");
    }
    Ok(())
}

/// The main function of an agent: serves the stream that is its standard input until it ends.
pub(crate) fn run(extended: bool) -> io::Result<()> {
    let mut stream = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let calls = watchdog();
    let mut objects = Objects::new(extended);
    while let Some(request) = frame::receive::<Request>(&mut stream)? {
        calls.fetch_add(1, Ordering::Relaxed);
        let answer = handle(&mut objects, request);
        calls.fetch_add(1, Ordering::Relaxed);
        frame::send(&mut stream, &answer)?;
    }
    Ok(())
}

/// Limits the memory that this process may lock, and gives up the right to lock more.
pub(super) fn limit_memory(bytes: u64) -> io::Result<()> {
    setrlimit(Resource::Memlock, Rlimit { current: Some(bytes), maximum: Some(bytes) })?;
    let mut sets = capabilities(None)?;
    sets.effective.remove(CapabilitySet::IPC_LOCK);
    Ok(set_capabilities(None, sets)?)
}

/// Starts the thread that ends the process when one call takes too long. The counter it returns is
/// odd during a call.
fn watchdog() -> Arc<AtomicU64> {
    let calls = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&calls);
    thread::spawn(move || {
        loop {
            let before = seen.load(Ordering::Relaxed);
            thread::sleep(WATCHDOG);
            if before % 2 == 1 && seen.load(Ordering::Relaxed) == before {
                eprintln!("agent: a call takes longer than {WATCHDOG:?}: giving up");
                std::process::abort();
            }
        }
    });
    calls
}
