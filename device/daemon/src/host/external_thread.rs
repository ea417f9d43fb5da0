//! The thread that reads and writes memory of a guest by messages to its VMM.

use std::io;
use std::sync::Arc;

use vrnic_adapter::log_ratelimit::Limiter;

use crate::memory::external::ExternalMemory;
use crate::memory::messages::Unanswered;
use crate::worker::pool::now;

/// The thread of an adapter. It ends some time after this has been dropped, when the VMM has
/// answered the last message, or its time is over.
#[derive(Debug)]
pub struct ExternalThread(Arc<ExternalMemory>);

impl ExternalThread {
    /// Starts the thread for the transfers of adapter `name`.
    ///
    /// # Errors
    /// Returns an error if no thread can be started.
    pub fn start(name: &str, external: &Arc<ExternalMemory>) -> io::Result<Self> {
        let (name, shared) = (name.to_owned(), Arc::clone(external));
        std::thread::Builder::new()
            .name(format!("dma-{name}"))
            .spawn(move || run(&name, &shared))?;
        Ok(Self(Arc::clone(external)))
    }
}

impl Drop for ExternalThread {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn run(name: &str, external: &ExternalMemory) {
    let limiter = Limiter::default();
    while let Some(job) = external.next() {
        let result = job.run();
        if let Err(why) = result.as_ref()
            && *why != Unanswered::Ended
        {
            limiter.warn(now(), || {
                tracing::warn!(function = name, "memory cannot be accessed by messages: {why}");
            });
        }
        external.finish(&job, result);
    }
}
