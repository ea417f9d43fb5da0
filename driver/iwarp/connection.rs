// SPDX-License-Identifier: GPL-2.0
//! A connection that the adapter has taken over, and the events that must still be reported to its
//! owner.

use abi::{
    Qpn,
    connection::{ConnectionStatus, Ending, START_MAX, Stage},
};
use kernel::{
    prelude::*,
    time::hrtimer::{ArcHrTimerHandle, HasHrTimer},
};

use super::{
    socket::{Macs, Snapshot, Socket, Watch},
    start,
};
use crate::rdma::{
    iwcm::{Accepts, Address, Closing, CmId, Connected, Connects, Depths},
    port::netdev::NetdevRef,
};

/// The events that must still be reported to the owner of a connection.
enum Owes {
    /// The reply and, if the reply is a success, the events that follow an open connection.
    Reply { id: CmId<Connects>, names: KBox<(Address, Address)> },
    /// The event that it is established, and the events that follow an open connection.
    Established { id: CmId<Accepts> },
    /// Two events: that the peer closes the connection, if it does so, and that the connection has
    /// ended.
    Close { id: CmId<Connected> },
    /// That the connection has ended. The event that the peer closes it was reported.
    LastClose { id: CmId<Closing> },
    /// No event: the connection carries bytes, and completions tell its owner everything. The
    /// adapter has it still.
    Stream,
    /// No event.
    Nothing,
}

/// A connection that the adapter has taken over. The socket holds its addresses until the adapter
/// no longer expects frames of the connection. A `W` is notified of changes of the socket.
pub(super) struct Connection<W: Watch + HasHrTimer<W>> {
    pub(super) qpn: Qpn,
    socket: Option<Socket<W>>,
    /// The network device of the connection, until the owner has got the last event.
    netdev: Option<NetdevRef>,
    snapshot: Snapshot,
    owes: Owes,
    /// True if it carries bytes.
    bytes: bool,
    /// True if it must leave the adapter as soon as possible.
    pub(super) leaves: bool,
    /// The time in which it must be closed.
    pub(super) limit: Option<ArcHrTimerHandle<W>>,
    /// What the observer may know: stage, state, events.
    seen: (u8, u8, u16),
}

impl<W: Watch + HasHrTimer<W>> Connection<W> {
    /// Returns a connection that this end has initiated. The reply must still be reported to its
    /// owner.
    pub(super) fn initiated(
        qpn: Qpn,
        netdev: NetdevRef,
        socket: Socket<W>,
        snapshot: Snapshot,
        id: CmId<Connects>,
        names: KBox<(Address, Address)>,
    ) -> Self {
        Self::new(qpn, netdev, socket, snapshot, Owes::Reply { id, names })
    }

    /// Returns a connection that this end has accepted. The event that it is established must still
    /// be reported to its owner.
    pub(super) fn accepted(
        qpn: Qpn,
        netdev: NetdevRef,
        socket: Socket<W>,
        snapshot: Snapshot,
        id: CmId<Accepts>,
    ) -> Self {
        Self::new(qpn, netdev, socket, snapshot, Owes::Established { id })
    }

    /// Returns a connection of a program's socket, which carries bytes.
    pub(super) fn stream(
        qpn: Qpn,
        netdev: NetdevRef,
        socket: Socket<W>,
        snapshot: Snapshot,
    ) -> Self {
        Self { bytes: true, ..Self::new(qpn, netdev, socket, snapshot, Owes::Stream) }
    }

    fn new(qpn: Qpn, netdev: NetdevRef, socket: Socket<W>, snapshot: Snapshot, owes: Owes) -> Self {
        Self {
            qpn,
            socket: Some(socket),
            netdev: Some(netdev),
            snapshot,
            owes,
            bytes: false,
            leaves: false,
            limit: None,
            seen: (0, 0, 0),
        }
    }

    /// Records that its other queue pair has it, with messages.
    pub(super) fn switch(&mut self, to: Qpn) {
        self.qpn = to;
        self.bytes = false;
    }

    /// Returns whether it carries bytes.
    pub(super) fn is_bytes(&self) -> bool {
        self.bytes
    }

    /// Returns whether the observer may not know this state, and counts it as known.
    pub(super) fn saw(&mut self, status: &ConnectionStatus) -> bool {
        let now = (status.stage, status.state, status.events.get());
        core::mem::replace(&mut self.seen, now) != now
    }

    /// Returns whether no more bytes are exchanged in this state.
    pub(super) fn is_over(&self, status: &ConnectionStatus) -> bool {
        status.stage >= Stage::Closed as u8
    }

    /// Returns the MACs of the connection's frames if they are others than those that the adapter
    /// knows. `card` is the network card, if it is not the network device of the connection.
    pub(super) fn other_macs(&self, card: Option<&NetdevRef>) -> Option<Macs> {
        let (socket, netdev) = (self.socket.as_ref()?, self.netdev.as_ref()?);
        let known = Macs { own: self.snapshot.smac, next_hop: self.snapshot.dmac };
        // A connection whose route leads elsewhere keeps its MACs.
        let macs = socket.macs(netdev, card.unwrap_or(netdev), &self.snapshot).ok()?;
        (macs != known).then_some(macs)
    }

    /// Records that the adapter knows these MACs.
    pub(super) fn set_macs(&mut self, macs: Macs) {
        (self.snapshot.smac, self.snapshot.dmac) = (macs.own, macs.next_hop);
    }

