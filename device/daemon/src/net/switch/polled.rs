//! The lines that epoll does not report: their frames are in shared memory.

use rustix::event::epoll::EventFlags;

use super::Switch;
use crate::net::port::Port;
use crate::net::turn::Turn;

impl Switch {
    /// Forwards the frames of polled lines until the turn is over, and sends waiting frames to
    /// those with room. Another line is the first one each time. Returns whether there was or is a
    /// frame.
    pub(super) fn serve_polled(&mut self, reads_uplinks: bool, turn: &mut Turn) -> bool {
        let mut any = false;
        self.polls = self.polls.wrapping_add(1);
        for nth in 0..self.polled.len() {
            let place = self.polls.wrapping_add(nth) % self.polled.len();
            let Some(&id) = self.polled.get(place) else { break };
            if !self.ports.get(&id).is_some_and(Port::is_ready) {
                continue;
            }
            if turn.is_over() {
                return true;
            }
            any |= self.serve_wire(id, EventFlags::empty(), reads_uplinks, turn);
        }
        any
    }

    /// Prepares for waiting until epoll has events. Returns false if a line is ready already.
    pub(in crate::net) fn wait(&self) -> bool {
        let mut may_wait = self.waiting.is_empty();
        // Each of them is prepared, also if an earlier one is ready.
        for port in self.polled.iter().filter_map(|id| self.ports.get(id)) {
            may_wait &= port.wait();
        }
        may_wait
    }
}
