//! Forwards frames from their origin to the queues of ports.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::epoll::{self, EventFlags};
use vrnic_adapter::ethernet;
use vrnic_packet::MacAddr;

use super::{Switch, Token};
use crate::net::account::Account;
use crate::net::frame::Frame;
use crate::net::line::Change;
use crate::net::port::Port;
use crate::net::status::Reason;
use crate::net::table::{Origin, PortId, Route, Verdict};
use crate::net::turn::Turn;

/// Number of frames after which the queues of ports are flushed.
const CHUNK: usize = 64;

/// The origin of a frame.
#[derive(Clone, Copy)]
struct Entry<'a> {
    port: PortId,
    /// The account of the adapter that has sent the frame.
    account: Option<&'a Arc<Account>>,
}

impl Switch {
    /// Forwards frames of adapters until the turn is over. Returns whether any frames waited.
    pub(super) fn forward_outbox(&mut self, mut turn: Turn) -> bool {
        let shared = Arc::clone(&self.shared);
        let mut space = std::mem::take(&mut self.sent);
        let any = shared.outbox.take(&mut space, |port, account, frames| {
            self.forward_all(Entry { port, account: Some(account) }, frames, &mut turn);
            !turn.is_over()
        });
        self.sent = space;
        self.flush_grown();
        any
    }

    /// Forwards frames of an adapter, in order, until the turn is over.
    fn forward_all(
        &mut self,
        from: Entry<'_>,
        frames: &mut VecDeque<ethernet::Frame>,
        turn: &mut Turn,
    ) {
        // The port may have been removed since the frames were sent.
        let Some(port) = self.ports.get(&from.port) else { return frames.clear() };
        let status = Arc::clone(port.status());
        let now = Instant::now();
        while !turn.is_over()
            && let Some(frame) = frames.pop_front()
        {
            status.received.count(frame.count(), frame.total());
            // The frames of an adapter are never too short. If one were, it would be dropped.
            if let Ok(frame) = Frame::try_from(frame) {
                self.forward(from, frame, now, turn);
            }
            self.flush_chunk(turn);
        }
    }

    /// Forwards the frames that have arrived by a port until the turn is over, or all of them.
    /// Returns whether there were any.
    pub(super) fn forward_rest(&mut self, id: PortId, all: bool, turn: &mut Turn) -> bool {
        let now = Instant::now();
        let mut any = false;
        // Even if reading has taken the whole turn, one frame is forwarded, so that there is
        // progress.
        while !any || all || !turn.is_over() {
            let Some(frame) = self.ports.get_mut(&id).and_then(Port::take_rest) else { return any };
            any = true;
            self.forward(Entry { port: id, account: None }, frame, now, turn);
            self.flush_chunk(turn);
        }
        any
    }

    /// Learns the source address of a frame, and queues the frame at its destination ports.
    fn forward(&mut self, from: Entry<'_>, frame: Frame, now: Instant, turn: &mut Turn) {
        let Some(port) = self.ports.get(&from.port) else { return };
        let by_line = from.account.is_none();
        if by_line && port.obeys(&frame) {
            // Pauses may have ended.
            self.grown.push(from.port);
            return;
        }
        if !by_line && !port.admits(&frame) {
            return port.status().count_dropped(Reason::Vlan, frame.count());
        }
        let origin = Origin { port: from.port, uplink: port.is_uplink(), adapter: !by_line };
        // The same limits hold for frames of a program by its adapter and by its network card.
        let by_guest = by_line || frame.is_composed();
        let messages = |port| self.ports.get(&port)?.messages_from(frame.source());
        let may_send = port.may_send(frame.source(), by_guest)
            && self.table.hear(frame.sender(), origin, now, messages) == Verdict::Accept;
        let is_lent = !may_send && self.may_borrow(frame.source(), port);
        let has = is_lent && self.table.is_at(frame.sender(), from.port);
        if !may_send && !(is_lent && (by_line || has)) {
            return port.forged(&frame);
        }
        if by_guest && port.has_taken_over(&frame) {
            return;
        }
        let is_own = port.mac() == Some(frame.destination());
        if is_lent && !has {
            self.table.lend(frame.source(), from.port);
        }
        match self.table.route(frame.receiver(), from.port) {
            // A station behind the network card of the adapter's guest, or the card itself.
            Route::Filter if !by_line && (!is_own || by_guest) => {
                self.pass(from, from.port, frame, turn)
            }
            Route::Filter => {}
            Route::Port(to) => {
                if origin.uplink
                    && let Some(port) = self.ports.get_mut(&to)
                {
                    port.heard = Some(now);
                }
                self.pass(from, to, frame, turn);
            }
            route @ (Route::Group | Route::Unknown) => {
                // Messages of an adapter are not limited: an unreliable one to a station that never
                // answers would be lost, though the adapter waits for room on its way.
                let port = self.ports.get_mut(&from.port);
                if !by_guest || port.is_some_and(|port| port.may_flood(&frame, now)) {
                    let is_crowded = !origin.uplink && self.table.is_crowded(now);
                    self.flood(from, &frame, (route == Route::Unknown).then_some(is_crowded), turn);
                }
            }
        }
    }

