//! Periodic work, ten to twenty times a second: heartbeats, and clients that wait at busy sockets.
//! Nothing here may wait for a guest, or for a lock that is held for long.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use crate::hosted::roster::Roster;
use crate::memory::stall::{self, Watched};
use crate::vfio::busy_socket::BusySocket;
use crate::worker::pulse::{Pinged, Pulse};

/// Half of the period that drivers may rely on, which leaves room for a loaded host.
const PERIOD: Duration = Duration::from_millis(vrnic_abi::regs::HEARTBEAT_PERIOD_MS as u64 / 2);

/// Number of ticks after which the threads' timers ([`stall`]) are postponed: less than a second.
const TICKS_PER_POSTPONEMENT: u64 = 10;

/// The thread; it stops on drop.
#[derive(Debug)]
pub struct Housekeeping {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    ticks: Arc<Ticks>,
}

/// The pings of the thread, which it answers at each tick.
#[derive(Debug, Default)]
struct Ticks(Pulse);

impl Pinged for Ticks {
    fn pulse(&self) -> &Pulse {
        &self.0
    }

    fn wake(&self) {}
}

impl Housekeeping {
    /// Starts the thread. Other threads hold the lock of `busy_sockets` for short times only.
    ///
    /// # Errors
    /// Returns an error if no thread can be started.
    pub fn start(
        adapters: Arc<Roster>,
        busy_sockets: Arc<Mutex<Vec<BusySocket>>>,
    ) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let ticks = Arc::new(Ticks::default());
        let answers = Arc::clone(&ticks);
        let run = move || {
            let _watched = Watched::begin();
            let mut tick = 0u64;
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                tick += 1;
                answers.0.answer(answers.0.asked());
                adapters.all().iter().for_each(|hosted| hosted.beat());
                if tick.is_multiple_of(TICKS_PER_POSTPONEMENT) {
                    let revoked = stall::postpone();
                    if revoked > 0 {
                        tracing::warn!(
                            "vrnicd was stopped for more than {} s; it does not access {revoked} ranges of memory of VMMs that have disconnected",
                            stall::LIMIT.as_secs()
                        );
                    }
                }
                if tick.is_multiple_of(2) {
                    busy_sockets.lock().iter_mut().for_each(BusySocket::check);
                }
            }
        };
        let thread = std::thread::Builder::new().name("housekeeping".into()).spawn(run)?;
        Ok(Self { stop: Some(stop), thread: Some(thread), ticks })
    }

    /// Returns the handle for pings of the thread.
    #[must_use]
    pub fn pinged(&self) -> Arc<dyn Pinged> {
        Arc::clone(&self.ticks) as Arc<dyn Pinged>
    }
}

impl Drop for Housekeeping {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the housekeeping thread panicked");
        }
    }
}
