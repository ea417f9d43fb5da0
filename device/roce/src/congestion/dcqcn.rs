//! The rate of a sender, by DCQCN (Zhu et al., "Congestion Control for Large-Scale RDMA
//! Deployments", SIGCOMM 2015, section 5).
//!
//! ```text
//! notification    target ← current,  current ← current·(1 − α/2),  α ← (1 − g)·α + g
//! 55 µs without   α ← (1 − g)·α
//! timer, bytes    fast recovery       current ← (current + target)/2
//!                 additive increase   target ← target + R_AI, then as above
//!                 hyper increase      target ← target + i·R_HI, then as above
//! ```
//!
//! The timer and the byte counter each count steps since the last notification. While both have
//! made fewer than F steps, a step is one of fast recovery. When both have made more than F, a step
//! is one of hyper increase, and otherwise one of additive increase. i is the number by which the
//! smaller of both exceeds F.
//!
//! A sender that was not notified, or has reached the rate of its link again, is not paced.
//! Notifications change only the rate of their own queue pair, and never below a minimum. The
//! answers to READs are not paced, because the responder sends them.

use std::time::Duration;

use thiserror::Error;
use vrnic_packet::{Nanos, Pacer, Rate};

/// The unit of α in fixed-point form: 1 is 2²⁴.
const ONE: u32 = 1 << 24;
/// Maximum number of steps of the timer that are made up for at once, after a time without packets.
const STEPS_MAX: u64 = 1024;
/// Maximum number of steps of the timer that a packet which waits takes into account at once.
const STEPS_AHEAD: usize = 64;
/// The longest time after which a thread that is awake looks at its queue pairs again.
pub const PAUSE: Duration = Duration::from_micros(50);
/// The bounds of all periods.
const PERIODS: std::ops::RangeInclusive<Duration> =
    Duration::from_micros(1)..=Duration::from_secs(1);

/// The parameters of DCQCN. The names in parentheses are those of the mlx5 driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The rate of the link, and the highest rate (`rpg_max_rate`).
    pub line: Rate,
    /// The lowest rate (`rpg_min_rate`).
    pub min: Rate,
    /// The gain g is 1 / 2^`gain_shift` (`dce_tcp_g`).
    pub gain_shift: u8,
    /// The time without a notification after which α decreases (`dce_tcp_rtt`).
    pub alpha_period: Duration,
    /// The minimum time between two reductions (`rate_reduce_monitor_period`).
    pub cut_period: Duration,
    /// The period of the timer (`rpg_time_reset`).
    pub timer: Duration,
    /// The bytes of a step of the byte counter (`rpg_byte_reset`).
    pub byte_step: u32,
    /// F, the number of steps of fast recovery (`rpg_threshold`).
    pub fast_recovery: u8,
    /// R_AI, by which the target grows in additive increase (`rpg_ai_rate`).
    pub additive: Rate,
    /// R_HI, by which the target grows in hyper increase (`rpg_hai_rate`).
    pub hyper: Rate,
    /// The bytes that may leave at once after a pause.
    pub burst: u32,
}

impl Parameters {
    /// Returns the parameters of the paper (section 5.2 and figure 14) for a link with this rate.
    /// The paper does not give R_HI, which is five times R_AI here, the lowest rate, which is a
    /// thousandth of that of the link, the burst, and `cut_period`, which is that of mlx5.
    #[must_use]
    pub fn of_paper(line: Rate) -> Self {
        Self {
            line,
            min: Rate::nearest(line.bits_per_second() / 1000),
            gain_shift: 8,
            alpha_period: Duration::from_micros(55),
            cut_period: Duration::from_micros(4),
            timer: Duration::from_micros(55),
            byte_step: 10_000_000,
            fast_recovery: 5,
            additive: Rate::nearest(40_000_000),
            hyper: Rate::nearest(200_000_000),
            burst: 4 << 10,
        }
    }

    /// Returns the parameters of the paper for a sender that is run by threads, which may look at
    /// it only once in [`PAUSE`].
    #[must_use]
    pub fn for_threads(line: Rate) -> Self {
        let paper = Self::of_paper(line);
        let bytes = u128::from(line.bits_per_second() / 8) * PAUSE.as_nanos() / 1_000_000_000;
        let burst = u32::try_from(bytes).unwrap_or(u32::MAX).max(paper.burst);
        Self { burst, ..paper }
    }

