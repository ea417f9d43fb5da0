//! Pairing: if both ends of a connection belong to QPs of this daemon, their messages are copied
//! from memory to memory.
//!
//! TCP carries the start frames and the first message, so that each end knows that the other one
//! has the connection, and what it has agreed on. Each end then decides about the messages that it
//! sends. From then on, TCP only carries the end of the connection: a Terminate, a FIN or a reset.

use std::time::Duration;

use vrnic_abi::connection::Stage;
use vrnic_abi::cq::Status;
use vrnic_abi::qp::State;
use vrnic_abi::sq::{Class, Opcode};
use vrnic_iwarp::rdmap::memory::{Operation, Refused};
use vrnic_iwarp::rdmap::terminate::{cause, outcome};
use vrnic_iwarp::stream::close::State as StreamState;
use vrnic_iwarp::wire::ddp::{Stag, Tagged};
use vrnic_iwarp::wire::rdmap::AtomicOp;
use vrnic_iwarp::wire::terminate::Cause;
use vrnic_packet::{Mtu, Nanos};
use vrnic_roce::Psn;
use vrnic_tcp::connection::State as TcpState;
use vrnic_tcp::wire::frame::Path as TcpPath;

use super::memory::refused;
use super::turn::{RdmaTurn, Way, error_of};
use crate::datapath::refusal::Refusal;
use crate::host::Host;
use crate::objects::network::claims::Tuple;
use crate::objects::qp::tcp::link::Link;
use crate::objects::qp::tcp::rdma::{Pairing, Rdma};
use crate::objects::qp::tcp::{Content, Tcp};
use crate::objects::qp::{Path, Peer, Qp, Requester};
use crate::requests::wqe::SendWqe;

/// Time limit for the other end to open the connection, too.
const PAIR_TIMEOUT: Duration = Duration::from_millis(20);
/// Time between two checks of the other end.
const POLL_INTERVAL: Duration = Duration::from_micros(10);

/// Returns whether the connection of a QP has no work until a frame arrives or it ends.
#[inline]
pub(crate) fn is_dormant<H: Host>(qp: &Qp<H>, requester: &Requester<H>) -> bool {
    requester.path.rdma().is_some_and(|rdma| rdma.dormant) && qp.state() == State::Rts
}

/// Returns the cause of the Terminate for a message that is refused, and the status of the sender's
/// work request.
pub(crate) fn terminate(send: &SendWqe, refusal: Refusal) -> (Cause, Status) {
    let place = Tagged { stag: Stag(send.rkey.get()), to: send.raddr };
    let info = send.opcode.info();
    let operation = match info.class {
        Class::Write | Class::AtomicWrite | Class::Flush => Operation::Write(place),
        Class::Read => Operation::Read(place),
        Class::Atomic => {
            let op = AtomicOp::FetchAdd { add: 0, mask: 0 };
            Operation::Atomic(place, op)
        }
        Class::Send | Class::Local => Operation::Send(info.invalidate.then_some(place.stag)),
    };
    let aligned = info.class != Class::Atomic || send.raddr.is_multiple_of(8);
    let refused = if aligned { refused(refusal) } else { Refused::Unaligned };
    let cause = cause(&operation, refused);
    (cause, error_of(outcome(cause)).map_or(Status::FatalErr, |error| error.status))
}

/// Returns whether a connection can carry a work request. It cannot carry ATOMIC WRITEs, FLUSHes,
/// or immediate data of SENDs: in iWARP, immediate data is a message that takes a receive of its
/// own.
pub(crate) fn carries(send: &SendWqe) -> bool {
    let info = send.opcode.info();
    let of_roce = matches!(info.class, Class::AtomicWrite | Class::Flush);
    !of_roce && (send.imm().is_none() || info.class == Class::Write)
}

/// Sends something to a peer that has not answered for long, so that TCP finds out whether it is
/// gone. Returns whether there is something to send.
pub(crate) fn probe<H: Host>(requester: &mut Requester<H>, now: Nanos) -> bool {
    let Path::Tcp(tcp) = &mut requester.path else { return false };
    let Tcp { link, content: Content::Rdma(rdma) } = &mut **tcp else { return false };
    rdma.probe(link.tcp(), now) && {
        rdma.dormant = false;
        true
    }
}

