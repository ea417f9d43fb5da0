//! Shares the time of a worker among its engines by deficit round robin (Shreedhar and Varghese,
//! 1995).
//!
//! In each pass, each engine is credited with its quantum of time, and polled if it has credit. The
//! time that it takes is subtracted, so an engine that takes more than its quantum, because a piece
//! of work cannot be divided, is not polled until later quanta have paid for it. An engine without
//! work saves nothing.
//!
//! A guest that exchanges short messages one at a time needs little time, but soon. Its engine is
//! called prompt. While there is one next to an engine that takes long, the quanta are short, and
//! prompt engines are polled after each engine that has taken long. That time is theirs, too, so
//! this is no way to more of it.
//!
//! Engines without a share, such as the switch, work for the others: they have that of an average
//! engine, they are not prompt, and quanta are not shortened because of them.
//!
//! The clock is read for polls that take long, and for some of the others. An engine whose work
//! takes longer than its estimate is measured more often. A very long poll may be one during which
//! the thread had no processor. So after one, the thread's time on a processor is measured, too.

use std::sync::Arc;
use std::time::Duration;

use vrnic_adapter::slice::{SHORT_SLICE, SLICE};
use vrnic_packet::Nanos;

use super::engine::Engine;

#[cfg(test)]
mod tests;

/// Maximum number of prompt engines that are polled after another. If there are more, they take
/// turns.
const MAX_PROMPT: usize = 16;
/// The work of a poll from which on it is not prompt, in nanoseconds. This is the engine's own
/// estimate: the same work takes several times as long after engines that use other memory, when
/// the short quanta for prompt engines are needed most.
const PROMPT_WORK: u64 = 1_500;
/// Number of polls with so little work from which on an engine is prompt, and number that one with
/// more work takes away. An engine whose work comes in groups has polls with little work, too, and
/// any poll may be slow once.
const PROMPT_AFTER: u16 = 16;
const PROMPT_LOSS: u16 = 4;
/// Number of busy polls of an engine of which one is measured, and number that are measured after
/// one that took much longer than its estimate.
const SAMPLE_INTERVAL: u8 = 32;
const SAMPLES: u8 = 32;
/// Number of passes for which quanta stay short after an engine has taken long.
const CONTENDED_PASSES: u16 = 1_000;
/// Number of polls without work after which an engine is no longer prompt.
const PROMPT_POLLS: u16 = 2_000;
/// The duration of a poll after which prompt engines are polled, and from which on the duration is
/// measured, in nanoseconds.
const LONG_POLL: u64 = 2_000;
/// Time in nanoseconds by which twice the estimate of a poll may be too short.
const MAX_ERROR: u64 = 1_000;
/// The longest time in nanoseconds that an engine pays for a poll during which the thread may have
/// been without a processor.
const MAX_CHARGE: u64 = 100_000;
/// Number of busy polls of an engine for which the thread's time on a processor is measured, after
/// one that took longer than [`MAX_CHARGE`].
const HEAVY_POLLS: u8 = 128;
/// Quanta are multiples of this part of the largest.
const PARTS: u32 = 1 << 10;

/// The clocks of a worker's thread.
pub trait Clocks {
    /// Returns the time.
    fn now(&self) -> Nanos;

    /// Returns the time for which the thread has had a processor.
    fn on_processor(&self) -> Nanos;
}

/// The engines of a worker, with what each may still use.
pub struct Turns {
    seats: Vec<Seat>,
    /// The places of prompt engines. Those that no longer are leave it at the end of a pass.
    prompt: Vec<usize>,
    /// The one of them that is polled first after another engine.
    first: usize,
    /// Number of passes for which quanta are short if there is a prompt engine.
    contended: u16,
    watch: Watch,
}