    /// Checks the parameters as a whole.
    ///
    /// # Errors
    /// The first one that is out of its bounds.
    pub fn check(&self) -> Result<(), OutOfBounds> {
        let periods = [
            ("alpha_period", self.alpha_period),
            ("cut_period", self.cut_period),
            ("timer", self.timer),
        ];
        if self.min > self.line {
            return Err(OutOfBounds::Rates(self.min, self.line));
        }
        if !(1..=16).contains(&self.gain_shift) {
            return Err(OutOfBounds::Gain(self.gain_shift));
        }
        if let Some((name, period)) = periods.into_iter().find(|it| !PERIODS.contains(&it.1)) {
            return Err(OutOfBounds::Period(name, period));
        }
        if self.byte_step < 4096 {
            return Err(OutOfBounds::ByteStep(self.byte_step));
        }
        if !(1..=31).contains(&self.fast_recovery) {
            return Err(OutOfBounds::FastRecovery(self.fast_recovery));
        }
        Ok(())
    }
}

/// The reason for which parameters are refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum OutOfBounds {
    /// The lowest rate is above the highest one.
    #[error("the lowest rate of DCQCN, {0}, is above the rate of the link, {1}")]
    Rates(Rate, Rate),
    /// The gain is none.
    #[error("the gain of DCQCN is 1/2^{0}; the exponent must be from 1 to 16")]
    Gain(u8),
    /// A period is too short or too long.
    #[error("{0} of DCQCN is {1:?}; it must be from 1 µs to 1 s")]
    Period(&'static str, Duration),
    /// The byte counter would step with each packet.
    #[error("the byte counter of DCQCN steps after {0} bytes; it must have at least 4096")]
    ByteStep(u32),
    /// The number of steps is none.
    #[error("fast recovery of DCQCN has {0} steps; it must have from 1 to 31")]
    FastRecovery(u8),
}

/// The rate of a sender.
#[derive(Clone, Debug)]
pub struct RateControl {
    parameters: Parameters,
    pacer: Pacer,
    /// The rates in bits per second.
    current: u64,
    target: u64,
    alpha: u32,
    /// The time up to which α has decreased.
    alpha_at: Nanos,
    /// The time of the last reduction.
    cut_at: Option<Nanos>,
    /// The time of the last step of the timer.
    timer_at: Nanos,
    /// The bytes sent since the last step of the byte counter.
    bytes: u64,
    /// The steps of the timer and of the byte counter since the last reduction.
    timer_steps: u32,
    byte_steps: u32,
}

impl RateControl {
    /// Creates the state of a sender that has not been notified.
    ///
    /// # Errors
    /// The parameter that is out of its bounds.
    pub fn new(parameters: Parameters) -> Result<Self, OutOfBounds> {
        parameters.check()?;
        let line = parameters.line.bits_per_second();
        Ok(Self {
            pacer: Pacer::new(parameters.line, parameters.burst),
            parameters,
            current: line,
            target: line,
            alpha: ONE,
            alpha_at: Nanos::default(),
            cut_at: None,
            timer_at: Nanos::default(),
            bytes: 0,
            timer_steps: 0,
            byte_steps: 0,
        })
    }

    /// Returns the rate.
    #[must_use]
    pub fn rate(&self) -> Rate {
        Rate::nearest(self.current)
    }

    /// Returns whether packets are paced.
    #[must_use]
    pub const fn is_limited(&self) -> bool {
        self.current < self.parameters.line.bits_per_second()
    }

    /// Handles a notification. Returns whether the rate was reduced.
    pub fn notified(&mut self, now: Nanos) -> bool {
        self.advance(now);
        // α is 1 up to the first notification.
        if self.cut_at.is_some() {
            self.decay(now);
        }
        self.alpha_at = now;
        if self.cut_at.is_some_and(|at| now.since(at) < self.parameters.cut_period) {
            return false;
        }
        self.cut_at = Some(now);
        self.target = self.current;
        let cut = u128::from(self.current) * u128::from(self.alpha) / u128::from(2 * ONE);
        // CAST: at most half of the rate.
        let cut = cut as u64;
        self.set(now, self.current.saturating_sub(cut));
        let shift = self.parameters.gain_shift;
        self.alpha = self.alpha - (self.alpha >> shift) + (ONE >> shift);
        self.timer_at = now;
        (self.bytes, self.timer_steps, self.byte_steps) = (0, 0, 0);
        true
    }

