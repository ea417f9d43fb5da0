// SPDX-License-Identifier: GPL-2.0 OR MIT
//! How long a program polls in vain before it gives way. An adapter that is a process of this
//! system may wait for the processor on which the program polls.

use rustix::thread::sched_yield;

use crate::doorbell::CqDoorbell;

/// Number of polls in vain, which take about a microsecond together.
const POLLS: u32 = 64;

/// Counts the polls of a queue that find nothing.
#[derive(Debug)]
pub(super) struct Patience {
    gives_way: bool,
    polls: u32,
}

impl Patience {
    /// Returns the patience of a queue with this doorbell.
    pub(super) fn of(door: &CqDoorbell) -> Self {
        Self { gives_way: door.is_of_process(), polls: 0 }
    }

    /// Records that there was nothing. Returns whether to give way now.
    #[inline]
    pub(super) fn is_over(&mut self) -> bool {
        self.gives_way && self.count()
    }

    fn count(&mut self) -> bool {
        self.polls = self.polls.wrapping_add(1);
        self.polls.is_multiple_of(POLLS)
    }
}

/// Lets other threads run that wait for this processor.
#[cold]
pub(super) fn give_way() {
    sched_yield();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_beside_the_adapter_give_way_and_not_at_each_poll() {
        let ways = |gives_way| {
            let mut patience = Patience { gives_way, polls: 0 };
            (0..3 * POLLS).filter(|_| patience.is_over()).count()
        };
        assert_eq!((ways(false), ways(true)), (0, 3));
    }
}