    /// Returns whether this QP has it, and it has carried bytes and has not ended.
    pub(super) fn is_stream(&self, qpn: Qpn) -> bool {
        self.qpn == qpn && matches!(self.owes, Owes::Stream)
    }

    /// Returns whether the owner has got the last event.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.owes, Owes::Nothing)
    }

    /// Returns whether the kernel has received a segment that the adapter should have received. The
    /// socket of a program may have received some that were on their way during the takeover: the
    /// peer sends them again, because the adapter lets no acknowledgement of the kernel pass.
    pub(super) fn was_touched(&self) -> bool {
        let touched = |socket: &Socket<W>| !socket.is_untouched(&self.snapshot);
        !matches!(self.owes, Owes::Stream) && self.socket.as_ref().is_some_and(touched)
    }

    /// If the guest is connected to itself, the adapter does not have the other end, and the other
    /// end rejected the request, then the rejection has arrived at the socket. Reports it to the
    /// owner.
    pub(super) fn take_rejection(&mut self) -> Result {
        let Some(socket) = self.socket.as_ref().filter(|_| self.snapshot.own) else {
            return Ok(());
        };
        if !matches!(self.owes, Owes::Reply { .. }) {
            return Ok(());
        }
        socket.give_back();
        let mut reply = KBox::new([0; START_MAX], GFP_KERNEL)?;
        let Ok(Some(count)) = socket.read(&mut *reply) else { return Ok(()) };
        if let Some(private) = reply.get(..count).and_then(start::rejected) {
            let mut status = KBox::new(ConnectionStatus::default(), GFP_KERNEL)?;
            status.private_len = u16::try_from(private.len())?.into();
            status.private.get_mut(..private.len()).ok_or(EPROTO)?.copy_from_slice(private);
            self.close(Ending::Rejected, &status);
        }
        Ok(())
    }

    /// Reports the changes of the connection's state to the owner.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no memory for the private data of a reply. The reply must still be
    /// reported then, and the connection must be aborted.
    pub(super) fn follow(&mut self, status: &ConnectionStatus) -> Result {
        let stage = Stage::from_raw(status.stage).unwrap_or(Stage::Closed);
        if status.was_open != 0 || stage == Stage::Open {
            self.open(status)?;
        }
        if stage == Stage::Closing {
            self.disconnect();
        }
        if matches!(stage, Stage::Closed | Stage::Gone) {
            self.close(Ending::from_raw(status.ending).unwrap_or(Ending::Abortive), status);
        }
        if stage == Stage::Gone {
            self.socket = None;
        }
        Ok(())
    }

    /// Reports the last events of a connection that the driver ends.
    pub(super) fn end(&mut self) {
        // Another queue pair may have the number soon.
        (self.leaves, self.limit) = (false, None);
        self.close(Ending::Local, &ConnectionStatus::default());
    }

    fn open(&mut self, status: &ConnectionStatus) -> Result {
        let (own, mut result) = (depths(status), Ok(()));
        self.owes = match core::mem::replace(&mut self.owes, Owes::Nothing) {
            // If there is no memory for the private data, the reply is not reported without it: the
            // peer may depend on it.
            Owes::Reply { id, names } => match id.reply(&names, own, private(status)) {
                Ok(id) => Owes::Close { id },
                Err(id) => {
                    result = Err(ENOMEM);
                    Owes::Reply { id, names }
                }
            },
            Owes::Established { id } => Owes::Close { id: id.establish(own) },
            owes => owes,
        };
        result
    }

    fn disconnect(&mut self) {
        self.owes = match core::mem::replace(&mut self.owes, Owes::Nothing) {
            Owes::Close { id } => Owes::LastClose { id: id.disconnect() },
            owes => owes,
        };
    }

    fn close(&mut self, ending: Ending, status: &ConnectionStatus) {
        self.netdev = None;
        match core::mem::replace(&mut self.owes, Owes::Nothing) {
            Owes::Reply { id, names } => {
                if let Some(socket) = self.socket.take_if(|_| self.snapshot.own) {
                    // The kernel may have the other end, which is closed when the socket is closed.
                    socket.give_back();
                }
                let private = if ending == Ending::Rejected { private(status) } else { &[] };
                id.refuse(error(ending), &names, private);
            }
            // The core needs both events.
            Owes::Established { id } => id.establish(depths(status)).close(),
            Owes::Close { id } => id.close(),
            Owes::LastClose { id } => id.close(),
            Owes::Stream | Owes::Nothing => {}
        }
    }
}

fn depths(status: &ConnectionStatus) -> Depths {
    let depth = |depth: u16| u8::try_from(depth).unwrap_or(u8::MAX);
    Depths { ird: depth(status.ird.get()), ord: depth(status.ord.get()) }
}

/// Returns the private data of the peer. The core passes on at most 255 bytes of it.
fn private(status: &ConnectionStatus) -> &[u8] {
    let len = usize::from(status.private_len.get()).min(u8::MAX.into());
    status.private.get(..len).unwrap_or_default()
}

/// Returns the error with which the core is notified that a connection was not established.
fn error(ending: Ending) -> Error {
    match ending {
        Ending::Rejected => ECONNREFUSED,
        Ending::TimedOut => ETIMEDOUT,
        Ending::Reset => ECONNRESET,
        Ending::Refused | Ending::TerminateSent | Ending::TerminateReceived => EPROTO,
        Ending::None | Ending::Graceful | Ending::Abortive | Ending::Local | Ending::BadClose => {
            ECONNABORTED
        }
    }
}