/// An engine's place in the round.
struct Seat {
    engine: Arc<dyn Engine>,
    /// The engine's quantum, in [`PARTS`] of the largest.
    parts: u32,
    /// The time that it may use before the next pass, in nanoseconds; negative if it owes time.
    credit: i64,
    /// True if its last poll took long.
    long: bool,
    /// True if work may be left.
    busy: bool,
    /// True if it has a share.
    shares: bool,
    /// Number of busy polls until the next one that is measured, and number that are measured.
    unmeasured: u8,
    measured: u8,
    /// Number of busy polls for which the thread's time on a processor is measured.
    heavy: u8,
    /// Number of polls with little work that count, at most [`PROMPT_AFTER`].
    light: u16,
    /// Number of polls without work for which it is still prompt; 0 if it is not prompt.
    prompt: u16,
    /// True if it is in the list of prompt engines.
    listed: bool,
}

/// Measures polls with few readings of the clock.
#[derive(Default)]
struct Watch {
    /// The time, if it was read at the end of the last poll.
    read: Option<Nanos>,
}

impl Turns {
    /// Creates the first pass over these engines.
    #[must_use]
    pub fn new(engines: &[Arc<dyn Engine>]) -> Self {
        let shares: Vec<u64> =
            engines.iter().filter_map(|engine| engine.share()).map(u64::from).collect();
        let most = shares.iter().copied().max().unwrap_or(1).max(1);
        let average = shares.iter().sum::<u64>() / (shares.len() as u64).max(1);
        let seat = |engine: &Arc<dyn Engine>| {
            let share = engine.share().map_or(average, u64::from);
            let parts = share * u64::from(PARTS) / most;
            Seat {
                shares: engine.share().is_some(),
                unmeasured: SAMPLE_INTERVAL,
                measured: 0,
                heavy: 0,
                light: 0,
                engine: Arc::clone(engine),
                // CAST: at most `PARTS`.
                parts: (parts as u32).max(1),
                credit: 0,
                long: false,
                busy: false,
                prompt: 0,
                listed: false,
            }
        };
        let seats = engines.iter().map(seat).collect();
        Self { seats, prompt: Vec::new(), first: 0, contended: 0, watch: Watch::default() }
    }

    /// Polls the engines that have credit. Returns whether there was work, or may be.
    #[inline]
    pub fn pass(&mut self, clocks: &impl Clocks) -> bool {
        let hurried = self.contended > 0 && !self.prompt.is_empty();
        let length = if hurried { SHORT_SLICE } else { SLICE };
        self.contended = self.contended.saturating_sub(1);
        self.watch = Watch::default();
        let mut any = false;
        for place in 0..self.seats.len() {
            if let Some(seat) = self.seats.get_mut(place) {
                seat.refill(length);
            }
            let took = self.serve(place, length, clocks);
            any |= took.busy;
            if took.is_contending {
                self.contended = CONTENDED_PASSES;
            }
            if hurried && took.busy && took.ns >= LONG_POLL {
                any |= self.serve_prompt(place, clocks);
            }
        }
        let Self { seats, prompt, .. } = self;
        prompt.retain(|place| {
            seats.get_mut(*place).is_some_and(|seat| {
                seat.listed = seat.prompt > 0;
                seat.listed
            })
        });
        if !any {
            // No other engine has waited for these.
            self.seats.iter_mut().for_each(|seat| seat.credit = seat.credit.max(0));
        }
        any
    }

    /// Polls the prompt engines, except the one that has just been polled. Returns whether there
    /// was work.
    fn serve_prompt(&mut self, but: usize, clocks: &impl Clocks) -> bool {
        let mut any = false;
        let count = self.prompt.len();
        for nth in 0..count.min(MAX_PROMPT) {
            match self.prompt.get((self.first + nth) % count) {
                Some(&place) if place != but => any |= self.serve(place, SHORT_SLICE, clocks).busy,
                _ => {}
            }
        }
        self.first = (self.first + MAX_PROMPT) % count.max(1);
        any
    }

