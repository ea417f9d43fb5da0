// SPDX-License-Identifier: GPL-2.0
//! The side that asks.

use kernel::{page::PAGE_SIZE, prelude::*, sync::Arc, time::Delta};

use crate::{
    DEPTH, MAX_LENGTH, NAME, disk,
    kclient::{
        cm::Id, connection::Connection, cq::Poll, mapped::Mapped, memory::Memory, region::Region,
        request::Request,
    },
    message::{Answer, Ask},
    module_parameters as parameters,
};

/// Longest time for the registration of the memory.
const TIMEOUT: Delta = Delta::from_secs(20);

/// The requests of a connection, and the memory of its messages.
struct Desk {
    send: Arc<Request>,
    receive: Arc<Request>,
    outgoing: Arc<Mapped>,
    incoming: Arc<Mapped>,
}

/// Connects to the server that the parameters name, and asks for what they say.
pub(crate) fn run(port: u16) -> Result {
    let chunk = parameters::chunk.value() as usize;
    if chunk == 0 || chunk > MAX_LENGTH || chunk % disk::SECTOR != 0 {
        return Err(EINVAL);
    }
    let id = Id::new()?;
    id.resolve(parameters::peer.value(), port)?;
    let connection = Connection::new(id, Poll::Softirq, DEPTH, NAME)?;
    connection.id().connect(false)?;
    let result = ask_all(&connection, chunk);
    connection.drain();
    result
}

/// Asks for all blocks, a chunk at a time, and logs the CRC of their data.
fn ask_all(connection: &Connection, chunk: usize) -> Result {
    let desk = Desk {
        send: Request::new()?,
        receive: Request::new()?,
        outgoing: connection.map(Memory::new(1, PAGE_SIZE)?)?,
        incoming: connection.map(Memory::new(1, PAGE_SIZE)?)?,
    };
    let region = connection.region(Memory::new(MAX_LENGTH / PAGE_SIZE, PAGE_SIZE)?)?;
    connection.register(&desk.send, &region)?;
    connection.done(&desk.send, TIMEOUT)?;
    let (write, bytes) = (parameters::write.value(), parameters::bytes.value() as usize);
    let (mut at, mut crc) = (0, 0);
    while at < bytes {
        let length = chunk.min(bytes - at);
        let mut data = match write {
            0 => KVec::new(),
            _ => region.memory().randomize(0, length)?,
        };
        // CAST: to the wider type.
        ask(connection, &desk, &region, at as u64, length)
            .inspect_err(|error| report(&region, error))?;
        if write == 0 {
            data = region.memory().bytes(0, length)?;
        }
        crc = disk::crc(crc, &data);
        at += length;
    }
    pr_info!("{bytes} bytes with the CRC {crc} were moved\n");
    Ok(())
}

/// Sends one request and waits for its answer.
fn ask(
    connection: &Connection,
    desk: &Desk,
    region: &Arc<Region>,
    at: u64,
    length: usize,
) -> Result {
    let Desk { send, receive, outgoing, incoming } = desk;
    let sectors = at / disk::SECTOR as u64;
    let sector = parameters::sector.value().checked_add(sectors).ok_or(EINVAL)?;
    connection.receive(receive, incoming, size_of::<Answer>())?;
    outgoing.store(&Ask {
        sector: sector.into(),
        address: region.address().into(),
        key: region.key().into(),
        length: u32::try_from(length)?.into(),
        write: parameters::write.value().into(),
        silent: parameters::silent.value().into(),
        limit_ms: parameters::limit_ms.value().into(),
        ..Ask::default()
    })?;
    connection.send(send, outgoing, size_of::<Ask>(), None)?;
    let timeout = Delta::from_millis(parameters::timeout_ms.value().into());
    connection.done(send, timeout)?;
    connection.done(receive, timeout)?;
    let answer: Answer = incoming.load()?;
    if answer.sector.get() != sector {
        pr_err!("the answer to a request for sector {sector} is wrong: {answer:?}\n");
        return Err(EIO);
    }
    Ok(())
}

/// Logs the failure of a request.
fn report(region: &Region, error: &Error) {
    let bytes = region.memory().bytes(0, region.len()).unwrap_or_default();
    let changed = bytes.iter().filter(|byte| **byte != 0).count();
    pr_info!("a request failed: {error:?}; bytes of the memory that are not zero: {changed}\n");
}
