//! The counters in the text format of Prometheus (OpenMetrics).

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use vrnic_abi::admin::{STAT_HELP, STAT_NAMES};
use vrnic_control_api::AdapterView;

use super::Watched;
use super::fault_metrics::Rules;
use super::port_metrics::Ports;
use super::resource_metrics::Rows;

pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns all metrics as text. The metrics of functions have the label `function`.
pub(super) fn metrics<W: Watched>(watched: &W) -> String {
    let mut registry = Registry::with_prefix("vrnic");
    registry.register_collector(Box::new(Views { all: watched.views(), counters: W::COUNTERS }));
    registry.register_collector(Box::new(Rows(watched.resources())));
    registry.register_collector(Box::new(Ports(watched.ports())));
    registry.register_collector(Box::new(Rules(watched.faults())));
    let mut out = String::new();
    if let Err(error) = text::encode(&mut out, &registry) {
        tracing::error!(%error, "the metrics cannot be written");
    }
    out
}

/// The name of a metric, its help text, and a function that returns its value.
type Gauge = (&'static str, &'static str, fn(&AdapterView) -> i64);

/// The views of all adapters.
#[derive(Debug)]
struct Views {
    all: Vec<AdapterView>,
    /// Counters of the hosts: names and help texts.
    counters: &'static [(&'static str, &'static str)],
}

impl Collector for Views {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let gauges: [Gauge; 3] = [
            ("enabled", "Whether a driver has enabled the function", |f| f.enabled.into()),
            ("link_up", "Whether its port carries traffic", |f| f.link.into()),
            ("fatal", "Register FATAL_CODE of the function, zero if it works", |f| f.fatal.into()),
        ];
        for (name, help, value) in gauges {
            self.family(&mut encoder, name, help, |view| Some(ConstGauge::new(value(view))))?;
        }
        for kind in names(&self.all, |view| &view.objects) {
            let (name, help) =
                (format!("objects_{kind}"), format!("Number of {kind} of the function"));
            self.family(&mut encoder, &name, &help, |view| {
                // CAST: an adapter has at most some millions of objects of a kind.
                Some(ConstGauge::new(*view.objects.get(kind)? as i64))
            })?;
        }
        for (counter, help) in
            STAT_NAMES.into_iter().zip(STAT_HELP).chain(self.counters.iter().copied())
        {
            self.family(&mut encoder, counter, help, |view| {
                Some(ConstCounter::new(*view.counters.get(counter)?))
            })?;
        }
        Ok(())
    }
}

impl Views {
    /// Writes one metric of all adapters.
    fn family<M: EncodeMetric>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&AdapterView) -> Option<M>,
    ) -> fmt::Result {
        let metrics = self.all.iter().filter_map(|view| Some((view, value(view)?)));
        let metrics: Vec<_> = metrics.collect();
        let Some((_, first)) = metrics.first() else { return Ok(()) };
        let mut family = encoder.encode_descriptor(name, help, None, first.metric_type())?;
        for (view, metric) in &metrics {
            let label = [("function", view.name.as_str())];
            metric.encode(family.encode_family(&label)?)?;
        }
        Ok(())
    }
}

/// Returns the keys of a map that all adapters have.
fn names(
    views: &[AdapterView],
    map: impl for<'a> Fn(&'a AdapterView) -> &'a BTreeMap<String, u64>,
) -> Vec<&str> {
    views.first().map_or(Vec::new(), |view| map(view).keys().map(String::as_str).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_has_a_value_for_each_function() {
        let view = |name: &str, link, writes| AdapterView {
            name: name.to_owned(),
            mac: String::new(),
            enabled: true,
            fatal: 0,
            link,
            objects: [("qps".to_owned(), 3)].into(),
            counters: [("tx_write_req".to_owned(), writes)].into(),
        };
        let mut registry = Registry::with_prefix("vrnic");
        let all = vec![view("a", true, 5), view("b", false, 6)];
        registry.register_collector(Box::new(Views { all, counters: &[] }));
        let mut out = String::new();
        text::encode(&mut out, &registry).expect("text");
        for line in [
            "# TYPE vrnic_tx_write_req counter",
            "vrnic_tx_write_req_total{function=\"a\"} 5",
            "vrnic_tx_write_req_total{function=\"b\"} 6",
            "vrnic_link_up{function=\"a\"} 1",
            "vrnic_link_up{function=\"b\"} 0",
            "vrnic_objects_qps{function=\"a\"} 3",
            "# EOF",
        ] {
            assert!(out.lines().any(|l| l == line), "{line} is missing in\n{out}");
        }
    }
}
