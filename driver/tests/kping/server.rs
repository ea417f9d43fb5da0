// SPDX-License-Identifier: GPL-2.0
//! The side that answers.

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        Arc,
        atomic::{Atomic, Relaxed},
    },
    time::{Delta, msecs_to_jiffies},
    workqueue::{Work, WorkItem, impl_has_work, new_work},
};

use crate::{
    DEPTH, NAME,
    kclient::{
        background::Background,
        cm::Id,
        connection::{Connection, SEGMENTS},
        cq::Poll,
        mapped::{Mapped, Part},
        memory::Memory,
        remote::Remote,
        request::Request,
        work::Op,
    },
    message::{Answer, Ask},
    pattern,
};

/// Milliseconds between two looks for a reason to stop.
const LOOK_MS: u32 = 100;
/// The longest time that a client may be silent.
const PATIENCE: Delta = Delta::from_secs(60);

/// A server, which takes callers in turn.
#[pin_data]
pub(crate) struct Server {
    listener: Id,
    poll: Poll,
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
                    Ok(()) | Err(ECONNRESET) => {}
                    Err(error) => pr_err!("serving a client failed: {error:?}\n"),
                },
                Some(Err(error)) => pr_err!("a client could not be accepted: {error:?}\n"),
                None => {}
            }
        }
    }
}

/// The memory and requests of a connection.
struct Desk {
    request: Arc<Request>,
    receive: Arc<Request>,
    incoming: Arc<Mapped>,
    outgoing: Arc<Mapped>,
    data: Arc<Mapped>,
}

/// A server at work. Dropping this ends it: on return it runs no more.
pub(crate) struct Running {
    server: Arc<Server>,
    _queue: Background,
}

impl Running {
    /// Listens.
    pub(crate) fn start(port: u16, poll: Poll) -> Result<Self> {
        let (listener, queue) = (Id::listen(port)?, Background::new(c"vrnic_kping")?);
        let server = Arc::pin_init(
            pin_init!(Server {
                listener,
                poll,
                stopping: Atomic::new(false),
                work <- new_work!("kping::Server"),
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
        let connection = Connection::new(id, self.poll, DEPTH, NAME)?;
        let desk = Desk {
            request: Request::new()?,
            receive: Request::new()?,
            incoming: connection.map(Memory::new(1, PAGE_SIZE)?)?,
            outgoing: connection.map(Memory::new(1, PAGE_SIZE)?)?,
            data: connection.map(Memory::new(SEGMENTS as usize, PAGE_SIZE)?)?,
        };
        let result = self.answer_all(&connection, &desk);
        connection.drain();
        result
    }

    fn answer_all(&self, connection: &Connection, desk: &Desk) -> Result {
        connection.receive(&desk.receive, &desk.incoming, size_of::<Ask>())?;
        connection.id().connect(true)?;
        // A client that never pauses would otherwise keep a device that is to go.
        while !self.stopping.load(Relaxed) && !connection.id().has_ended() {
            connection.done(&desk.receive, PATIENCE)?;
            let ask: Ask = desk.incoming.load()?;
            connection.receive(&desk.receive, &desk.incoming, size_of::<Ask>())?;
            answer(connection, desk, &ask)?;
        }
        Ok(())
    }
}

/// Reads the client's pages, checks and inverts them, writes them back and says so.
fn answer(connection: &Connection, desk: &Desk, ask: &Ask) -> Result {
    let Desk { request, outgoing, data, .. } = desk;
    let length = ask.length.get() as usize;
    let there = Remote::new(ask.address.get(), ask.key.get());
    let part = Part::new(data, 0..length)?;
    connection.rdma(request, &part, &Op::Read(there.clone()))?;
    connection.done(request, PATIENCE)?;
    let wrong = pattern::wrong(data, ask.sequence.get(), false)?;
    pattern::invert(data)?;
    connection.rdma(request, &part, &Op::Write(there))?;
    connection.done(request, PATIENCE)?;
    outgoing.store(&Answer { sequence: ask.sequence, wrong: wrong.into() })?;
    let key = (ask.invalidate.get() != 0).then_some(ask.key.get());
    connection.send(request, outgoing, size_of::<Answer>(), key)?;
    connection.done(request, PATIENCE)?;
    Ok(())
}
