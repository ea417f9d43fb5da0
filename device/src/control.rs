//! The thread that runs a function's control work: resets, admin commands and changes of the link, which trapped register
//! writes and the Ethernet switch only ask for.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::function::Function;

/// Asks the thread to look for work.
#[derive(Clone, Debug)]
pub struct Asker(SyncSender<()>);

/// The thread's end of an [`Asker`].
#[derive(Debug)]
pub struct Asked(Receiver<()>);

/// An asker and what it asks.
#[must_use]
pub fn channel() -> (Asker, Asked) {
    // One request may wait while another is answered; a third would find the same work.
    let (asker, asked) = sync_channel(1);
    (Asker(asker), Asked(asked))
}

impl Asker {
    /// Asks; several requests may be answered by one look. After the daemon's end nobody answers.
    pub fn ask(&self) {
        let _waiting_or_ended = self.0.try_send(());
    }
}

/// The thread. It ends after this has been dropped, when its work lets it.
#[derive(Debug)]
pub struct ControlThread {
    stop: Arc<AtomicBool>,
    asker: Asker,
}

impl ControlThread {
    /// Starts the thread of `function`, which `asker` asks.
    ///
    /// # Errors
    /// When threads run out.
    pub fn start(function: Arc<Function>, (asker, asked): (Asker, Asked)) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let name = format!("control-{}", function.adapter().name());
        std::thread::Builder::new().name(name).spawn(move || {
            for () in asked.0 {
                if stopped.load(Ordering::Acquire) {
                    break;
                }
                function.control();
            }
        })?;
        Ok(Self { stop, asker })
    }
}

impl Drop for ControlThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.asker.ask();
    }
}
