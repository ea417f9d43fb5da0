//! A turn of the send queue.
//!
//! Each entry is complete when its frame has left. A frame whose source is an address of the
//! adapter goes directly to an adapter of this daemon whose rules take it. Every other frame goes
//! through the switch, which checks its source and VLAN as it does for the guest's network card.

use std::sync::Arc;

use vrnic_abi::sq::Opcode;
use vrnic_packet::VlanMac;

use super::compose::{PORTION, compose};
use crate::datapath::complete::Completer;
use crate::datapath::outbox::Outbox;
use crate::datapath::send_queue::Turn;
use crate::datapath::space::Space;
use crate::datapath::transport::arrival::Arrival;
use crate::datapath::transport::executing::{Executor, execute_all, wait_for_room};
use crate::datapath::transport::peers::Network;
use crate::datapath::transport::{ingress, rules};
use crate::datapath::turn::TurnContext;
use crate::ethernet::{Frame, Heading};
use crate::host::Host;
use crate::objects::Objects;
use crate::objects::completion::WrError;
use crate::objects::qp::{Qp, Requester};
use crate::requests::wqe::SendWqe;
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
    outbox: &'a mut Outbox,
    /// The room for frames like the last ones.
    room: Option<Room>,
}

/// The number of frames with this direction for which there is room.
#[derive(Clone, Copy, Debug)]
struct Room {
    heading: Heading,
    frames: usize,
}

/// The result of sending frames of an entry.
enum Sent {
    /// All of them have left, leave at the end of the turn, or are lost.
    Done,
    /// So do those of this number of bytes of its data, and there are more.
    Part(u64),
    /// The work request is faulty.
    Failed(WrError),
    /// The network has no room for it at present.
    Later,
}

/// Executes entries of the send queue of `qp`. The entries and their frames are stored in `space`.
pub(crate) fn run<H: Host>(
    network: Network<'_, H>,
    here: &TurnContext<'_, H>,
    qp: &Arc<Qp<H>>,
    requester: &mut Requester<H>,
    Space { batch, outbox }: &mut Space,
) -> Turn {
    let mut turn = RawTurn { network, here, qp, requester, outbox, room: None };
    let end = execute_all(here, qp, &mut turn, batch);
    turn.send_off();
    turn.outbox.clear();
    end
}

impl<H: Host> Executor<H> for RawTurn<'_, '_, H> {
    fn requester(&mut self) -> &mut Requester<H> {
        self.requester
    }

    fn execute(&mut self, send: &SendWqe, raw: &[u8], mut done: u64) -> Option<Turn> {
        let result = loop {
            match self.send(send, raw, done) {
                Sent::Done => break Ok(()),
                Sent::Failed(error) => break Err(error),
                Sent::Part(now) => done = now,
                Sent::Later => {
                    return Some(wait_for_room(self.here, self.requester, send, raw, done));
                }
            }
            if self.here.slice.is_over() {
                self.requester.keep(send, raw, done);
                return Some(Turn::More);
            }
        };
        let completer = Completer { here: self.here, qp: self.qp };
        completer.finish(send, send.completed(), None, result)
    }
}

