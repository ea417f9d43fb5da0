//! The lines that epoll does not tell of: their frames are in shared memory.

use rustix::event::epoll::EventFlags;

use super::Switch;
use crate::net::port::Port;

impl Switch {
    /// Forwards the frames of polled lines, and sends waiting frames to those with room. Returns
    /// whether a frame arrived.
    pub(super) fn serve_polled(&mut self, reads_uplinks: bool) -> bool {
        let mut any = false;
        for nth in 0..self.polled.len() {
            let Some(&id) = self.polled.get(nth) else { break };
            if self.ports.get(&id).is_some_and(Port::is_ready) {
                any |= self.serve_wire(id, EventFlags::empty(), reads_uplinks);
            }
        }
        any
    }

    /// Prepares for waiting until epoll has events. Returns false if a line is ready already.
    pub(in crate::net) fn wait(&self) -> bool {
        let mut may_wait = true;
        // Each of them is prepared, also if an earlier one is ready.
        for port in self.polled.iter().filter_map(|id| self.ports.get(id)) {
            may_wait &= port.wait();
        }
        may_wait
    }
}
