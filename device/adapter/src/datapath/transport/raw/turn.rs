//! A turn of the send queue.
//!
//! Each entry is complete when its frame has left. A frame whose source is an address of the
//! adapter goes directly to an adapter of this daemon whose rules take it. Every other frame goes
//! through the switch, which checks its source and VLAN as those of the guest's network card.

use std::sync::Arc;

use vrnic_abi::sq::Opcode;

use super::compose::compose;
use crate::datapath::complete::Completer;
use crate::datapath::constants::NO_ROOM_PAUSE;
use crate::datapath::send_queue::{BATCH, Entry, Taken, Turn, not_now, take};
use crate::datapath::transport::peers::Network;
use crate::datapath::transport::rules;
use crate::datapath::turn::TurnContext;
use crate::datapath::wqe_fetch::Batch;
use crate::host::Host;
use crate::objects::completion::{Completion, WrError};
use crate::objects::qp::{Outbox, Qp, Requester};
use crate::requests::wqe::{Malformed, SendWqe};
use crate::slice::cost;
use crate::stats::Counter;
use crate::vlans::Vlans;

/// A turn of a QP of raw packets.
struct RawTurn<'a, 't, H: Host> {
    network: Network<'a, H>,
    here: &'a TurnContext<'t, H>,
    qp: &'a Arc<Qp<H>>,
    requester: &'a mut Requester<H>,
    /// The frames of the turn.
    outbox: Box<Outbox>,
    room: Room,
}

/// The number of frames for which a station has room.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    to: [u8; 6],
    frames: usize,
}

/// The result of sending a frame.
enum Sent {
    /// It leaves at the end of the turn, or is lost.
    Done,
    /// The work request is faulty.
    Failed(WrError),
    /// The network has no room for it at present.
    Later,
}

/// Executes entries of the send queue of `qp`, which are copied to `batch`.
pub(crate) fn run<H: Host>(
    network: Network<'_, H>,
    here: &TurnContext<'_, H>,
    qp: &Arc<Qp<H>>,
    requester: &mut Requester<H>,
    batch: &mut Batch,
) -> Turn {
    let outbox = requester.outbox.take().unwrap_or_default();
    let room = Room::default();
    let mut turn = RawTurn { network, here, qp, requester, outbox, room };
    let end = turn.run(batch);
    turn.send_off();
    turn.requester.outbox = Some(turn.outbox);
    end
}

impl<H: Host> RawTurn<'_, '_, H> {
    fn run(&mut self, batch: &mut Batch) -> Turn {
        let (here, qp) = (self.here, self.qp);
        let mut entry = Entry::EMPTY;
        for _ in 0..BATCH {
            match take(here, qp, self.requester, batch, &mut entry) {
                Taken::Entry => {}
                Taken::Empty => return Turn::Idle,
                Taken::Later(until) => return Turn::Wait(until),
                Taken::Malformed(Malformed { id, opcode, status }) => {
                    let completion = Completion::of_send(qp.qpn, id, opcode, status);
                    let end = Completer { here, qp }.end(&completion, true);
                    return end.unwrap_or(Turn::Failed);
                }
                Taken::Failed => return Turn::Failed,
            }
            let done = self.execute(&entry.send, batch.entry(&entry.place));
            if let Some(end) = done.or_else(|| not_now(here.core, qp, self.requester)) {
                return end;
            }
            if here.slice.is_over() {
                break;
            }
        }
        Turn::More
    }

    /// Executes an entry and writes its completion. Returns `None` if the next entry can be
    /// executed.
    fn execute(&mut self, send: &SendWqe, raw: &[u8]) -> Option<Turn> {
        let completer = Completer { here: self.here, qp: self.qp };
        let result = match self.send(send, raw) {
            Sent::Done => Ok(()),
            Sent::Failed(error) => Err(error),
            Sent::Later => {
                self.requester.keep(send, raw, 0);
                let until = self.here.host().now().plus(NO_ROOM_PAUSE);
                self.requester.not_before = Some(until);
                return Some(Turn::Wait(until));
            }
        };
        completer.finish(send, send.completed(), None, result)
    }

    /// Composes the frames of an entry.
    fn send(&mut self, send: &SendWqe, raw: &[u8]) -> Sent {
        let here = self.here;
        let joins = send.opcode == Opcode::Segment && self.network.fabric.joins();
        let fresh = &mut self.outbox.fresh;
        fresh.clear();
        if let Err(error) = compose(here, self.qp, send, raw, joins, fresh) {
            return Sent::Failed(error);
        }
        let (frames, bytes) = fresh.iter().fold((0, 0), |(frames, bytes), frame| {
            (frames + frame.count(), bytes + frame.total() as u64)
        });
        if !here.core.carries() {
            here.add(Counter::TxRoceDiscards, frames as u64);
            return Sent::Done;
        }
        let Some(first) = fresh.first() else { return Sent::Done };
        let (source, to) = (first.source(), first.destination());
        if !self.has_room(to, frames) {
            return Sent::Later;
        }
        here.slice.charge(cost::PACKET * frames as u64);
        here.slice.charge_copy(bytes);
        here.moved(bytes);
        here.add(Counter::TxPkts, frames as u64);
        here.add(Counter::TxBytes, bytes);
        self.leave(source);
        Sent::Done
    }

    /// Returns whether there is room for this number of frames to a station, which is then taken.
    fn has_room(&mut self, to: [u8; 6], frames: usize) -> bool {
        if self.room.to != to || self.room.frames < frames {
            // Those of this turn take room, too.
            self.send_off();
            let own = self.here.core.mac();
            self.room = Room { to, frames: self.network.fabric.room_by_all_ways(own, to) };
        }
        let has = self.room.frames > 0;
        self.room.frames = self.room.frames.saturating_sub(frames);
        has
    }

    /// Prepares the frames of the entry, which have this source, for the network.
    fn leave(&mut self, source: [u8; 6]) {
        let (own, core) = (self.network.own, self.here.core);
        let vlans = core.port.vlans();
        let is_own = source == core.mac() || self.network.has_address(source);
        let is_direct = is_own && *vlans == Vlans::All;
        let mut copies = 0;
        let Outbox { fresh, leaving } = &mut *self.outbox;
        for mut frame in fresh.drain(..) {
            frame.set_composed();
            if !is_direct {
                frame.set_for_switch();
            }
            copies += rules::copy(own, &frame);
            match vlans {
                Vlans::All | Vlans::Trunk(_) => leaving.push(frame),
                // A guest adds no tag itself here.
                Vlans::Access(vlan) => match frame.with_tag((*vlan).into()) {
                    Some(tagged) => leaving.push(tagged),
                    None => self.here.add(Counter::TxRoceDiscards, frame.count() as u64),
                },
            }
        }
        self.here.slice.charge_copies(copies);
    }

    /// Sends the frames of the turn.
    fn send_off(&mut self) {
        let leaving = &mut self.outbox.leaving;
        if !leaving.is_empty() {
            let copies = self.network.transmit_composed(self.qp.qpn, leaving);
            self.here.slice.charge_copies(copies);
        }
    }
}
