//! The thread that runs a function's control work: resets and admin commands, which trapped register writes
//! only ask for.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use crate::function::Function;

/// Asks the thread to look for work.
#[derive(Clone, Debug)]
pub struct Asker(SyncSender<()>);

impl Asker {
    /// Asks; several requests may be answered by one look.
    pub fn ask(&self) {
        if let Err(TrySendError::Disconnected(())) = self.0.try_send(()) {
            tracing::error!("a control thread is gone");
        }
    }
}

/// The thread. It ends when the last [`Asker`] is gone.
#[derive(Debug)]
pub struct ControlThread {
    thread: Option<JoinHandle<()>>,
}

impl ControlThread {
    /// Starts the thread of `function`.
    ///
    /// # Errors
    /// When threads run out.
    pub fn start(function: Arc<Function>) -> io::Result<(Self, Asker)> {
        // One request may wait while another is answered; a third would find the same work.
        let (asker, asked) = sync_channel(1);
        let name = format!("control-{}", function.adapter().name());
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            for () in asked {
                function.control();
            }
        })?;
        Ok((Self { thread: Some(thread) }, Asker(asker)))
    }
}

impl Drop for ControlThread {
    fn drop(&mut self) {
        // Whoever still holds an asker keeps the thread; only report one that has failed.
        if let Some(thread) = self.thread.take()
            && thread.is_finished()
            && thread.join().is_err()
        {
            tracing::error!("a control thread panicked");
        }
    }
}
