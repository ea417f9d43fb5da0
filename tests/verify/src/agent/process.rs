//! The main loop of an agent, and its watchdog.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::Request;
use super::objects::Objects;
use crate::rpc::frame;

/// Time limit of a call. A process that hangs for longer ends itself, so that no process is left
/// when the device does not answer.
const WATCHDOG: Duration = Duration::from_secs(140);

/// Runs an agent: serves the stream on its standard input until the stream ends.
pub(crate) fn run(extended: bool) -> io::Result<()> {
    let mut stream = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let calls = watchdog();
    let mut objects = Objects::new(extended);
    while let Some(request) = frame::receive::<Request>(&mut stream)? {
        calls.fetch_add(1, Ordering::Relaxed);
        request.serve(&mut objects, &mut stream)?;
        calls.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Starts the thread that ends the process when a call takes too long. The returned counter is odd
/// during a call.
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
