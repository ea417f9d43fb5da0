//! The table of resources in the text format of Prometheus.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;
use vrnic_control_api::resource_view::{Amounts, ResourceRow};

/// The rows. Each metric has the label `resource`, and those of functions the label `function`.
#[derive(Debug)]
pub(super) struct Rows(pub(super) Vec<ResourceRow>);

/// A metric.
struct Gauge {
    name: &'static str,
    help: &'static str,
    /// True if it is one of row 0.
    physical: bool,
    value: fn(&Amounts) -> Option<u64>,
}

const GAUGES: [Gauge; 4] = [
    Gauge {
        name: "resource_maximum",
        help: "Amount of a resource that the function can use",
        physical: false,
        value: |amounts| Some(amounts.maximum),
    },
    Gauge {
        name: "resource_actual",
        help: "Amount of a resource that the function uses",
        physical: false,
        value: |amounts| amounts.actual,
    },
    Gauge {
        name: "physical_maximum",
        help: "Amount of a resource that all functions can have together",
        physical: true,
        value: |amounts| Some(amounts.maximum),
    },
    Gauge {
        name: "physical_assigned",
        help: "Amount of a resource that is assigned to functions",
        physical: true,
        value: |amounts| amounts.actual,
    },
];

impl Collector for Rows {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Gauge { name, help, physical, value } in GAUGES {
            let rows = self.0.iter().filter(|row| row.function.is_none() == physical);
            let rows: Vec<_> = rows.collect();
            if rows.is_empty() {
                continue;
            }
            let kind = ConstGauge::new(0i64).metric_type();
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for row in rows {
                for (resource, amounts) in &row.resources {
                    let Some(amount) = value(amounts) else { continue };
                    let mut labels = vec![("resource", resource.as_str())];
                    labels.extend(row.function.as_deref().map(|name| ("function", name)));
                    let gauge = ConstGauge::new(i64::try_from(amount).unwrap_or(i64::MAX));
                    gauge.encode(family.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}