    /// Queues a frame at all other ports. One to an unknown address goes only to the ports behind
    /// which it may be; `unknown` then says whether what a guest sends to an unknown address is
    /// probably for a station behind an uplink.
    fn flood(&mut self, from: Entry<'_>, frame: &Frame, unknown: Option<bool>, turn: &mut Turn) {
        let to = frame.destination();
        let may_have = |port: &Port| unknown.is_none_or(|is_crowded| port.may_have(to, is_crowded));
        let others = self.ports.iter().filter(|(id, port)| **id != from.port && may_have(port));
        for id in others.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.pass(from, id, frame.clone(), turn);
        }
    }

    /// Returns whether an address is of another port of the same guest. The cards of a bond use one
    /// address.
    fn may_borrow(&self, mac: MacAddr, port: &Port) -> bool {
        let owner = self.table.owner(mac).and_then(|owner| self.ports.get(&owner));
        owner.is_some_and(|owner| port.shares_guest(owner))
    }

    /// Gives addresses back that were lent between ports that are not of one guest any more.
    pub(super) fn keep_lent(&mut self) {
        let ports = &self.ports;
        self.table.keep_lent(|owner, port| {
            let ports = ports.get(&port).zip(ports.get(&owner));
            ports.is_some_and(|(port, owner)| port.shares_guest(owner))
        });
    }

    /// Queues a frame at a port, if it may go there.
    fn pass(&mut self, from: Entry<'_>, to: PortId, frame: Frame, turn: &mut Turn) {
        turn.spend(frame.count(), 0);
        let pair = self.ports.get(&from.port).zip(self.ports.get(&to));
        let Some((origin, _)) = pair.filter(|(from, to)| from.may_pass_to(to)) else { return };
        let origin = origin.lanes().cloned();
        self.queued += frame.count();
        if let Some(port) = self.ports.get_mut(&to)
            && port.send(frame, from.account, origin.as_ref())
            && self.grown.last() != Some(&to)
        {
            self.grown.push(to);
        }
    }

    /// Sends the frames that have been queued since the last call.
    pub(super) fn flush_grown(&mut self) {
        self.queued = 0;
        let mut grown = std::mem::take(&mut self.grown);
        for id in grown.drain(..) {
            let Some(port) = self.ports.get(&id) else { continue };
            // If epoll watches a port for room, it has none now.
            if (port.is_backed_up() || port.lanes().is_some()) && !port.watched_out {
                self.flush(id);
            }
        }
        self.grown = grown;
    }

    /// Sends the queued frames of a port. If some remain, watches the port for room.
    pub(super) fn flush(&mut self, id: PortId) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        if port.flush() == Change::Gone {
            self.disconnect(id);
            return;
        }
        let backed_up = port.is_backed_up();
        let Some(wire) = port.wire() else { return };
        if port.watched_out == backed_up || port.is_polled() {
            return;
        }
        let mut flags = EventFlags::IN;
        flags.set(EventFlags::OUT, backed_up);
        if let Err(error) = epoll::modify(&self.epoll, wire, Token::Wire(id).data(), flags) {
            tracing::error!(%error, "frames may be delayed: epoll cannot change the events of a port");
        }
        port.watched_out = backed_up;
    }

    /// Sends the frames that have been queued, if there are many.
    fn flush_chunk(&mut self, turn: &mut Turn) {
        if self.queued >= CHUNK {
            self.flush_grown();
            turn.read_clock();
        }
    }
}