impl<H: Host> RawTurn<'_, '_, H> {
    /// Sends frames of an entry: those after the first `done` bytes of its data.
    fn send(&mut self, send: &SendWqe, raw: &[u8], done: u64) -> Sent {
        let here = self.here;
        if !here.core.carries() {
            here.add(Counter::TxRoceDiscards, send.frames_from(raw, done));
            return Sent::Done;
        }
        // Frames that have found no room are not composed before there is some.
        let full = self.requester.no_room_to.take();
        if full.is_some_and(|heading| !self.has_room(heading, 0)) {
            self.requester.no_room_to = full;
            return Sent::Later;
        }
        let joins =
            send.opcode == Opcode::Segment && self.network.joins() && !here.core.port.loops();
        self.outbox.fresh.clear();
        let composed = compose(here, self.qp, send, raw, joins, done, &mut self.outbox.fresh);
        let (frames, bytes) = self.outbox.fresh.iter().fold((0, 0), |(frames, bytes), frame| {
            (frames + frame.count(), bytes + frame.total() as u64)
        });
        // The time has been spent even if no frame leaves.
        let (count, copied) = match composed {
            Ok(_) => (frames as u64, bytes),
            Err(_) => (send.frames_from(raw, done).min(PORTION as u64), send.length),
        };
        here.slice.charge(cost::PACKET * count);
        here.slice.charge_copy(copied);
        let more = match composed {
            Ok(more) => more,
            Err(error) => return Sent::Failed(error),
        };
        let Some(first) = self.outbox.fresh.first() else { return Sent::Done };
        let (source, heading) = (first.sender(), self.network.fabric.heading(first));
        if !self.has_room(heading, frames) {
            self.requester.no_room_to = Some(heading);
            return Sent::Later;
        }
        here.moved(bytes);
        here.add(Counter::TxPkts, frames as u64);
        here.add(Counter::TxBytes, bytes);
        self.leave(source);
        more.map_or(Sent::Done, Sent::Part)
    }

    /// Returns whether there is room for frames with this direction. The room of this number of
    /// frames is then taken.
    fn has_room(&mut self, heading: Heading, frames: usize) -> bool {
        let fits = |room: &Room| room.heading == heading && room.frames >= frames.max(1);
        let known = self.room.filter(fits);
        let room = known.map_or_else(
            || {
                // The earlier frames of this turn take room, too.
                self.send_off();
                self.network.fabric.room_by_all_ways(self.here.core.mac(), heading)
            },
            |room| room.frames,
        );
        self.room = Some(Room { heading, frames: room.saturating_sub(frames) });
        room > 0
    }

    /// Prepares frames of the entry, which have this source, for the network. They are sent at once
    /// if there are many, because each may take long, so that a poll ends soon after its slice.
    fn leave(&mut self, source: VlanMac) {
        let (own, core) = (self.network.own, self.here.core);
        let is_own = source.mac == core.mac() || self.network.has_address(source);
        let vlans = core.port.vlans();
        let is_direct = is_own && *vlans == Vlans::All;
        let (mut lost, mut copies) = (0, 0);
        let Outbox { fresh, leaving } = &mut *self.outbox;
        for mut frame in fresh.drain(..) {
            frame.set_composed();
            if !is_direct {
                frame.set_for_switch();
            }
            let tagged = match vlans {
                Vlans::All | Vlans::Trunk(_) => None,
                // A guest adds no tag itself here.
                Vlans::Access(vlan) => match frame.with_tag((*vlan).into()) {
                    Some(tagged) => Some(tagged),
                    None => {
                        lost += frame.count() as u64;
                        continue;
                    }
                },
            };
            // The peer of a TCP connection must not get the bytes of a program.
            if ingress::has_taken_over(own, tagged.as_ref().unwrap_or(&frame).bytes()) {
                lost += frame.count() as u64;
                continue;
            }
            copies += rules::copy(own, &frame);
            let frame = tagged.unwrap_or(frame);
            if core.port.loops() {
                copies += come_back(own, frame);
            } else {
                leaving.push(frame);
            }
        }
        self.here.slice.charge_copies(copies);
        if lost > 0 {
            self.here.add(Counter::TxRoceDiscards, lost);
        }
        if self.outbox.leaving.len() >= PORTION {
            self.send_off();
        }
    }

    /// Sends the frames that leave.
    fn send_off(&mut self) {
        let leaving = &mut self.outbox.leaving;
        if !leaving.is_empty() {
            let copies = self.network.transmit_composed(self.qp.qpn, leaving);
            self.here.slice.charge_copies(copies);
        }
    }
}

/// Gives a frame of a port in loopback mode to the QPs of raw packets whose rules select it.
/// Returns the number of copies.
fn come_back<H: Host>(own: &Objects<H>, frame: Frame) -> u64 {
    let arrival = Arrival::default();
    // A frame that no rule takes is lost: it was not for the guest's network card.
    let _lost = rules::take(own, frame, &arrival);
    arrival.copies()
}
