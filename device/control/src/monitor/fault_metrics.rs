//! The counters of rules for faults in the text format of Prometheus.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use vrnic_control_api::faults::{FaultsView, RuleView};

/// The rules. Each metric has the labels `rule`, which is the number, after the function if its
/// guest has set it, and `text`.
#[derive(Debug)]
pub(super) struct Rules(pub(super) FaultsView);

/// The name of a metric, its help text, and a function that returns its value.
type Counter = (&'static str, &'static str, fn(&RuleView) -> u64);

const COUNTERS: [Counter; 2] = [
    ("fault_seen_packets", "Packets or other things that a rule has looked at", |rule| rule.seen),
    ("fault_hit_packets", "Packets or other things that a rule has hit", |rule| rule.hit),
];

impl Collector for Rules {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        if self.0.rules.is_empty() {
            return Ok(());
        }
        let kind = ConstCounter::new(0u64).metric_type();
        for (name, help, value) in COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for rule in &self.0.rules {
                let guest = rule.guest.as_ref().map(|guest| format!("{guest}:"));
                let number = format!("{}{}", guest.unwrap_or_default(), rule.id);
                let labels = [("rule", number), ("text", rule.rule.clone())];
                ConstCounter::new(value(rule)).encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Packets that were dropped because too many packets waited";
        let overflowed = encoder.encode_descriptor("fault_overflowed_packets", help, None, kind)?;
        ConstCounter::new(self.0.overflowed).encode(overflowed)
    }
}
