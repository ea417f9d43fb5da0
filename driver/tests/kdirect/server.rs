// SPDX-License-Identifier: GPL-2.0
//! The side that has the disk.

use kernel::{
    prelude::*,
    sync::{
        Arc,
        atomic::{Atomic, Relaxed},
    },
    time::msecs_to_jiffies,
    workqueue::{Work, WorkItem, impl_has_work, new_work},
};

use crate::{
    DEPTH, NAME,
    desk::Desk,
    disk::Disk,
    kclient::{background::Background, cm::Id, connection::Connection, cq::Poll},
};

/// Milliseconds between two looks for a reason to stop.
const LOOK_MS: u32 = 100;

/// A server, which takes callers in turn.
#[pin_data]
pub(crate) struct Server {
    listener: Id,
    disk: Disk,
    stopping: Atomic<bool>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Server { self.work }
}

impl WorkItem for Server {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        while !this.stopping.load(Relaxed) {
            match this.listener.caller(msecs_to_jiffies(LOOK_MS)) {
                Some(Ok(id)) => match this.serve(id) {
                    Ok(()) | Err(ESHUTDOWN) => {}
                    Err(error) => pr_err!("serving a client failed: {error:?}\n"),
                },
                Some(Err(error)) => pr_err!("a client could not be accepted: {error:?}\n"),
                None => {}
            }
        }
    }
}

/// A server at work. Dropping this ends it: on return it runs no more.
pub(crate) struct Running {
    server: Arc<Server>,
    _queue: Background,
}

impl Running {
    /// Opens the disk and listens.
    pub(crate) fn start(disk: u32, port: u16) -> Result<Self> {
        let disk = Disk::open(disk)?;
        let (listener, queue) = (Id::listen(port)?, Background::new(NAME)?);
        let server = Arc::pin_init(
            pin_init!(Server {
                listener,
                disk,
                stopping: Atomic::new(false),
                work <- new_work!("kdirect::Server"),
            }),
            GFP_KERNEL,
        )?;
        let _ = queue.enqueue(server.clone());
        Ok(Self { server, _queue: queue })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.server.stopping.store(true, Relaxed);
    }
}

impl Server {
    fn serve(&self, id: Id) -> Result {
        let connection = Connection::new(id, Poll::Softirq, DEPTH, NAME)?;
        let stopping = || self.stopping.load(Relaxed);
        let result = Desk::new(&connection, &self.disk, &stopping).and_then(|desk| {
            connection.id().connect(true)?;
            desk.serve()
        });
        connection.drain();
        result
    }
}
