//! The switch's thread.

use std::io;
use std::thread::JoinHandle;

use super::handle::SwitchHandle;
use super::switch::{MtuListener, Switch};

/// A running switch; it ends on drop.
#[derive(Debug)]
pub struct SwitchThread {
    handle: SwitchHandle,
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
        let thread =
            std::thread::Builder::new().name("switch".into()).spawn(move || switch.run())?;
        Ok(Self { handle, thread: Some(thread) })
    }

    /// Returns access to it.
    #[must_use]
    pub const fn handle(&self) -> &SwitchHandle {
        &self.handle
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
