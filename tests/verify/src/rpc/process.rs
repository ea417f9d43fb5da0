//! Starts the processes of agents, for a suite on this machine or on another one.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::thread;

use serde::{Deserialize, Serialize};

use super::frame;

/// The environment variable with which the provider chooses the memory of send queues.
#[cfg(feature = "vrnic")]
const SQ_VARIABLE: &str = "VRNIC_SQ";

/// Settings of an agent; a client of [`serve`] sends them first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    /// Memory of its send queues (`guest`, `device`), which is the value of the provider's
    /// variable. `None` means the default.
    #[cfg(feature = "vrnic")]
    pub(crate) sq: Option<String>,
    /// True if its CQs and QPs have the extended interfaces.
    pub(crate) extended: bool,
}

/// Starts an agent that gets its calls through `stream`.
pub(crate) fn spawn(stream: OwnedFd, start: &Start) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("agent").stdin(Stdio::from(stream));
    if start.extended {
        command.arg("--extended");
    }
    #[cfg(feature = "vrnic")]
    match &start.sq {
        Some(place) => command.env(SQ_VARIABLE, place),
        None => command.env_remove(SQ_VARIABLE),
    };
    command.spawn()
}

/// Starts an agent for each connection, until this process is killed.
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
