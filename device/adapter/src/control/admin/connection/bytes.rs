//! The takeover of a connection that carries bytes instead of messages.

use std::mem::offset_of;
use std::sync::Arc;

use vrnic_abi::GuestAddr;
use vrnic_abi::admin::{QpFlags, Status};
use vrnic_abi::connection::{Connection, RECEIVED_MAX, RELEASE_WORD, Received};
use vrnic_tcp::{Budget, Params, Share};
use zerocopy::FromBytes;

use super::{Claimed, Failure, bad, claim, zero};
use crate::adapter::Adapter;
use crate::datapath::transport::tcp::bytes::WINDOW;
use crate::host::{HeldMemory, Host, Lane};
use crate::objects::qp::Qp;
use crate::objects::qp::tcp::bytes::receives::Receives;
use crate::objects::qp::tcp::bytes::{Plain, Toe};
use crate::objects::qp::tcp::iscsi::Session;
use crate::objects::qp::tcp::link::Link;
use crate::objects::qp::tcp::{Content, Tcp, rule_of};

/// Checks the state of a connection, which was read from `addr`, and takes it over with the bytes
/// that the guest's kernel has received.
pub(super) fn bytes<H: Host>(
    adapter: &Adapter<H>,
    qp: &Qp<H>,
    connection: &Connection,
    addr: GuestAddr,
) -> Result<Tcp<H>, Failure> {
    // Fields of connections with messages.
    zero(&connection.ird, offset_of!(Connection, ird))?;
    zero(&connection.ord, offset_of!(Connection, ord))?;
    zero(&connection.private_len, offset_of!(Connection, private_len))?;
    zero(&connection.request_len, offset_of!(Connection, request_len))?;
    let memory = &adapter.objects.claims.memory;
    let mut share = Share::of(memory);
    let early = received(adapter, addr, &mut share)?;
    let session = session(qp, memory)?;
    // The window becomes larger when the receives are known. Data of iSCSI needs none.
    let window = if session.is_some() { WINDOW } else { 0 };
    let params = Params { window, buffer: WINDOW as usize, half_open: true, ..Params::default() };
    let Claimed { tcp, ends, .. } = claim(adapter, qp, connection, &params)?;
    let mut receives = Receives::new(early, share, qp.flags.contains(QpFlags::PUSH));
    // Requests from before the connection do not concern it.
    receives.release.look(adapter.host().bar_load32(qp.doorbell.mark(RELEASE_WORD)));
    receives.release.done();
    let rule = rule_of(qp.flags);
    let mut link = Link::new(tcp, ends, &qp.sq, memory);
    link.life_mut().open();
    let content = match session {
        Some(session) => Content::Iscsi(Box::new(Toe::new(receives, session))),
        None => Content::Bytes(Box::new(Toe::new(receives, Plain::new(rule)))),
    };
    Ok(Tcp { link, content })
}

/// Returns the iSCSI mode of the connection, if it was set.
fn session<H: Host>(qp: &Qp<H>, memory: &Arc<Budget>) -> Result<Option<Session>, Failure> {
    let Some(terms) = qp.requester.lock().path.terms() else { return Ok(None) };
    let mut share = Share::of(memory);
    if !share.take(Session::MAX_BYTES) {
        return Err(Status::NoResource.into());
    }
    Ok(Some(Session::new(terms, share)))
}

/// Reads the bytes that the guest's kernel has received, and counts them in `share`.
fn received<H: Host>(
    adapter: &Adapter<H>,
    addr: GuestAddr,
    share: &mut Share,
) -> Result<Vec<u8>, Failure> {
    let end = size_of::<Connection>();
    let mut bytes = [0; size_of::<Received>()];
    let memory = adapter.host().hold(Lane::SHARED);
    memory.read(addr.wrapping_add(end as u64), &mut bytes).map_err(|_| Status::BadAddress)?;
    drop(memory);
    let received = Received::read_from_bytes(&bytes).map_err(|_| Status::Internal)?;
    bytes_of(adapter, &received, end, share)
}

/// Reads the bytes that `received`, a parameter at the offset `end`, describes, and counts them in
/// `share`.
pub(super) fn bytes_of<H: Host>(
    adapter: &Adapter<H>,
    received: &Received,
    end: usize,
    share: &mut Share,
) -> Result<Vec<u8>, Failure> {
    zero(&received.reserved, end + offset_of!(Received, reserved))?;
    let len = received.len.get();
    if len > RECEIVED_MAX {
        return Err(bad(end + offset_of!(Received, len)));
    }
    if !share.take(len as usize) {
        return Err(Status::NoResource.into());
    }
    let mut early = vec![0; len as usize];
    if len > 0 {
        adapter
            .host()
            .hold(Lane::SHARED)
            .read(received.addr, &mut early)
            .map_err(|_| Status::BadAddress)?;
    }
    Ok(early)
}
