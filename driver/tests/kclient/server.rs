// SPDX-License-Identifier: GPL-2.0
//! A server in the background, which takes callers in turn.

use kernel::{
    prelude::*,
    str::CStr,
    sync::{
        Arc,
        atomic::{Atomic, Relaxed},
    },
    time::msecs_to_jiffies,
    workqueue::{Work, WorkItem, impl_has_work, new_work},
};

use super::{background::Background, cm::Id};

/// Milliseconds between two checks for a reason to stop.
const CHECK_INTERVAL_MS: u32 = 100;

/// The work of a server for its callers.
pub trait Service: Send + Sync + 'static {
    /// Serves a caller until its connection ends, or soon after `stopping` has become true.
    ///
    /// # Errors
    ///
    /// The reason for which the caller was not served to the end. It is logged.
    fn serve(&self, id: Id, stopping: &Atomic<bool>) -> Result;
}

#[pin_data]
struct Server<S: Service> {
    listener: Id,
    service: S,
    stopping: Atomic<bool>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl{S: Service} HasWork<Self> for Server<S> { self.work }
}

impl<S: Service> WorkItem for Server<S> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        while !this.stopping.load(Relaxed) {
            match this.listener.caller(msecs_to_jiffies(CHECK_INTERVAL_MS)) {
                Some(Ok(id)) => {
                    if let Err(error) = this.service.serve(id, &this.stopping) {
                        pr_err!("serving a client failed: {error:?}\n");
                    }
                }
                Some(Err(error)) => pr_err!("a client could not be accepted: {error:?}\n"),
                None => {}
            }
        }
    }
}

/// A server at work. Dropping this ends it: when the drop returns, the server runs no more.
pub struct Running<S: Service> {
    server: Arc<Server<S>>,
    _queue: Background,
}

impl<S: Service> Running<S> {
    /// Listens on a port. `name` is the name of the workqueue.
    pub fn start(service: S, port: u16, name: &'static CStr) -> Result<Self> {
        let (listener, queue) = (Id::listen(port)?, Background::new(name)?);
        let server = Arc::pin_init(
            pin_init!(Server {
                listener,
                service,
                stopping: Atomic::new(false),
                work <- new_work!("kclient::Server"),
            }),
            GFP_KERNEL,
        )?;
        let _ = queue.enqueue(server.clone());
        Ok(Self { server, _queue: queue })
    }
}

impl<S: Service> Drop for Running<S> {
    fn drop(&mut self) {
        self.server.stopping.store(true, Relaxed);
    }
}
