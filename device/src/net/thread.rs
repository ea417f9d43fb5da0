//! The switch's thread.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event};

use super::attendant::Attendant;
use super::handle::{Shared, SwitchHandle};
use super::switch::{EVENTS, MtuListener, Switch};
use crate::worker::engine::Engine;

/// Time after which the thread checks again whether an adapter has room for frames.
const HELD_PAUSE: Duration = Duration::from_micros(50);

/// A running switch; it ends on drop.
pub struct SwitchThread {
    handle: SwitchHandle,
    switch: Arc<Mutex<Switch>>,
    thread: Option<JoinHandle<()>>,
}

impl SwitchThread {
    /// Starts a switch without ports. It tells `limit` when the longest path MTU that all uplinks
    /// carry has changed.
    ///
    /// # Errors
    /// When descriptors or threads run out.
    pub fn start(limit: MtuListener) -> io::Result<Self> {
        let (handle, shared) = SwitchHandle::new()?;
        let switch = Switch::new(shared, limit)?;
        let (epoll, shared) = (Arc::clone(switch.epoll()), Arc::clone(handle.shared()));
        let switch = Arc::new(Mutex::new(switch));
        let served = Arc::clone(&switch);
        let thread = std::thread::Builder::new()
            .name("switch".into())
            .spawn(move || run(&served, &epoll, &shared))?;
        Ok(Self { handle, switch, thread: Some(thread) })
    }

    /// Returns access to it.
    #[must_use]
    pub const fn handle(&self) -> &SwitchHandle {
        &self.handle
    }

    /// Returns an engine for this many workers, all of which are awake. They poll it, and so run
    /// the switch while adapters send and receive packets.
    #[must_use]
    pub fn attendant(&self, workers: usize) -> Arc<dyn Engine> {
        let shared = self.handle.shared();
        (0..workers).for_each(|_| shared.attendance.begin());
        Arc::new(Attendant::new(Arc::clone(&self.switch), Arc::clone(shared)))
    }
}

impl Drop for SwitchThread {
    fn drop(&mut self) {
        self.handle.stop();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the switch thread panicked");
        }
    }
}

/// Runs the switch until it has to end. While workers run the switch, this thread wakes only for
/// the bell and for periodic work.
fn run(switch: &Mutex<Switch>, epoll: &OwnedFd, shared: &Shared) {
    let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
    let mut period = Duration::ZERO;
    while !shared.is_stopped() {
        let mut limit = period;
        if shared.attendance.is_attended() {
            shared.bell.wait(period);
            limit = Duration::ZERO;
        }
        events.clear();
        let space = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(epoll, space, Timespec::try_from(limit).ok().as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                tracing::error!(%error, "the Ethernet switch stops: epoll failed");
                return;
            }
        }
        let mut switch = switch.lock();
        period = switch.serve(&events);
        let held = switch.is_held();
        drop(switch);
        if held {
            // The event of frames that wait to be read would return at once.
            std::thread::sleep(HELD_PAUSE);
        }
    }
}
