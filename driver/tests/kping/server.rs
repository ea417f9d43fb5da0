// SPDX-License-Identifier: GPL-2.0
//! The side that answers.

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        Arc,
        atomic::{Atomic, Relaxed},
    },
    time::Delta,
};

use crate::{
    DEPTH, NAME,
    kclient::{
        cm::Id,
        connection::{Connection, SEGMENTS},
        cq::Poll,
        mapped::{Mapped, Part},
        memory::Memory,
        remote::Remote,
        request::Request,
        server::Service,
        work::Op,
    },
    message::{Answer, Ask},
    pattern,
};

/// The longest time that a client may be silent.
const TIMEOUT: Delta = Delta::from_secs(60);

/// A server, which answers with completions of this kind.
pub(crate) struct Server(pub(crate) Poll);

/// The memory and requests of a connection.
struct Desk {
    request: Arc<Request>,
    receive: Arc<Request>,
    incoming: Arc<Mapped>,
    outgoing: Arc<Mapped>,
    data: Arc<Mapped>,
}

impl Service for Server {
    fn serve(&self, id: Id, stopping: &Atomic<bool>) -> Result {
        let connection = Connection::new(id, self.0, DEPTH, NAME)?;
        let desk = Desk {
            request: Request::new()?,
            receive: Request::new()?,
            incoming: connection.map(Memory::new(1, PAGE_SIZE)?)?,
            outgoing: connection.map(Memory::new(1, PAGE_SIZE)?)?,
            data: connection.map(Memory::new(SEGMENTS as usize, PAGE_SIZE)?)?,
        };
        let result = answer_all(&connection, &desk, stopping);
        connection.drain();
        match result {
            Err(ECONNRESET) => Ok(()),
            result => result,
        }
    }
}

fn answer_all(connection: &Connection, desk: &Desk, stopping: &Atomic<bool>) -> Result {
    connection.receive(&desk.receive, &desk.incoming, size_of::<Ask>())?;
    connection.id().connect(true)?;
    // Otherwise a client that never pauses would prevent the removal of the device.
    while !stopping.load(Relaxed) && !connection.id().has_ended() {
        connection.done(&desk.receive, TIMEOUT)?;
        let ask: Ask = desk.incoming.load()?;
        connection.receive(&desk.receive, &desk.incoming, size_of::<Ask>())?;
        answer(connection, desk, &ask)?;
    }
    Ok(())
}

/// Reads the client's pages, checks and inverts them, writes them back and says so.
fn answer(connection: &Connection, desk: &Desk, ask: &Ask) -> Result {
    let Desk { request, outgoing, data, .. } = desk;
    let length = ask.length.get() as usize;
    let there = Remote::new(ask.address.get(), ask.key.get());
    let part = Part::new(data, 0..length)?;
    connection.rdma(request, &part, &Op::Read(there.clone()))?;
    connection.done(request, TIMEOUT)?;
    let wrong = pattern::wrong(data, ask.sequence.get(), false)?;
    pattern::invert(data)?;
    connection.rdma(request, &part, &Op::Write(there))?;
    connection.done(request, TIMEOUT)?;
    outgoing.store(&Answer { sequence: ask.sequence, wrong: wrong.into() })?;
    let key = (ask.invalidate.get() != 0).then_some(ask.key.get());
    connection.send(request, outgoing, size_of::<Answer>(), key)?;
    connection.done(request, TIMEOUT)?;
    Ok(())
}
