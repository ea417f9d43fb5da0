//! The thread that reads and writes memory of a guest by messages to its VMM.

use std::io;
use std::sync::Arc;

use vrnic_adapter::log_ratelimit::Limiter;

use crate::memory::behind::Behind;
use crate::memory::messages::Unanswered;
use crate::worker::pool::now;

/// The thread of an adapter. It ends some time after this has been dropped, when the VMM has
/// answered the last message, or its time is over.
#[derive(Debug)]
pub struct BehindThread(Arc<Behind>);

impl BehindThread {
    /// Starts the thread for the transfers of adapter `name`.
    ///
    /// # Errors
    /// Returns an error if no thread can be started.
    pub fn start(name: &str, behind: &Arc<Behind>) -> io::Result<Self> {
        let (name, shared) = (name.to_owned(), Arc::clone(behind));
        std::thread::Builder::new()
            .name(format!("dma-{name}"))
            .spawn(move || run(&name, &shared))?;
        Ok(Self(Arc::clone(behind)))
    }
}

impl Drop for BehindThread {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn run(name: &str, behind: &Behind) {
    let limiter = Limiter::default();
    while let Some(job) = behind.next() {
        let result = job.run();
        if let Err(why) = result.as_ref()
            && *why != Unanswered::Ended
        {
            limiter.warn(now(), || {
                tracing::warn!(function = name, "memory cannot be accessed by messages: {why}");
            });
        }
        behind.finish(&job, result);
    }
}
