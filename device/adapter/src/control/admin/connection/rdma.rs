//! START_RDMA: the beginning of RDMA on a connection that has carried bytes.

use std::mem::offset_of;
use std::sync::Arc;

use vrnic_abi::admin::{StartRdma, Status};
use vrnic_abi::connection::{Stage, StartFlags};
use vrnic_abi::qp::{State, Type};
use vrnic_iwarp::mpa::start::Agreement;
use vrnic_tcp::Share;

use super::bytes::bytes_of;
use super::{Failure, Outcome, bad, check_depth, configure};
use crate::adapter::Adapter;
use crate::host::Host;
use crate::objects::qp::tcp::bytes::switch::{Switch, Terms};
use crate::objects::qp::tcp::promise::Promise;
use crate::objects::qp::tcp::{Content, Promised, Tcp};
use crate::objects::qp::{Path, Peer};

pub(in crate::control::admin) fn start_rdma<H: Host>(
    adapter: &Arc<Adapter<H>>,
    params: &StartRdma,
) -> Outcome<()> {
    let terms = terms(params)?;
    let from = adapter.qp(params.from).ok_or(Status::NotFound)?;
    let to = adapter.qp(params.to).ok_or(Status::NotFound)?;
    if from.kind != Type::Toe || to.kind != Type::Rc || from.context != to.context {
        return Err(Status::BadState.into());
    }
    let core = adapter.core();
    let (from, to) = (Peer { core: core.clone(), qp: from }, Peer { core: core.clone(), qp: to });
    let mut share = Share::of(&adapter.objects.claims.memory);
    let received =
        bytes_of(adapter, &params.received, offset_of!(StartRdma, received), &mut share)?;
    // The one that has the connection is locked first.
    let mut requester = from.qp.requester.lock();
    let Path::Tcp(tcp) = &mut requester.path else { return Err(Status::BadState.into()) };
    let Tcp { link, content: Content::Bytes(bytes) } = &mut **tcp else {
        return Err(Status::BadState.into());
    };
    let runs = from.qp.state() == State::Rts && link.life().stage() == Stage::Open;
    if !runs || bytes.mode.switch.is_some() {
        return Err(Status::BadState.into());
    }
    {
        let mut promised = to.qp.requester.lock();
        if to.qp.state() != State::Init || !matches!(promised.path, Path::Memory) {
            return Err(Status::BadState.into());
        }
        promised.path = Path::Promised(Box::new(Promised::Rdma(Promise::new(&from))));
    }
    bytes.mode.switch = Some(Box::new(Switch::new(&to, terms, received, share)));
    drop(requester);
    {
        let few = |count: u16| u8::try_from(count).unwrap_or(u8::MAX);
        let mut attr = to.qp.attr.lock();
        attr.max_rd_atomic = few(terms.agreement.ord);
        attr.max_dest_rd_atomic = few(terms.agreement.ird);
    }
    configure(&to.qp, Some(None));
    from.qp.schedule(core);
    Ok(())
}

/// Returns the terms of the messages.
fn terms(params: &StartRdma) -> Result<Terms, Failure> {
    check_depth(params.ird.get(), offset_of!(StartRdma, ird))?;
    check_depth(params.ord.get(), offset_of!(StartRdma, ord))?;
    let flags = StartFlags::from_bits(params.flags.get());
    let flags = flags.ok_or(bad(offset_of!(StartRdma, flags)))?;
    let agreement = Agreement {
        crc: flags.contains(StartFlags::CRC),
        markers_sent: flags.contains(StartFlags::SEND_MARKERS),
        markers_received: flags.contains(StartFlags::RECEIVE_MARKERS),
        ird: params.ird.get(),
        ord: params.ord.get(),
        first: None,
    };
    Ok(Terms { agreement, peer_first: flags.contains(StartFlags::PEER_FIRST) })
}