    /// Returns the time at which the caller must ask again, because the next packet may leave then
    /// or the rate has grown, or `None` if the packet may leave now.
    pub fn waits_until(&mut self, now: Nanos) -> Option<Nanos> {
        if !self.is_limited() {
            return None;
        }
        self.advance(now);
        let at = self.pacer.waits_until(now).filter(|_| self.is_limited())?;
        Some(self.clone().looks_ahead(at))
    }

    /// Returns the time at which the next packet may leave, which would be `at` without the steps
    /// that the timer makes until then.
    fn looks_ahead(mut self, mut at: Nanos) -> Nanos {
        for _ in 0..STEPS_AHEAD {
            let step = self.timer_at.plus(self.parameters.timer);
            if at <= step {
                return at;
            }
            self.advance(step);
            let waits = self.pacer.waits_until(step).filter(|_| self.is_limited());
            at = waits.unwrap_or(step);
        }
        at.min(self.timer_at.plus(self.parameters.timer))
    }

    /// Records a packet that leaves.
    pub fn sent(&mut self, now: Nanos, bytes: u32) {
        if !self.is_limited() {
            return;
        }
        self.pacer.spend(now, bytes.into());
        self.bytes += u64::from(bytes);
        let step = u64::from(self.parameters.byte_step);
        if self.bytes >= step {
            self.bytes -= step;
            self.byte_steps = self.byte_steps.saturating_add(1);
            self.increase(now);
        }
    }

    /// Takes back that a packet has left, because its bytes were not there. A step that the byte
    /// counter has made stays.
    pub fn not_sent(&mut self, bytes: u32) {
        if self.is_limited() {
            self.pacer.put_back(bytes.into());
            self.bytes = self.bytes.saturating_sub(bytes.into());
        }
    }

    /// Makes the steps of the timer that are due.
    fn advance(&mut self, now: Nanos) {
        let elapsed = now.since(self.timer_at).as_nanos();
        let steps = elapsed / self.parameters.timer.as_nanos().max(1);
        let steps = u64::try_from(steps).unwrap_or(u64::MAX);
        if steps == 0 {
            return;
        }
        for _ in 0..steps.min(STEPS_MAX) {
            if !self.is_limited() {
                break;
            }
            self.timer_at = self.timer_at.plus(self.parameters.timer);
            self.timer_steps = self.timer_steps.saturating_add(1);
            // The time before the step counts at the rate before it.
            self.increase(self.timer_at);
        }
        if !self.is_limited() || steps > STEPS_MAX {
            self.timer_at = now;
        }
    }

    /// Makes a step of the timer or of the byte counter.
    fn increase(&mut self, now: Nanos) {
        let Parameters { fast_recovery, additive, hyper, .. } = self.parameters;
        let (threshold, line) = (u32::from(fast_recovery), self.parameters.line);
        let (fewer, more) =
            (self.timer_steps.min(self.byte_steps), self.timer_steps.max(self.byte_steps));
        let growth = if more < threshold {
            0
        } else if fewer > threshold {
            hyper.bits_per_second().saturating_mul(u64::from(fewer - threshold))
        } else {
            additive.bits_per_second()
        };
        let line = line.bits_per_second();
        self.target = self.target.saturating_add(growth).min(line);
        let next = u64::midpoint(self.current, self.target);
        // The mean never reaches the rate of the link.
        self.set(now, if line - next.min(line) <= line / 1000 { line } else { next });
    }

    fn set(&mut self, now: Nanos, rate: u64) {
        let Parameters { min, line, .. } = self.parameters;
        self.current = rate.clamp(min.bits_per_second(), line.bits_per_second());
        self.pacer.set_rate(now, Rate::nearest(self.current));
    }

    /// Reduces α for each period without a notification.
    fn decay(&mut self, now: Nanos) {
        let elapsed = now.since(self.alpha_at).as_nanos();
        let mut periods = elapsed / self.parameters.alpha_period.as_nanos().max(1);
        // α·(1 − g)^periods, by squares.
        let mut factor = u64::from(ONE - (ONE >> self.parameters.gain_shift));
        let mut alpha = u64::from(self.alpha);
        while periods > 0 && alpha > 0 {
            if periods & 1 == 1 {
                alpha = alpha * factor / u64::from(ONE);
            }
            factor = factor * factor / u64::from(ONE);
            periods >>= 1;
        }
        // CAST: at most 1.
        self.alpha = alpha as u32;
    }
}

#[cfg(test)]
mod tests;
