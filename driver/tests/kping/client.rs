// SPDX-License-Identifier: GPL-2.0
//! The side that asks.

use kernel::{page::PAGE_SIZE, prelude::*, sync::Arc, time::Delta};

use crate::{
    DEPTH, NAME, ends,
    kclient::{
        cm::Id,
        connection::{Connection, SEGMENTS},
        cq::Poll,
        mapped::Mapped,
        memory::Memory,
        region::Region,
        request::{Request, Status},
    },
    message::{Answer, Ask},
    pattern,
};

/// Longest time for anything.
const TIMEOUT: Delta = Delta::from_secs(20);

/// The requests of a connection, and the memory of its messages.
struct Desk {
    register: Arc<Request>,
    send: Arc<Request>,
    receive: Arc<Request>,
    spare: KVec<Arc<Request>>,
    outgoing: Arc<Mapped>,
    incoming: Arc<Mapped>,
}

/// What the client does with each connection.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    /// Requests.
    pub(crate) rounds: u32,
    /// True to close it by functions of the adapter.
    pub(crate) closes: bool,
}

/// Connects to the server at `peer` and moves data.
pub(crate) fn run(peer: u32, port: u16, effort: Effort, poll: Poll) -> Result {
    let mut spare = KVec::new();
    for _ in 0..DEPTH - 1 {
        spare.push(Request::new()?, GFP_KERNEL)?;
    }
    let id = Id::new()?;
    id.resolve(peer, port)?;
    let connection = Connection::new(id, poll, DEPTH, NAME)?;
    connection.id().connect(false)?;
    let desk = Desk {
        register: Request::new()?,
        send: Request::new()?,
        receive: Request::new()?,
        spare,
        outgoing: connection.map(Memory::new(1, PAGE_SIZE)?)?,
        incoming: connection.map(Memory::new(1, PAGE_SIZE)?)?,
    };
    let region = connection.region(Memory::new(SEGMENTS as usize, PAGE_SIZE)?)?;
    let mut result = Ok(());
    for sequence in 1..=u64::from(effort.rounds) {
        result = round(&connection, &desk, &region, sequence);
        if result.is_ok() && connection.id().has_ended() {
            result = Err(ECONNRESET);
        }
        if result.is_err() {
            break;
        }
    }
    if effort.closes {
        result = result.and_then(|()| ends::close(&connection));
    }
    let drained = finish(&connection, &desk);
    result.and(drained)
}

/// Sends one request and waits for its answer. The server invalidates the key of every second
/// request.
fn round(connection: &Connection, desk: &Desk, region: &Arc<Region>, sequence: u64) -> Result {
    let Desk { register, send, receive, outgoing, incoming, .. } = desk;
    let by_server = sequence % 2 == 0;
    pattern::fill(region.memory(), sequence)?;
    connection.receive(receive, incoming, size_of::<Answer>())?;
    connection.register(register, region)?;
    let ask = Ask {
        sequence: sequence.into(),
        address: region.address().into(),
        length: u32::try_from(region.len())?.into(),
        key: region.key().into(),
        invalidate: u32::from(by_server).into(),
        ..Ask::default()
    };
    outgoing.store(&ask)?;
    connection.send(send, outgoing, size_of::<Ask>(), None)?;
    connection.done(register, TIMEOUT)?;
    connection.done(send, TIMEOUT)?;
    let outcome = connection.done(receive, TIMEOUT)?;
    let answer: Answer = incoming.load()?;
    let want = by_server.then(|| region.key());
    let wrong = (answer.wrong.get(), pattern::wrong(region.memory(), sequence, true)?);
    if outcome.length as usize != size_of::<Answer>()
        || answer.sequence.get() != sequence
        || outcome.invalidated != want
        || wrong != (0, 0)
    {
        pr_err!(
            "round {sequence} failed: {outcome:?} with {answer:?}; words that are wrong there and \
             here: {wrong:?}; the key that the server had to invalidate: {want:?}\n"
        );
        return Err(EIO);
    }
    if !by_server {
        connection.invalidate(register, region.key())?;
        connection.done(register, TIMEOUT)?;
    }
    Ok(())
}

/// Ends the connection with receives outstanding: draining flushes them all.
fn finish(connection: &Connection, desk: &Desk) -> Result {
    let mut posted = Ok(());
    for request in &desk.spare {
        posted = posted.and(connection.receive(request, &desk.incoming, size_of::<Answer>()));
    }
    connection.drain();
    posted?;
    for request in &desk.spare {
        let outcome = request.outcome();
        if outcome.map(|outcome| outcome.status) != Some(Status::FLUSHED) {
            pr_err!("a receive was not flushed when draining returned: {outcome:?}\n");
            return Err(EIO);
        }
    }
    Ok(())
}
