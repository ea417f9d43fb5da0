//! The end of a transition to RDMA: another QP gets the connection.

use vrnic_abi::connection::Role;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;
use vrnic_iwarp::Stream;
use vrnic_iwarp::mpa::start::Wishes;
use vrnic_iwarp::stream::Config;
use vrnic_packet::Nanos;

use super::inbox::WINDOW;
use crate::datapath::transport::peers::Network;
use crate::host::Host;
use crate::objects::qp::outstanding::OUTSTANDING;
use crate::objects::qp::tcp::bytes::Toe;
use crate::objects::qp::tcp::bytes::switch::Switch;
use crate::objects::qp::tcp::rdma::{Streaming, Takeover};
use crate::objects::qp::tcp::switched::Switched;
use crate::objects::qp::{Path, Peer, Qp};

/// Gives the connection of a QP to the one that its program has chosen, and ends the QP. If the
/// other one has ended, the connection stays here, and is reset.
pub(super) fn hand_over<H: Host>(
    network: Network<'_, H>,
    qp: &Qp<H>,
    mut toe: Box<Toe<H>>,
) -> Path<H> {
    let switch = toe.switch.take();
    let to = switch.as_ref().and_then(|switch| switch.to());
    let (Some(switch), Some(to)) = (switch, to) else {
        qp.fail();
        return Path::Toe(toe);
    };
    let mut requester = to.qp.requester.lock();
    let promised = matches!(&requester.path, Path::Promised(promise) if promise.is_of(qp));
    if !promised || !to.qp.change_state(State::Init, State::Rts) {
        drop(requester);
        qp.fail();
        return Path::Toe(toe);
    }
    toe.link.ends().give_to(to.qp.qpn);
    let now = network.core().host().now();
    requester.path = Path::Stream(Box::new(continued(network, now, *toe, *switch, &to)));
    drop(requester);
    qp.fail();
    to.core.report(Kind::CommEstablished, to.qp.qpn);
    to.qp.schedule(&to.core);
    Path::Memory
}

/// Returns the connection with messages instead of bytes.
fn continued<H: Host>(
    network: Network<'_, H>,
    now: Nanos,
    toe: Toe<H>,
    switch: Switch<H>,
    to: &Peer<H>,
) -> Streaming<H> {
    let Switch { terms, received, share, .. } = switch;
    let Toe { link, receives, .. } = toe;
    let memory = &network.own.claims.memory;
    let mut link = link.of_next(&to.qp.sq, memory);
    let tcp = link.tcp_mut();
    let (first, share) = receives.hand_over(received, share);
    tcp.set_half_open(false);
    tcp.set_window(WINDOW);
    let switched = Switched::new(first, share, tcp.sent(), tcp.delivered());
    let config = Config {
        wishes: Wishes { ird: terms.agreement.ird, ord: terms.agreement.ord, ..Wishes::default() },
        capacity: to.qp.sq.size().min(OUTSTANDING) as usize,
        emss: u32::try_from(tcp.mss()).unwrap_or(u32::MAX),
        extensions: true,
        ..Config::default()
    };
    let stream = Stream::agreed(config, terms.agreement, terms.peer_first);
    let takeover = Takeover { now, role: Role::Stream, link, stream, memory };
    Streaming::continuing(takeover, switched)
}