    /// Polls an engine if it has credit.
    #[inline]
    fn serve(&mut self, place: usize, length: Duration, clocks: &impl Clocks) -> Took {
        let Self { seats, prompt, watch, .. } = self;
        let Some(seat) = seats.get_mut(place) else { return Took::default() };
        if seat.credit <= 0 {
            return Took { busy: seat.busy, ..Took::default() };
        }
        let start = (seat.long || seat.unmeasured == 0).then(|| watch.time(clocks));
        let before = (seat.heavy > 0).then(|| clocks.on_processor());
        let polled = seat.engine.poll(length);
        let ns = match start {
            Some(start) if polled.busy => {
                watch.read(clocks).0.saturating_sub(start.0).max(polled.spent)
            }
            _ => {
                watch.read = None;
                polled.spent
            }
        };
        if polled.busy {
            seat.plan_measurement(start.is_some() && ns > 2 * polled.spent + MAX_ERROR);
        }
        let ns = seat.charge(ns, before, clocks);
        (seat.busy, seat.long) = (polled.busy, ns >= LONG_POLL);
        if !polled.busy {
            seat.prompt = seat.prompt.saturating_sub(1);
        } else if polled.spent >= PROMPT_WORK {
            seat.light = seat.light.saturating_sub(PROMPT_LOSS);
            seat.prompt = if seat.light == 0 { 0 } else { seat.prompt };
        } else if seat.light < PROMPT_AFTER {
            seat.light += 1;
        } else if seat.shares {
            if !std::mem::replace(&mut seat.listed, true) {
                prompt.push(place);
            }
            seat.prompt = PROMPT_POLLS;
        }
        Took { busy: polled.busy, is_contending: seat.shares && polled.busy && ns >= LONG_POLL, ns }
    }
}

/// What a poll has taken.
#[derive(Clone, Copy, Default)]
struct Took {
    busy: bool,
    /// True if it was long, by an engine with a share.
    is_contending: bool,
    ns: u64,
}

impl Seat {
    /// Adds the quantum of a pass.
    #[inline]
    fn refill(&mut self, length: Duration) {
        // CAST: a slice is some microseconds.
        let quantum = (length.as_nanos() as i64 * i64::from(self.parts) / i64::from(PARTS)).max(1);
        self.credit = (self.credit + quantum).min(quantum);
    }

    /// Subtracts what it pays for a poll of `ns` nanoseconds, before which the thread had had a
    /// processor for the time `before`, if that was read. Returns what it pays.
    #[inline]
    fn charge(&mut self, ns: u64, before: Option<Nanos>, clocks: &impl Clocks) -> u64 {
        self.heavy = self.heavy.saturating_sub(1);
        let ns = if ns > MAX_CHARGE { self.charge_of_long(ns, before, clocks) } else { ns };
        self.credit = self.credit.saturating_sub_unsigned(ns);
        ns
    }

    /// Returns what it pays for a very long poll.
    #[cold]
    fn charge_of_long(&mut self, ns: u64, before: Option<Nanos>, clocks: &impl Clocks) -> u64 {
        self.heavy = HEAVY_POLLS;
        let had = |before: Nanos| clocks.on_processor().0.saturating_sub(before.0);
        ns.min(before.map_or(MAX_CHARGE, had))
    }

    /// Chooses the next busy poll that is measured. `late` is true if one took much longer than its
    /// estimate.
    #[inline]
    fn plan_measurement(&mut self, late: bool) {
        if late {
            self.measured = SAMPLES;
        }
        self.unmeasured = match (self.measured, self.unmeasured) {
            (0, 0) => SAMPLE_INTERVAL,
            (0, left) => left - 1,
            _ => 0,
        };
        self.measured = self.measured.saturating_sub(1);
    }
}

impl Watch {
    /// Returns the time. Only the first call reads the clock.
    fn time(&mut self, clocks: &impl Clocks) -> Nanos {
        self.read.unwrap_or_else(|| self.read(clocks))
    }

    fn read(&mut self, clocks: &impl Clocks) -> Nanos {
        *self.read.insert(clocks.now())
    }
}
