//! The figures, as a Markdown table and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Map, Value, json};
use vrnic_figures::{Figure, QUOTED, Quantity, Subject};

use crate::latency::Latencies;
use crate::yardstick;

/// Figures in the order of their measurement.
#[derive(Debug, Default)]
pub(crate) struct Report {
    figures: Vec<Measured>,
    histograms: Map<String, Value>,
}

#[derive(Debug)]
struct Measured {
    figure: Figure,
    value: f64,
    round_trips: Option<RoundTrips>,
}

/// The round trips of a cache line between two threads, in µs, before and after a measurement. The
/// host of a virtual machine moves its processors, and all figures change with their distance.
#[derive(Clone, Copy, Debug)]
struct RoundTrips {
    before: f64,
    after: f64,
}

impl Report {
    /// Adds a figure.
    pub(crate) fn figure(&mut self, subject: Subject, quantity: Quantity, value: f64) {
        self.figures.push(Measured { figure: Figure(subject, quantity), value, round_trips: None });
    }

    /// Adds the figures of `measure`, with the round trips of a cache line before and after it.
    ///
    /// # Errors
    /// Returns the error of `measure`.
    pub(crate) fn beside_round_trips(
        &mut self,
        measure: impl FnOnce(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let (first, before) = (self.figures.len(), yardstick::ping_pong(1)?);
        measure(self)?;
        let round_trips = RoundTrips { before, after: yardstick::ping_pong(1)? };
        for measured in self.figures.iter_mut().skip(first) {
            measured.round_trips = Some(round_trips);
        }
        Ok(())
    }

    /// Adds a bandwidth, and others to compare it with: each in bytes per second, with the quantity
    /// that the quotient is.
    pub(crate) fn bandwidth(
        &mut self,
        subject: Subject,
        rate: f64,
        others: &[(Subject, f64, Quantity)],
    ) {
        self.figure(subject, Quantity::Gigabytes, rate / 1e9);
        for &(other, of_other, _) in others {
            self.figure(other, Quantity::Gigabytes, of_other / 1e9);
        }
        for &(_, of_other, quotient) in others {
            self.figure(subject, quotient, rate / of_other);
        }
    }

    /// Adds latencies.
    pub(crate) fn histogram(&mut self, subject: Subject, latencies: &Latencies) {
        use Quantity::{Max, Median, P99};
        for (quantity, part) in [(Median, 500), (P99, 990), (Max, 1000)] {
            self.figure(subject, quantity, latencies.quantile(part));
        }
        let bucket = |(below, count)| json!({ "up_to_ns": below, "count": count });
        let buckets: Vec<_> = latencies.buckets().into_iter().map(bucket).collect();
        self.histograms.insert(subject.to_string(), Value::Array(buckets));
    }

    fn ratios(&self) -> impl Iterator<Item = (String, f64)> {
        QUOTED.into_iter().filter_map(|(ratio, figure)| {
            let measured = self.figures.iter().find(|measured| measured.figure == figure)?;
            Some((ratio.to_owned(), measured.value))
        })
    }

    fn figures(&self) -> impl Iterator<Item = (String, f64)> {
        self.figures.iter().map(|measured| (measured.figure.to_string(), measured.value))
    }

    /// Returns the report as a table.
    pub(crate) fn markdown(&self) -> String {
        let mut text = String::from(
            "| measure | figure | cache line's round trip before and after, µs |\n\
             | --- | ---: | ---: |\n",
        );
        // Writing to a String does not fail.
        for Measured { figure, value, round_trips } in &self.figures {
            let round_trips = round_trips
                .map_or_else(String::new, |RoundTrips { before, after }| {
                    format!("{before:.2}, {after:.2}")
                });
            let _fine = writeln!(text, "| {figure} | {value:.3} | {round_trips} |");
        }
        for (name, value) in self.ratios() {
            let _fine = writeln!(text, "| {name} | {value:.3} | |");
        }
        text
    }

    /// Returns the round trips before and after each figure that has them.
    fn round_trips(&self) -> impl Iterator<Item = (String, [f64; 2])> {
        self.figures.iter().filter_map(|measured| {
            let RoundTrips { before, after } = measured.round_trips?;
            Some((measured.figure.to_string(), [before, after]))
        })
    }

    /// Returns the whole report.
    pub(crate) fn json(&self) -> Value {
        json!({
            "processors": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            "figures": BTreeMap::from_iter(self.figures()),
            "histograms": self.histograms,
            "ratios": BTreeMap::from_iter(self.ratios()),
            "round_trips_us": BTreeMap::from_iter(self.round_trips()),
        })
    }
}
