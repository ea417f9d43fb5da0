//! The switch's thread.

use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event};

use super::attendant::Attendant;
use super::handle::{Shared, SwitchHandle};
use super::switch::{EVENTS, MtuListener, Switch};
use crate::memory::stall::Watched;
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
    /// Starts a switch without ports. It calls `limit` when the longest path MTU that all uplinks
    /// carry has changed.
    ///
    /// # Errors
    /// Returns an error if descriptors or threads run out.
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

    /// Returns access to the switch.
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

/// Ends the acceptance of commands when it is dropped.
struct Ending<'a>(&'a Shared);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Runs the switch until it has to end. While workers run the switch, this thread wakes only for
/// commands and for periodic work.
fn run(switch: &Mutex<Switch>, epoll: &OwnedFd, shared: &Shared) {
    let _watched = Watched::begin();
    // Commands that come after the end get an error.
    let _end = Ending(shared);
    let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
    let mut period = Duration::ZERO;
    while !shared.is_stopped() {
        shared.pulse.answer(shared.pulse.asked());
        let mut limit = period;
        if shared.attendance.is_attended() {
            shared.bell.wait(period);
            limit = Duration::ZERO;
        } else if !switch.lock().wait() {
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
        let served = catch_unwind(AssertUnwindSafe(|| switch.serve(&events)));
        period = served.unwrap_or_else(|_| {
            switch.recover();
            Duration::ZERO
        });
        let held = switch.is_held();
        drop(switch);
        if held {
            // epoll would return at once, because of the frames that wait to be read.
            std::thread::sleep(HELD_PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, BorrowedFd};
    use std::os::unix::net::UnixDatagram;
    use std::time::Instant;

    use vrnic_control_api::port_view::Kind;

    use super::*;
    use crate::net::frame::Frame;
    use crate::net::line::{Change, Line, Log};
    use crate::net::port::setup::PortSetup;
    use crate::net::queue::SendQueue;
    use crate::net::turn::Turn;

    /// A line that panics when a frame arrives.
    struct Faulty(Option<UnixDatagram>);

    impl Line for Faulty {
        fn door(&self) -> Option<BorrowedFd<'_>> {
            None
        }

        fn wire(&self) -> Option<BorrowedFd<'_>> {
            self.0.as_ref().map(AsFd::as_fd)
        }

        fn is_up(&self) -> bool {
            self.0.is_some()
        }

        fn tick(&mut self, _log: &Log<'_>) -> Change {
            Change::None
        }

        fn receive(
            &mut self,
            _frames: &mut Vec<Frame>,
            _turn: &mut Turn,
            _log: &Log<'_>,
        ) -> Change {
            panic!("a fault");
        }

        fn flush(
            &mut self,
            _queue: &mut SendQueue,
            _turn: &mut Turn,
            _log: &Log<'_>,
        ) -> io::Result<()> {
            Ok(())
        }

        fn close(&mut self) {
            self.0 = None;
        }
    }

    fn port(name: &str, line: Option<Box<dyn Line>>) -> PortSetup {
        PortSetup { line, ..PortSetup::new(name, Kind::Trunk) }
    }

    fn is_up(switch: &SwitchThread, name: &str) -> bool {
        switch.handle().ports().iter().any(|port| port.name == name && port.up)
    }

    #[test]
    fn a_panic_ends_the_line_that_it_was_for_and_not_the_switch() {
        let switch = SwitchThread::start(Box::new(|_| ())).expect("a switch");
        let (near, far) = UnixDatagram::pair().expect("sockets");
        let line = Box::new(Faulty(Some(near)));
        switch.handle().add(port("faulty", Some(line))).expect("a port");
        assert!(is_up(&switch, "faulty"));
        far.send(b"a frame").expect("sent");
        let start = Instant::now();
        while is_up(&switch, "faulty") {
            assert!(start.elapsed() < Duration::from_secs(10), "the line is still up");
            std::thread::sleep(Duration::from_millis(1));
        }
        switch.handle().add(port("next", None)).expect("the switch goes on");
        assert!(switch.handle().remove("faulty").expect("the switch goes on"));
    }

    #[test]
    fn a_request_after_the_end_gets_an_error() {
        let switch = SwitchThread::start(Box::new(|_| ())).expect("a switch");
        let handle = switch.handle().clone();
        drop(switch);
        assert!(handle.add(port("late", None)).is_err());
        assert!(handle.remove("late").is_err());
    }
}
