//! The lines that wait for a turn. A line takes its place when it is found ready, and goes to the
//! end if it has more than its turn allows. So a line that always has frames delays each other one
//! by a single turn.

use std::collections::VecDeque;

use rustix::event::epoll::EventFlags;
use vrnic_packet::Nanos;

use super::Switch;
use crate::net::port::Port;
use crate::net::table::PortId;
use crate::net::turn::{TIME, Turn};
use crate::worker::pool::now;

/// The pause before a worker serves the next of the guests' network cards, as a multiple of the
/// time that the last one has taken. So network cards get at most a quarter of a worker's time. The
/// switch's thread, which runs the switch while adapters send nothing, makes no such pause.
const CARD_PAUSE: u32 = 3;

/// The lines that wait, the first one in front. The port of each has its events
/// ([`Port::due`]).
#[derive(Default)]
pub(super) struct Waiting {
    uplinks: VecDeque<PortId>,
    /// The network cards of guests.
    cards: VecDeque<PortId>,
    /// The end of the pause in which workers serve no network cards.
    cards_from: Nanos,
}

impl Waiting {
    /// Returns whether no line waits.
    pub(super) fn is_empty(&self) -> bool {
        self.uplinks.is_empty() && self.cards.is_empty()
    }
}

impl Switch {
    /// Lets a line wait for a turn, at the end if it does not wait yet, because epoll has reported
    /// these events.
    pub(super) fn enqueue(&mut self, id: PortId, events: EventFlags) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        match &mut port.due {
            Some(due) => *due |= events,
            None => {
                port.due = Some(events);
                let Waiting { uplinks, cards, .. } = &mut self.waiting;
                if port.is_uplink() { uplinks } else { cards }.push_back(id);
            }
        }
    }

    /// Lets a line wait for its next turn if frames are left that this one had no time for, or that
    /// have to wait for an adapter. Polled lines are looked at in any case.
    pub(super) fn note_rest(&mut self, id: PortId) {
        if self.ports.get(&id).is_some_and(|port| port.has_rest() && !port.is_polled()) {
            self.enqueue(id, EventFlags::empty());
        }
    }

    /// Gives each line that waits a turn of its own. Only the switch's thread calls this, because
    /// it may take long.
    pub(super) fn serve_waiting(&mut self, reads_uplinks: bool) {
        let Waiting { uplinks, cards, .. } = &self.waiting;
        for (is_card, count) in [(false, uplinks.len()), (true, cards.len())] {
            for _ in 0..count {
                let Some((id, due)) = self.take_first(is_card) else { break };
                self.serve_wire(id, due, reads_uplinks, &mut Turn::begin());
            }
        }
    }

    /// Serves one network card, if there is no pause ([`CARD_PAUSE`]), and then uplinks, until the
    /// turn is over. Returns whether a frame was forwarded, or an uplink waits for the next turn.
    pub(super) fn attend_waiting(&mut self, reads_uplinks: bool, turn: &mut Turn) -> bool {
        let mut any = self.attend_card(turn);
        for _ in 0..self.waiting.uplinks.len() {
            if turn.is_over() {
                return true;
            }
            let Some((id, mut due)) = self.take_first(false) else { break };
            if self.ports.get(&id).is_some_and(Port::needs_thread) {
                // The thread reads what epoll reports again.
                due &= EventFlags::OUT;
            }
            any |= self.serve_wire(id, due, reads_uplinks, turn);
        }
        any
    }

    fn attend_card(&mut self, turn: &mut Turn) -> bool {
        if self.waiting.cards.is_empty() {
            return false;
        }
        let start = now();
        if start < self.waiting.cards_from {
            return false;
        }
        let Some((id, due)) = self.take_first(true) else { return false };
        let any = self.serve_wire(id, due, true, turn);
        let end = now();
        // The worker may have been interrupted.
        let spent = end.since(start).min(2 * TIME);
        self.waiting.cards_from = end.plus(CARD_PAUSE * spent);
        any
    }

    /// Ends the wait of the first network card or the first uplink. Returns it with the events that
    /// epoll has reported meanwhile.
    fn take_first(&mut self, is_card: bool) -> Option<(PortId, EventFlags)> {
        let Waiting { uplinks, cards, .. } = &mut self.waiting;
        let id = if is_card { cards } else { uplinks }.pop_front()?;
        let due = self.ports.get_mut(&id).and_then(|port| port.due.take());
        Some((id, due.unwrap_or(EventFlags::empty())))
    }
}
