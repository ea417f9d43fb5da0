//! Waits for the end of transfers, before the guest may use their memory for something else.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use vrnic_abi::GuestAddr;
use vrnic_adapter::host::Transfers;

use super::{ExternalMemory, MAX_TRANSFER, State};
use crate::memory::transfer::{Span, Transfer};

/// Time after which bytes that were handed over, and wait, are given up for a command that waits
/// for them. Also the time in which the VMM must answer writes before the guest may use their
/// memory for something else.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(2);
/// Pause between two checks for answers that are late.
const LATE_PAUSE: Duration = Duration::from_millis(1);

/// What a wait must know of a transfer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) asker: u64,
    pub(super) number: u64,
    pub(super) span: Span,
}

impl ExternalMemory {
    /// Waits until nothing that was ended takes place any more. Returns false if the VMM has not
    /// answered in time, so that a write may still take place.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let deadline = Instant::now() + MAX_WAIT;
        let mut state = self.state.lock();
        let next = state.next;
        while state.is_running(|number| number < next) {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return !state.is_running(|number| number < next);
            }
        }
        drop(state);
        self.is_answered(deadline, |_| true)
    }

    /// Waits until the VMM has answered these writes, as far as it has not answered them in time.
    /// Returns whether it has.
    fn is_answered(&self, deadline: Instant, of: impl Fn(&Known) -> bool) -> bool {
        loop {
            let mut state = self.state.lock();
            state.remove_answered();
            if !state.late.iter().any(&of) {
                return true;
            }
            drop(state);
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(LATE_PAUSE);
        }
    }

    /// Removes those of the named reads and writes that wait, which their askers start again if
    /// they still need them. Then waits until what was handed over has been written, for a limited
    /// time, and until the transfer that is with the VMM has ended, if it is one of them, or all
    /// transfers have been ended. Returns false if the VMM has not answered in time, so that one of
    /// the writes may still take place.
    #[must_use]
    pub fn wait_for_transfers(&self, of: &Transfers<'_>) -> bool {
        let deadline = Instant::now() + MAX_WAIT;
        let (known, epoch) = {
            let state = self.state.lock();
            (state.known(), state.epoch)
        };
        if known.is_empty() {
            return true;
        }
        // Bytes of such transfers may arrive later, but the command never completes.
        let is_over = |state: &State| state.hurries || state.epoch != epoch;
        let named = numbers(known, of);
        let mut state = self.state.lock();
        let is_named = |transfer: &Transfer| named.contains(&transfer.number);
        state.retain(|it| !is_named(it) || it.is_handed_over() || !it.is_waiting());
        while state.is_moving(&named) && !is_over(&state) {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                state.retain(|it| !(is_named(it) && it.is_handed_over() && it.is_waiting()));
                break;
            }
        }
        while state.is_running(|number| named.contains(&number)) && !is_over(&state) {
            self.changed.wait(&mut state);
        }
        let is_over = is_over(&state);
        drop(state);
        is_over || self.is_answered(deadline, |late| named.contains(&late.number))
    }

    /// Sets whether [`Self::wait_for_transfers`] may wait.
    pub fn let_wait(&self, may: bool) {
        self.state.lock().hurries = !may;
        self.changed.notify_all();
    }
}

impl State {
    /// Returns the transfers that have not ended, and the writes that are late.
    fn known(&self) -> Vec<Known> {
        let running = self.running.iter().map(|running| running.known);
        let waiting = self.askers.iter().flat_map(|(asker, transfers)| {
            let waiting = transfers.iter().filter(|transfer| !transfer.has_ended());
            waiting.map(|it| Known { asker: *asker, number: it.number, span: it.span })
        });
        running.chain(waiting).chain(self.late.iter().copied()).collect()
    }

    /// Returns whether a transfer with such a number is with the VMM.
    fn is_running(&self, is_named: impl Fn(u64) -> bool) -> bool {
        self.running.as_ref().is_some_and(|running| is_named(running.known.number))
    }

    /// Returns whether one of these transfers is with the VMM, or waits with bytes that were handed
    /// over.
    fn is_moving(&self, named: &HashSet<u64>) -> bool {
        let mut transfers = self.askers.values().flatten();
        let waits = |it: &Transfer| it.is_handed_over() && named.contains(&it.number);
        self.is_running(|number| named.contains(&number)) || transfers.any(waits)
    }
}

/// Returns the numbers of those transfers that are named.
fn numbers(mut known: Vec<Known>, of: &Transfers<'_>) -> HashSet<u64> {
    match of {
        Transfers::All => {}
        Transfers::Of(askers) => known.retain(|it| askers.contains(&it.asker)),
        Transfers::In(each_part) => return numbers_in(known, each_part),
    }
    known.iter().map(|it| it.number).collect()
}

/// Returns the numbers of the transfers from and to some memory.
fn numbers_in(
    mut known: Vec<Known>,
    each_part: impl Fn(&mut dyn FnMut(GuestAddr, u64)),
) -> HashSet<u64> {
    known.sort_unstable_by_key(|it| it.span.addr);
    let mut numbers = HashSet::new();
    each_part(&mut |addr, len| {
        let (addr, end) = (addr.get(), addr.get().saturating_add(len));
        // No transfer is longer.
        let first = addr.saturating_sub(MAX_TRANSFER as u64);
        let first = known.partition_point(|it| it.span.addr < first);
        let near = known.iter().skip(first).take_while(|it| it.span.addr < end);
        numbers.extend(near.filter(|it| it.span.overlaps(addr, len)).map(|it| it.number));
    });
    numbers
}
