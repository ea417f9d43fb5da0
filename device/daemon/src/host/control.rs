//! Control threads. The control thread of an adapter runs its resets, admin commands and changes of
//! the link. Trapped register writes and the Ethernet switch only request this work.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::memory::stall::Watched;

/// Requests work from a control thread.
#[derive(Clone, Debug)]
pub struct ControlHandle(SyncSender<()>);

/// The control thread's end of a [`ControlHandle`].
#[derive(Debug)]
pub struct ControlRequests(Receiver<()>);

/// Creates a handle, and the control thread's end of it.
#[must_use]
pub fn channel() -> (ControlHandle, ControlRequests) {
    // One request may wait while another is served. A third would find no work of its own.
    let (sender, receiver) = sync_channel(1);
    (ControlHandle(sender), ControlRequests(receiver))
}

impl ControlHandle {
    /// Wakes the thread. One pass of the thread may serve several requests. A thread that has ended
    /// ignores them.
    pub fn ask(&self) {
        let _waiting_or_ended = self.0.try_send(());
    }
}

/// A control thread. It ends after this has been dropped, as soon as its work returns.
#[derive(Debug)]
pub struct ControlThread {
    stop: Arc<AtomicBool>,
    handle: ControlHandle,
}

impl ControlThread {
    /// Starts a thread that calls `work` for each request made through `handle`, whose other end is
    /// `requests`.
    ///
    /// # Errors
    /// Returns an error if no thread can be started.
    pub fn start(
        name: &str,
        handle: ControlHandle,
        requests: ControlRequests,
        work: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        std::thread::Builder::new().name(format!("control-{name}")).spawn(move || {
            let _watched = Watched::begin();
            for () in requests.0 {
                if stopped.load(Ordering::Acquire) {
                    break;
                }
                work();
            }
        })?;
        Ok(Self { stop, handle })
    }
}

impl Drop for ControlThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.handle.ask();
    }
}
