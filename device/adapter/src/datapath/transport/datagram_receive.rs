//! Receives of datagrams: places a datagram after its network header, and completes the receive.

use vrnic_abi::Qpn;
use vrnic_abi::cq::Status;
use vrnic_abi::qp::{Access, GRH_LEN};

use crate::datapath::peer_context::PeerContext;
use crate::datapath::refusal::Refusal;
use crate::datapath::responder::{outcome, receives};
use crate::datapath::sgl::{SgList, Side, copy};
use crate::datapath::turn::TurnContext;
use crate::host::{CopyFault, Host};
use crate::memory::tpt::Denied;
use crate::network_header;
use crate::objects::completion::{Completion, Origin};
use crate::objects::qp::Responder;
use crate::requests::wqe::Segment;
use crate::stats::Counter;

/// A datagram that must be placed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming<'a> {
    /// The memory of its data.
    pub(crate) source: &'a SgList<'a>,
    /// The network header of the datagram.
    pub(crate) header: &'a network_header::Header,
    /// Number of bytes after the network header.
    pub(crate) length: u64,
}

/// A datagram that has been placed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    /// Number of bytes after the network header.
    pub(crate) length: u64,
    /// Immediate data.
    pub(crate) imm: Option<[u8; 4]>,
    /// True if the sender asks for a solicited event.
    pub(crate) solicited: bool,
    /// The sender's QP.
    pub(crate) src_qpn: Qpn,
    /// The datagram's sender, with the VLAN in the network.
    pub(crate) origin: Origin,
}

/// Completes the receive that a datagram has filled.
///
/// # Errors
/// Returns an error if there is none, or if the receive CQ has no room. The QP has failed then.
pub(crate) fn received<H: Host>(
    there: &PeerContext<'_, H>,
    responder: &mut Responder,
    arrived: &Arrived,
) -> Result<(), Refusal> {
    let recv = responder.current.take().ok_or(Refusal::NotReady)?;
    let vlans = there.turn.core.port.vlans();
    let vlan = vlans.of_network(arrived.origin.vlan).unwrap_or_default();
    let completion = Completion {
        // CAST: a datagram is short.
        byte_len: u32::try_from(arrived.length).unwrap_or(u32::MAX).saturating_add(GRH_LEN),
        imm: arrived.imm,
        solicited: arrived.solicited,
        src_qpn: arrived.src_qpn,
        origin: Some(Origin { vlan, ..arrived.origin }),
        ..Completion::of_receive(there.qp.qpn, &recv, Status::Success)
    };
    there.act(|| outcome::complete(there, responder, &completion))
}

/// The reason for which a datagram was not placed.
pub(crate) enum NotPlaced {
    /// The sender's memory is not accessible, or absent.
    Source(Denied),
    /// There is no receive, or it is too short, or pages of its memory are absent. The datagram is
    /// dropped, and the receive stays posted.
    Dropped,
    /// The receive or its memory is faulty. The receiving QP fails.
    Receiver(Refusal),
}

impl NotPlaced {
    /// Returns the reason for which `len` bytes could not be stored in the receiver's memory. A
    /// datagram does not wait for absent pages.
    #[cold]
    fn target<H: Host>(side: &SgList<'_>, there: &PeerContext<'_, H>, len: u64) -> Self {
        match side.refusal(&there.turn, 0..len) {
            Refusal::Absent => Self::Dropped,
            refusal => Self::Receiver(refusal),
        }
    }
}

impl From<Refusal> for NotPlaced {
    fn from(refusal: Refusal) -> Self {
        Self::Receiver(refusal)
    }
}

/// Copies header and data to the next receive, which becomes the current one.
pub(crate) fn place<H: Host>(
    here: &TurnContext<'_, H>,
    there: &PeerContext<'_, H>,
    responder: &mut Responder,
    incoming: &Incoming<'_>,
) -> Result<(), NotPlaced> {
    let Incoming { source, header, length } = *incoming;
    if responder.current.is_none() {
        responder.current = there.act(|| receives::next(there, responder))?;
    }
    let Some(recv) = responder.current.as_ref() else {
        there.turn.step(Counter::OutOfBuffer);
        return Err(NotPlaced::Dropped);
    };
    let segments = recv.segments.as_ref().ok_or(Refusal::Malformed)?;
    if segments.total() < length + u64::from(GRH_LEN) {
        return Err(NotPlaced::Dropped);
    }
    let (mut head, mut body) = (SgList::default(), SgList::default());
    let (mut left, mut left_of_body) = (GRH_LEN, length);
    for Segment { addr, len, key } in segments.iter(&responder.raw) {
        let first = len.min(left);
        left -= first;
        // The part that the datagram does not fill is not checked. CAST: at most the length of the
        // segment.
        let filled = u64::from(len - first).min(left_of_body);
        left_of_body -= filled;
        let rest = Segment { addr: addr.wrapping_add(first.into()), len: filled as u32, key };
        head.add(&there.turn, recv.user, &Segment { addr, len: first, key }, Access::LOCAL_WRITE)
            .and_then(|()| body.add(&there.turn, recv.user, &rest, Access::LOCAL_WRITE))
            .map_err(|_| Refusal::Operational)?;
    }
    let memory = &there.turn.memory;
    head.write::<H>(memory, 0, header)
        .map_err(|_| NotPlaced::target(&head, there, GRH_LEN.into()))?;
    let from = Side { list: source, memory: &here.memory };
    copy::<H>(from, Side { list: &body, memory }, 0, length).map_err(|fault| match fault {
        CopyFault::Source => NotPlaced::Source(source.fault(here, 0..length)),
        CopyFault::Target => NotPlaced::target(&body, there, length),
    })?;
    here.slice.charge_copy(length);
    there.turn.moved(length);
    here.moved(length);
    Ok(())
}
