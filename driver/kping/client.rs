// SPDX-License-Identifier: GPL-2.0
//! The side that asks.

use kernel::{prelude::*, time::Delta};

use crate::{
    connection::{Connection, DEPTH, Poll, SEGMENTS},
    events::Id,
    message::{Answer, Ask},
    pages::{Mapped, Pages, Region},
    request::Request,
};

/// Longest time for anything.
const PATIENCE: Delta = Delta::from_secs(20);

/// Places for what is outstanding.
struct Requests {
    register: Pin<KBox<Request>>,
    send: Pin<KBox<Request>>,
    receive: Pin<KBox<Request>>,
    spare: KVec<Pin<KBox<Request>>>,
}

/// Connects to the server at `peer` and moves data.
pub(crate) fn run(peer: u32, port: u16, rounds: u32, poll: Poll) -> Result {
    let mut spare = KVec::new();
    for _ in 0..DEPTH - 1 {
        spare.push(Request::new()?, GFP_KERNEL)?;
    }
    // Dropped last.
    let requests = Requests {
        register: Request::new()?,
        send: Request::new()?,
        receive: Request::new()?,
        spare,
    };
    let id = Id::new()?;
    id.resolve(peer, port)?;
    let connection = Connection::new(id, poll)?;
    connection.id().connect(false)?;
    // SAFETY: what is outstanding ends by `drain`, before they go, and they go before the connection.
    let (outgoing, incoming, mut region) = unsafe {
        (
            connection.map(Pages::new(1)?)?,
            connection.map(Pages::new(1)?)?,
            connection.region(Pages::new(SEGMENTS as usize)?)?,
        )
    };
    let mut result = Ok(());
    for sequence in 1..=u64::from(rounds) {
        result = round(&connection, &requests, (&outgoing, &incoming), &mut region, sequence);
        if result.is_ok() && connection.id().has_ended() {
            result = Err(ECONNRESET);
        }
        if result.is_err() {
            break;
        }
    }
    let drained = finish(&connection, &requests, &incoming);
    result.and(drained)
}

/// One request and its answer. The key of every second one is the server's to invalidate.
fn round(
    connection: &Connection,
    requests: &Requests,
    (outgoing, incoming): (&Mapped, &Mapped),
    region: &mut Region,
    sequence: u64,
) -> Result {
    let by_server = sequence % 2 == 0;
    region.fill(sequence);
    connection.receive(&requests.receive, incoming, size_of::<Answer>())?;
    connection.register(&requests.register, region)?;
    let ask = Ask {
        sequence: sequence.into(),
        address: region.address().into(),
        length: u32::try_from(region.len())?.into(),
        key: region.key().into(),
        invalidate: u32::from(by_server).into(),
        ..Ask::default()
    };
    outgoing.write(&ask)?;
    connection.send(&requests.send, outgoing, size_of::<Ask>(), 0)?;
    connection.done(&requests.register, PATIENCE)?;
    connection.done(&requests.send, PATIENCE)?;
    let outcome = connection.done(&requests.receive, PATIENCE)?;
    let answer: Answer = incoming.read()?;
    let want = if by_server { region.key() } else { 0 };
    let wrong = (answer.wrong.get(), region.wrong(sequence, true));
    if outcome.length as usize != size_of::<Answer>()
        || answer.sequence.get() != sequence
        || outcome.invalidated != want
        || wrong != (0, 0)
    {
        pr_err!(
            "round {sequence}: {outcome:?}, {answer:?}, wrong words {wrong:?}, key {want:#x}\n"
        );
        return Err(EIO);
    }
    if !by_server {
        connection.invalidate(&requests.register, region.key())?;
        connection.done(&requests.register, PATIENCE)?;
    }
    Ok(())
}

/// Ends the connection with receives outstanding: draining flushes them all.
fn finish(connection: &Connection, requests: &Requests, incoming: &Mapped) -> Result {
    let mut posted = Ok(());
    for request in &requests.spare {
        posted = posted.and(connection.receive(request, incoming, size_of::<Answer>()));
    }
    connection.drain();
    posted?;
    for request in &requests.spare {
        let outcome = request.outcome().map(|outcome| outcome.success().err());
        if outcome != Some(Some(ECONNRESET)) {
            pr_err!("a receive was not flushed when draining returned: {outcome:?}\n");
            return Err(EIO);
        }
    }
    Ok(())
}
