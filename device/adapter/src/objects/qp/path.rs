//! The path from a connected QP to its peer, and the state of its transport.

use vrnic_abi::connection::{ConnectionStatus, Ending};
use vrnic_abi::eq::Kind;
use vrnic_packet::Nanos;

use super::outstanding::Outstanding;
use super::peer::Peer;
use super::remote::Sender;
use super::tcp::bytes::switch::Switch;
use super::tcp::iscsi::Terms;
use super::tcp::promise::Promise;
use super::tcp::rdma::Rdma;
use super::tcp::{Content, Promised, Tcp};
use crate::ethernet::Frame;
use crate::host::Host;

/// The path to the peer of a connected QP. Whether a transport between daemons is necessary is
/// decided when the QP is connected.
#[derive(Debug, Default)]
pub enum Path<H: Host> {
    /// Messages are copied from one guest's memory to the memory of another guest of this daemon.
    /// The peer is looked up when the first message is sent.
    #[default]
    Memory,
    /// The peer is reached by packets.
    Packets(Box<Sender>),
    /// The peer is reached by a TCP connection.
    Tcp(Box<Tcp<H>>),
    /// The peer will be reached by a TCP connection that the QP does not have yet.
    Promised(Box<Promised<H>>),
}

impl<H: Host> Path<H> {
    /// Returns the work requests that are not completed, if the peer is not reached by memory.
    pub fn outstanding(&mut self) -> Option<&mut Outstanding> {
        match self {
            Self::Memory | Self::Promised(_) => None,
            Self::Packets(sender) => Some(&mut sender.outstanding),
            Self::Tcp(tcp) => Some(tcp.link.outstanding_mut()),
        }
    }

    /// Returns the number of bytes that are counted in the memory for connections.
    #[must_use]
    pub fn charged(&self) -> usize {
        match self {
            Self::Memory | Self::Promised(_) => 0,
            Self::Packets(sender) => sender.charged(),
            Self::Tcp(tcp) => tcp.charged(),
        }
    }

    /// Returns the state of the TCP connection that the QP has, or gets from another QP.
    pub fn status(&mut self) -> Option<ConnectionStatus> {
        if let Self::Tcp(tcp) = self {
            return Some(tcp.status());
        }
        self.promise().map(|promise| promise.status())
    }

    /// Returns the terms of the iSCSI connection that the QP gets, if it gets one.
    #[must_use]
    pub fn terms(&self) -> Option<Terms> {
        let Self::Promised(promised) = self else { return None };
        if let Promised::Iscsi(terms) = **promised { Some(terms) } else { None }
    }

    /// Returns the messages in the TCP connection, if it carries messages.
    #[must_use]
    pub fn rdma(&self) -> Option<&Rdma<H>> {
        let Self::Tcp(tcp) = self else { return None };
        if let Content::Rdma(rdma) = &tcp.content { Some(rdma) } else { None }
    }

    /// Returns the messages in the TCP connection, to change them, if it carries messages.
    pub fn rdma_mut(&mut self) -> Option<&mut Rdma<H>> {
        let Self::Tcp(tcp) = self else { return None };
        if let Content::Rdma(rdma) = &mut tcp.content { Some(rdma) } else { None }
    }

    /// Returns whether a QP in the state SQD cannot return to RTS, because its connection is being
    /// closed.
    #[must_use]
    pub const fn closes_in_sqd(&self) -> bool {
        matches!(self, Self::Tcp(_))
    }

    /// Records that the driver has moved the QP to the error state.
    pub fn end(&mut self) {
        if let Self::Tcp(tcp) = self {
            tcp.link.life_mut().end(Ending::Local);
        } else if let Some(promise) = self.promise() {
            promise.refuse();
        }
    }

    /// Ends the connection of a QP that is reset or destroyed at the time `now`. Returns the frame
    /// that notifies the peer, if there is one.
    pub fn hang_up(&mut self, now: Nanos) -> Option<Frame> {
        self.end();
        let Self::Tcp(tcp) = self else { return None };
        if let Content::Bytes(bytes) = &mut tcp.content {
            break_promise(bytes.mode.switch.take(), Ending::Local);
        }
        tcp.link.hang_up(now)
    }

    /// Returns the promise of a connection on which RDMA begins, if the QP has one.
    pub fn promise(&mut self) -> Option<&mut Promise<H>> {
        let Self::Promised(promised) = self else { return None };
        if let Promised::Rdma(promise) = &mut **promised { Some(promise) } else { None }
    }
}

/// Ends a transition to RDMA: the QP that was to get the connection fails. The caller has the QP
/// locked that has the connection, and no other one.
pub(crate) fn break_promise<H: Host>(switch: Option<Box<Switch<H>>>, ending: Ending) {
    let Some(Peer { core, qp }) = switch.and_then(|switch| switch.to()) else { return };
    if let Some(promise) = qp.requester.lock().path.promise() {
        promise.end(ending);
    }
    core.report(Kind::ConnectionChanged, qp.qpn);
    qp.failed(&core, Kind::QpFatal);
}