impl<H: Host> RdmaTurn<'_, H> {
    /// Returns the path of the next work requests. It is decided once.
    pub(super) fn way(&mut self, now: Nanos) -> Way {
        if matches!(self.content.pairing, Pairing::Undecided) {
            match self.decide() {
                Some(pairing) => self.content.pairing = pairing,
                None if self.link.life().stage() == Stage::Opening => {
                    return Way::Later(None);
                }
                None => {
                    let until = now.plus(PAIR_TIMEOUT);
                    let until = *self.content.pair_by.get_or_insert(until);
                    if until > now {
                        // The longer it has taken, the longer are the pauses: other connections may
                        // be opening, too.
                        let waited = PAIR_TIMEOUT.saturating_sub(until.since(now));
                        let pause = POLL_INTERVAL.max(waited / 2);
                        return Way::Later(Some(now.plus(pause).min(until)));
                    }
                    self.content.pairing = Pairing::Apart;
                }
            }
        }
        let leaves = self.qp.state() == State::Sqd
            && self.requester.current.is_none()
            && self.requester.open_reads.is_empty();
        // When it leaves, the rest of the posted requests is sent by TCP, followed by the end of
        // the connection.
        if self.content.pairing.is_paired() && !leaves { Way::Memory } else { Way::Tcp }
    }

    /// Decides whether the two ends are paired. Returns `None` if that cannot be known yet.
    fn decide(&mut self) -> Option<Pairing<H>> {
        let (fabric, to) = (self.network.fabric, self.link.ends().next_hop());
        let open = match self.link.life().stage() {
            Stage::Opening => false,
            Stage::Open => true,
            _ => return Some(Pairing::Apart),
        };
        let apart = fabric.needs_packets(to) || fabric.station(to).is_none();
        if apart || self.qp.state() != State::Rts {
            return Some(Pairing::Apart);
        }
        if !open {
            return None;
        }
        // The other end has sent a message, so if a QP of this daemon has it, that QP can be found.
        let Some(peer) = self.other_end() else { return Some(Pairing::Apart) };
        let mut theirs = peer.qp.requester.try_lock()?;
        let theirs = &mut *theirs;
        let Path::Tcp(other) = &theirs.path else { return Some(Pairing::Apart) };
        let Content::Rdma(rdma) = &other.content else { return Some(Pairing::Apart) };
        let decided = matches!(rdma.pairing, Pairing::Apart | Pairing::Refused);
        if decided || !self.is_other_end(&peer, &other.link, rdma) {
            return Some(Pairing::Apart);
        }
        let drained = self.link.outstanding().is_empty() && self.requester.current.is_none();
        let [sent, _] = self.link.tcp().numbers();
        let [_, received] = other.link.tcp().numbers();
        let quiet = drained && self.content.stream.has_sent_all() && sent == received;
        if other.link.life().stage() == Stage::Opening || !quiet {
            return None;
        }
        let ird = rdma.stream.agreement().map_or(0, |agreed| agreed.ird);
        if matches!(rdma.pairing, Pairing::Undecided) {
            peer.qp.schedule(&peer.core);
        }
        self.pair(&peer, Psn::new(sent.0), ird);
        Some(Pairing::Paired(peer.downgrade()))
    }

    /// Returns the QP of this daemon that has the other end of the connection.
    fn other_end(&self) -> Option<Peer<H>> {
        let TcpPath { source, destination, .. } = self.link.ends().path;
        let to = self.link.ends().next_hop();
        let station = self.network.fabric.station(to)?;
        let vlan = to.vlan;
        let tuple = Tuple { vlan, local: destination, remote: source };
        let qp = station.qp(station.claims.find(&tuple)?)?;
        let other = !std::ptr::eq(&raw const *qp, &raw const **self.qp);
        other.then(|| Peer { core: station.core().clone(), qp })
    }

    /// Returns whether `other` is the other end of the same connection.
    fn is_other_end(&self, peer: &Peer<H>, link: &Link<H>, rdma: &Rdma<H>) -> bool {
        let (own, theirs) = (&self.link.ends().path, &link.ends().path);
        let runs = |link: &Link<H>, rdma: &Rdma<H>| {
            link.tcp().state() == TcpState::Established
                && matches!(rdma.stream.state(), StreamState::Starting | StreamState::Rts)
        };
        (theirs.source, theirs.destination) == (own.destination, own.source)
            && (theirs.to, theirs.from) == (own.from, own.to)
            && peer.qp.state() == State::Rts
            && link.life().stage() as u8 <= Stage::Open as u8
            && runs(self.link, self.content)
            && runs(link, rdma)
    }

    /// Makes the messages of this end go to the memory of the other one, which accepts as many
    /// READs and atomics as it has agreed to.
    fn pair(&mut self, peer: &Peer<H>, psn: Psn, ird: u16) {
        let (path, route) = (self.link.ends().path, self.link.ends().route());
        let few = |count: u16| u8::try_from(count).unwrap_or(u8::MAX);
        let reads = few(ird);
        {
            let mut attr = peer.qp.attr.lock();
            attr.dest_qpn = self.qp.qpn;
            attr.av.dmac = path.from.0;
            attr.rq_psn = psn.get().into();
            attr.max_dest_rd_atomic = reads;
        }
        {
            let mut responder = peer.qp.responder.lock();
            responder.source_qpn = self.qp.qpn;
            responder.route = route;
            responder.first_psn = psn;
            responder.max_dest_rd_atomic = reads;
        }
        let ord = self.content.stream.agreement().map_or(0, |agreed| agreed.ord);
        let mut attr = self.qp.attr.lock();
        attr.dest_qpn = peer.qp.qpn;
        attr.av.dmac = path.to.0;
        attr.sq_psn = psn.get().into();
        attr.max_rd_atomic = few(ord);
        // Only TCP detects that the other end is gone.
        attr.timeout = 0;
        attr.path_mtu = Mtu::within(self.link.ends().mss.into()).code();
        let config = &mut self.requester.config;
        config.dest_qpn = attr.dest_qpn;
        config.route = route;
        config.mtu = attr.path_mtu;
        config.timeout = 0;
        config.max_rd_atomic = attr.max_rd_atomic;
        config.first_psn = psn;
        drop(attr);
        self.content.needs_no_nudges();
        self.link.tcp_mut().stop_keepalive();
    }

    /// Stops to receive copied messages from the other end, because this end has finished.
    pub(super) fn part(&self) {
        if self.content.stream.state() != StreamState::Rts {
            self.qp.responder.lock().route = None;
        }
    }

    /// Passes the message in progress to the stream if the peer has closed, so that it is
    /// outstanding at the end of the stream.
    pub(super) fn hand_back(&mut self) {
        let closed = self.link.tcp().state() == TcpState::CloseWait;
        let sends = |send: &SendWqe| !send.is_local() && send.opcode != Opcode::RegMr;
        if !closed || !self.content.pairing.is_paired() {
            return;
        }
        if let Some(send) = self.requester.current.filter(sends) {
            let raw = std::mem::take(&mut self.requester.raw);
            self.requester.current = None;
            let _taken = self.push(&send, &raw);
        }
    }
}
