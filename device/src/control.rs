//! Control threads. One for each adapter runs its control work: resets, admin commands and changes
//! of the link. Trapped register writes and the Ethernet switch only ask for this work.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Asks a control thread to look for work.
#[derive(Clone, Debug)]
pub struct ControlHandle(SyncSender<()>);

/// The control thread's end of a [`ControlHandle`].
#[derive(Debug)]
pub struct ControlRequests(Receiver<()>);

/// Creates a handle, and the requests that a control thread gets through it.
#[must_use]
pub fn channel() -> (ControlHandle, ControlRequests) {
    // One request may wait while another is served; a third would find the same work.
    let (sender, receiver) = sync_channel(1);
    (ControlHandle(sender), ControlRequests(receiver))
}

impl ControlHandle {
    /// Asks the thread. It may serve several requests at once, and serves none after it has ended.
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
    /// Starts a thread that calls `work` for each request made through `handle`.
    ///
    /// # Errors
    /// When threads run out.
    pub fn start(
        name: &str,
        (handle, requests): (ControlHandle, ControlRequests),
        work: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        std::thread::Builder::new().name(format!("control-{name}")).spawn(move || {
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
