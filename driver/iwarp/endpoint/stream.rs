// SPDX-License-Identifier: GPL-2.0
//! A connection of a lent socket, which carries the bytes of a TOE queue pair.

use abi::{Qpn, connection::RECEIVED_MAX};
use kernel::{device, dma::CoherentBox, page::PAGE_SIZE, prelude::*, sync::Arc};

use super::{Endpoint, State};
use crate::{
    iwarp::{
        commands::Start,
        connection::Connection,
        socket::{Lender, Snapshot, Socket},
    },
    rdma::port::netdev::NetdevRef,
};

/// The most bytes that can be handed over.
// CAST: to the wider type.
const MOST: usize = RECEIVED_MAX as usize;

impl Endpoint {
    /// Hands the connection of a lent socket over to the adapter, with the bytes that were not
    /// read. If that fails, nothing has changed.
    pub(in crate::iwarp) fn lend(
        self: &Arc<Self>,
        device: &device::Device<device::Bound>,
        netdev: NetdevRef,
        qpn: Qpn,
        lender: &Lender<'_>,
    ) -> Result {
        let mut state = self.state.lock();
        if !matches!(*state, State::Reserved) {
            return Err(ECONNABORTED);
        }
        let socket = Socket::lent(lender, self.clone())?;
        // More may arrive until the socket is locked.
        let room = (socket.unread() + PAGE_SIZE).next_multiple_of(PAGE_SIZE).min(MOST);
        let snapshot = match self.hand_bytes_over(device, &netdev, &socket, qpn, room) {
            Err(error) if error == EMSGSIZE && room < MOST => {
                self.hand_bytes_over(device, &netdev, &socket, qpn, MOST)
            }
            result => result,
        }?;
        *state = State::Taken(Connection::stream(qpn, netdev, socket, snapshot));
        drop(state);
        self.enqueue();
        Ok(())
    }

    /// Lets the adapter move the connection to another QP. If that fails, nothing has changed.
    pub(in crate::iwarp) fn start(self: &Arc<Self>, start: &Start<'_>) -> Result {
        let mut state = self.state.lock();
        let State::Taken(taken) = &mut *state else { return Err(ENOTCONN) };
        if !taken.is_stream(start.from) {
            return Err(ENOTCONN);
        }
        self.connections.commands.start(start)?;
        taken.switch(start.to);
        drop(state);
        self.enqueue();
        Ok(())
    }

    /// Does so if at most `room` bytes have not been read. Others wait for the lock of the socket,
    /// such as programs that show all sockets. So while it is locked, nothing waits for memory, or
    /// for an adapter that is known to stall.
    fn hand_bytes_over(
        &self,
        device: &device::Device<device::Bound>,
        netdev: &NetdevRef,
        socket: &Socket<Self>,
        qpn: Qpn,
        room: usize,
    ) -> Result<Snapshot> {
        let card = self.connections.card.as_ref().unwrap_or(netdev);
        let mut unread = CoherentBox::<[u8]>::zeroed_slice(device, room, GFP_KERNEL)?;
        let opening = self.connections.commands.stream()?;
        let (held, snapshot, count) = socket.hold(netdev, card, &mut unread)?;
        // Frames of a guest that is connected to itself do not pass the adapter.
        if snapshot.own {
            return Err(EOPNOTSUPP);
        }
        opening.run(qpn, &snapshot, &unread.into(), count)?;
        held.take();
        Ok(snapshot)
    }
}
