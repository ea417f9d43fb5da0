//! The path from a connected QP to its peer, and the state of its transport.

use std::sync::{Arc, Weak};

use vrnic_abi::connection::Ending;
use vrnic_tcp::Nanos;

use super::Qp;
use super::outstanding::Outstanding;
use super::remote::Sender;
use super::streaming::Streaming;
use crate::ethernet::Frame;
use crate::host::Host;
use crate::objects::core::Core;

/// The path to the peer of a connected QP. Whether a transport between daemons is necessary is
/// decided when the QP is connected. A QP of this daemon is looked up when the first message is
/// sent.
#[derive(Debug, Default)]
pub enum Path<H: Host> {
    /// The peer has not been looked up yet, or has been lost.
    #[default]
    Unknown,
    /// The peer is a QP of this daemon: messages are copied from one guest's memory to the other's.
    Local(Peer<H>),
    /// The peer is reached by packets.
    Packets(Box<Sender>),
    /// The peer is reached by a TCP connection.
    Stream(Box<Streaming>),
}

impl<H: Host> Path<H> {
    /// Returns the work requests that are not completed, if the peer is not reached by memory.
    pub fn outstanding(&mut self) -> Option<&mut Outstanding> {
        match self {
            Self::Unknown | Self::Local(_) => None,
            Self::Packets(sender) => Some(&mut sender.outstanding),
            Self::Stream(streaming) => Some(&mut streaming.outstanding),
        }
    }

    /// Drops the reference to a peer that is reached by memory. It is looked up again when
    /// necessary. Other transports keep their state.
    pub fn forget_peer(&mut self) {
        if let Self::Local(_) = self {
            *self = Self::Unknown;
        }
    }

    /// Returns whether a QP in the state SQD cannot return to RTS, because its connection is being
    /// closed.
    #[must_use]
    pub const fn closes_in_sqd(&self) -> bool {
        matches!(self, Self::Stream(_))
    }

    /// Records that the driver has moved the QP to the error state.
    pub fn end(&mut self) {
        if let Self::Stream(streaming) = self {
            streaming.life.end(Ending::Local);
        }
    }

    /// Ends the connection of a QP that is reset or destroyed at the time `now` in nanoseconds.
    /// Returns the frame that tells the peer, if there is one.
    pub fn hang_up(&mut self, now: u64) -> Option<Frame> {
        match self {
            Self::Unknown | Self::Local(_) | Self::Packets(_) => None,
            Self::Stream(streaming) => streaming.hang_up(Nanos(now)),
        }
    }
}

/// A connected QP of this daemon.
#[derive(Debug)]
pub struct Peer<H: Host> {
    /// The core of its adapter.
    pub core: Arc<Core<H>>,
    /// The QP.
    pub qp: Arc<Qp<H>>,
}

impl<H: Host> Clone for Peer<H> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core), qp: Arc::clone(&self.qp) }
    }
}

impl<H: Host> Peer<H> {
    /// Returns a reference that does not keep the QP and the core.
    #[must_use]
    pub fn downgrade(&self) -> WeakPeer<H> {
        WeakPeer { core: Arc::downgrade(&self.core), qp: Arc::downgrade(&self.qp) }
    }
}

/// A connected QP of this daemon, as long as its adapter has it.
#[derive(Debug)]
pub struct WeakPeer<H: Host> {
    core: Weak<Core<H>>,
    qp: Weak<Qp<H>>,
}

impl<H: Host> WeakPeer<H> {
    /// Returns the QP, if it still exists.
    #[must_use]
    pub fn upgrade(&self) -> Option<Peer<H>> {
        Some(Peer { core: self.core.upgrade()?, qp: self.qp.upgrade()? })
    }
}
