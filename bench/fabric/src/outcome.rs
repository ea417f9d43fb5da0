//! What is measured.

use std::time::Duration;

use vrnic_lanes::Counters;
use vrnic_packet::Nanos;

/// The state of a network at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The time.
    pub at: Nanos,
    /// The bytes of class 3 that wait in the switch for the receiver.
    pub depth: u64,
    /// The bytes that each flow has delivered so far.
    pub delivered: Vec<u64>,
}

/// What a run has measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Number of flows in class 3. Those of class 1, if there are any, follow them.
    pub senders: usize,
    /// The counters of class 3 of the port to the receiver.
    pub port: Option<Counters>,
    /// The time for which class 3 of each sender was paused.
    pub paused: Vec<Duration>,
    /// The time for which class 1 of each sender was paused.
    pub paused_other: Vec<Duration>,
    /// Frames of class 3 that were dropped anywhere.
    pub drops: u64,
    /// Notifications that senders have handled.
    pub notified: u64,
    /// Packets that were sent again.
    pub resent: u64,
    /// The state at all times.
    pub samples: Vec<Sample>,
}

impl Outcome {
    /// Returns the goodput of each flow in bits per second, in the second half of the run.
    #[must_use]
    pub fn goodput(&self) -> Vec<f64> {
        let middle = self.samples.get(self.samples.len() / 2);
        let Some((from, to)) = middle.zip(self.samples.last()) else { return Vec::new() };
        between(from, to)
    }

    /// Returns the fairness of the flows of class 3: Jain's index, which is 1 if all are equal and
    /// 1/n if one has all.
    #[must_use]
    pub fn fairness(&self) -> f64 {
        jain(&self.of_roce(&self.goodput()))
    }

    /// Returns the goodput of all flows of class 3 together.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.of_roce(&self.goodput()).iter().sum()
    }

    /// Returns the values of the flows of class 3 out of those of all flows.
    #[must_use]
    pub fn of_roce(&self, values: &[f64]) -> Vec<f64> {
        values.iter().take(self.senders).copied().collect()
    }

    /// Returns the depth of the queue that is not exceeded by this part of the samples of the
    /// second half of the run.
    #[must_use]
    pub fn depth(&self, part: f64) -> u64 {
        let second_half = self.samples.iter().skip(self.samples.len() / 2);
        let mut depths: Vec<u64> = second_half.map(|sample| sample.depth).collect();
        depths.sort_unstable();
        let last = depths.len().saturating_sub(1);
        // CAST: an index of a short list.
        depths.get((last as f64 * part) as usize).copied().unwrap_or(0)
    }

    /// Returns the goodput of each flow over time, in bits per second: one list for each flow of
    /// times in ms and values, with one value for each `step` samples.
    #[must_use]
    pub fn rates(&self, step: usize) -> Vec<Vec<(f64, f64)>> {
        let step = step.max(1);
        let flows = self.samples.first().map_or(0, |sample| sample.delivered.len());
        let mut rates = vec![Vec::new(); flows];
        for (from, to) in self.samples.iter().zip(self.samples.iter().skip(step)).step_by(step) {
            for (of, rate) in rates.iter_mut().zip(between(from, to)) {
                of.push((millis(to.at), rate));
            }
        }
        rates
    }

    /// Returns the depth of the queue over time: times in ms and bytes.
    #[must_use]
    pub fn depths(&self) -> Vec<(f64, f64)> {
        self.samples.iter().map(|sample| (millis(sample.at), sample.depth as f64)).collect()
    }
}

/// Returns Jain's index of fairness (Jain, Chiu and Hawe, 1984).
#[must_use]
pub fn jain(values: &[f64]) -> f64 {
    let (sum, squares) = values
        .iter()
        .fold((0.0, 0.0), |(sum, squares), value| (sum + value, squares + value * value));
    if squares == 0.0 { 1.0 } else { sum * sum / (values.len() as f64 * squares) }
}

fn millis(at: Nanos) -> f64 {
    at.0 as f64 / 1e6
}

/// Returns the bits per second of each flow between two samples.
fn between(from: &Sample, to: &Sample) -> Vec<f64> {
    let span = to.at.since(from.at);
    let flows = to.delivered.iter().zip(&from.delivered);
    let rate = |bits: f64| if span.is_zero() { 0.0 } else { bits / span.as_secs_f64() };
    flows.map(|(to, from)| rate((to - from) as f64 * 8.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_one_for_equals_and_a_part_for_one() {
        assert_eq!(jain(&[3.0; 5]), 1.0);
        assert_eq!(jain(&[0.0, 0.0, 7.0, 0.0]), 0.25);
        assert_eq!(jain(&[0.0; 3]), 1.0);
    }

    #[test]
    fn rates_are_differences() {
        let sample = |at, delivered: u64| Sample {
            at: Nanos(at * 1_000_000),
            depth: at * 10,
            delivered: vec![delivered, 2 * delivered],
        };
        assert_eq!(between(&sample(1, 7), &sample(1, 7)), [0.0, 0.0], "of no time");
        let outcome = Outcome {
            senders: 1,
            port: None,
            paused: Vec::new(),
            paused_other: Vec::new(),
            drops: 0,
            notified: 0,
            resent: 0,
            samples: (0..=8).map(|at| sample(at, at * at * 125)).collect(),
        };
        assert_eq!(outcome.goodput(), [12_000_000.0, 24_000_000.0]);
        assert_eq!((outcome.total(), outcome.fairness()), (12_000_000.0, 1.0));
        assert_eq!((outcome.depth(0.0), outcome.depth(0.5), outcome.depth(1.0)), (40, 60, 80));
        let rates = outcome.rates(4);
        assert_eq!(rates.len(), 2);
        assert_eq!(rates.first().map(Vec::as_slice), Some(&[(4.0, 4e6), (8.0, 12e6)][..]));
        assert_eq!(outcome.depths().last(), Some(&(8.0, 80.0)));
    }
}
