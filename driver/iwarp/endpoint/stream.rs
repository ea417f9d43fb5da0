// SPDX-License-Identifier: GPL-2.0
//! A connection of a lent socket, which carries the bytes of a TOE queue pair.

use abi::{Qpn, connection::RECEIVED_MAX};
use kernel::{device, dma::Coherent, prelude::*, sync::Arc};

use super::{Endpoint, State};
use crate::{
    iwarp::{
        commands::Start,
        socket::{Lender, Snapshot, Socket},
        taken::Taken,
    },
    rdma::netdev::NetdevRef,
};

/// Bytes for which there is room at first. The kernel promises no more to the peer of a program
/// that does not read, unless the program has asked for more.
const FIRST_BUFFER_LEN: usize = 64 << 10;

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
        let snapshot = match self.hand_bytes_over(device, &netdev, &socket, qpn, FIRST_BUFFER_LEN) {
            Err(error) if error == EMSGSIZE => {
                self.hand_bytes_over(device, &netdev, &socket, qpn, RECEIVED_MAX as usize)
            }
            result => result,
        }?;
        *state = State::Taken(Taken::stream(qpn, netdev, socket, snapshot));
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

    /// Does so if at most `room` bytes have not been read.
    fn hand_bytes_over(
        &self,
        device: &device::Device<device::Bound>,
        netdev: &NetdevRef,
        socket: &Socket<Self>,
        qpn: Qpn,
        room: usize,
    ) -> Result<Snapshot> {
        let card = self.connections.card.as_ref().unwrap_or(netdev);
        let mut unread = KVVec::from_elem(0, room, GFP_KERNEL)?;
        let (held, snapshot) = socket.hold(netdev, card, &mut unread)?;
        // Frames of a guest that is connected to itself do not pass the adapter.
        if snapshot.own {
            return Err(EOPNOTSUPP);
        }
        let received = match held.unread.len() {
            0 => None,
            _ => Some(Coherent::<u8>::from_slice(device, held.unread, GFP_KERNEL)?),
        };
        let commands = &self.connections.commands;
        commands.open_stream(qpn, &snapshot, received.as_ref())?;
        held.take();
        Ok(snapshot)
    }
}
