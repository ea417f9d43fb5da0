//! The figures, as a Markdown table and as JSON.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::latency::Latencies;

/// The names under which other programs look for ratios, and the figures that they are.
const RATIOS: [(&str, &str); 4] = [
    ("native_write64_latency_us", "64 B WRITE, doorbell to CQE, SQ in guest, median, µs"),
    ("native_write64_mops", "64 B Write, SQ in guest, million/s"),
    ("native_write64k_vs_memcpy", "64 KiB Write / memcpy"),
    ("native_rate_10000qp_vs_1qp", "64 B Write, rate among idle QPs / alone"),
];

/// Figures in the order of their measurement.
#[derive(Debug, Default)]
pub(crate) struct Report {
    figures: Vec<(String, f64)>,
    histograms: Map<String, Value>,
}

impl Report {
    /// Adds a figure.
    pub(crate) fn figure(&mut self, name: &str, value: f64) {
        self.figures.push((name.to_owned(), value));
    }

    /// Adds latencies.
    pub(crate) fn histogram(&mut self, name: &str, latencies: &Latencies) {
        for (what, part) in [("median", 500), ("p99", 990), ("max", 1000)] {
            self.figure(&format!("{name}, {what}, µs"), latencies.quantile(part));
        }
        let bucket = |(below, count)| json!({ "up_to_ns": below, "count": count });
        let buckets: Vec<_> = latencies.buckets().into_iter().map(bucket).collect();
        self.histograms.insert(name.to_owned(), Value::Array(buckets));
    }

    fn ratios(&self) -> impl Iterator<Item = (&str, f64)> {
        RATIOS.iter().filter_map(|(ratio, figure)| {
            let found = self.figures.iter().find(|(name, _)| name == figure)?;
            Some((*ratio, found.1))
        })
    }

    /// The table.
    pub(crate) fn markdown(&self) -> String {
        let mut text = String::from("| measure | figure |\n| --- | --- |\n");
        let figures = self.figures.iter().map(|(name, value)| (name.as_str(), *value));
        for (name, value) in figures.chain(self.ratios()) {
            // Writing to a String does not fail.
            let _fine = writeln!(text, "| {name} | {value:.3} |");
        }
        text
    }

    /// All of it.
    pub(crate) fn json(&self) -> Value {
        let map = |(name, value): (&str, f64)| (name.to_owned(), json!(value));
        let figures = self.figures.iter().map(|(name, value)| map((name, *value)));
        let ratios = self.ratios().map(map);
        json!({
            "processors": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            "figures": figures.collect::<Map<_, _>>(),
            "histograms": self.histograms,
            "ratios": ratios.collect::<Map<_, _>>(),
        })
    }
}
