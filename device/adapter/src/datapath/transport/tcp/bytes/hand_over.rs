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
use crate::objects::qp::tcp::bytes::switch::Switch;
use crate::objects::qp::tcp::rdma::Rdma;
use crate::objects::qp::tcp::switched::Switched;
use crate::objects::qp::tcp::{Content, Tcp, rule_of};
use crate::objects::qp::{Path, Peer, Qp};

/// Gives the connection of a QP to the one that its program has chosen, and ends the QP. If the
/// other one has ended, the connection stays here, and is reset.
pub(in crate::datapath::transport::tcp) fn hand_over<H: Host>(
    network: Network<'_, H>,
    qp: &Qp<H>,
    tcp: Box<Tcp<H>>,
    switch: Switch<H>,
) -> Path<H> {
    let Some(to) = switch.to() else {
        qp.fail();
        return Path::Tcp(tcp);
    };
    let mut requester = to.qp.requester.lock();
    let promised = requester.path.promise().is_some_and(|promise| promise.is_of(qp));
    if !promised || !to.qp.change_state(State::Init, State::Rts) {
        drop(requester);
        qp.fail();
        return Path::Tcp(tcp);
    }
    tcp.link.ends().give_to(to.qp.qpn);
    let now = network.core().host().now();
    requester.path = Path::Tcp(Box::new(continued(network, now, *tcp, switch, &to)));
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
    Tcp { link, content }: Tcp<H>,
    switch: Switch<H>,
    to: &Peer<H>,
) -> Tcp<H> {
    let Switch { terms, received, share, .. } = switch;
    let memory = &network.own.claims.memory;
    let mut link = link.of_next(&to.qp.sq, memory);
    let tcp = link.tcp_mut();
    let (first, share) = match content {
        Content::Bytes(bytes) => bytes.receives.hand_over(received, share),
        Content::Rdma(_) | Content::Iscsi(_) => (received, share),
    };
    tcp.set_half_open(false);
    tcp.set_window(WINDOW);
    let switched = Switched::new(first, share, tcp.sent(), tcp.delivered());
    let config = Config {
        wishes: Wishes { ird: terms.agreement.ird, ord: terms.agreement.ord, ..Wishes::default() },
        capacity: to.qp.sq.size().min(OUTSTANDING) as usize,
        emss: u32::try_from(tcp.mss()).unwrap_or(u32::MAX),
        rule: rule_of(to.qp.flags),
        extensions: true,
        ..Config::default()
    };
    let stream = Stream::agreed(config, terms.agreement, terms.peer_first);
    let rdma = Rdma::new(now, Role::Stream, to.qp.options, link.tcp(), stream, memory);
    let rdma = rdma.after(switched);
    Tcp { link, content: Content::Rdma(Box::new(rdma)) }
}
