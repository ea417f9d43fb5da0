//! The counters of the switch's ports in the text format of Prometheus.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use vrnic_control_api::PortView;
use vrnic_control_api::port_view::LaneView;

/// The ports of the switch. Each metric has the labels `port` and `kind`.
#[derive(Debug)]
pub(super) struct Ports(pub(super) Vec<PortView>);

/// The name of a metric, its help text, and a function that returns its value.
type Counter = (&'static str, &'static str, fn(&PortView) -> u64);

const COUNTERS: [Counter; 4] = [
    ("port_received_frames", "Frames that came into the switch", |port| port.received_frames),
    ("port_received_bytes", "Bytes of the frames that came into the switch", |port| {
        port.received_bytes
    }),
    ("port_sent_frames", "Frames that left the switch", |port| port.sent_frames),
    ("port_sent_bytes", "Bytes of the frames that left the switch", |port| port.sent_bytes),
];

/// The name of a metric of a class, its help text, and a function that returns its value.
type LaneCounter = (&'static str, &'static str, fn(&LaneView) -> u64);

const LANE_COUNTERS: [LaneCounter; 8] = [
    ("lane_frames", "Frames of the class that left by the port", |lane| lane.frames),
    ("lane_bytes", "Bytes of these frames", |lane| lane.bytes),
    ("lane_dropped_frames", "Frames of the class that were dropped", |lane| lane.drops),
    ("lane_marked_frames", "Frames that got a mark of congestion", |lane| lane.marks),
    ("lane_paused_microseconds", "Time for which the class was paused", |lane| lane.paused_us),
    ("lane_pfc_sent", "PFC frames of the class that were sent", |lane| lane.pfc_sent),
    ("lane_pfc_received", "PFC frames of the class that were received", |lane| lane.pfc_received),
    ("lane_storms", "Pauses of the class that were too long", |lane| lane.storms),
];

impl Collector for Ports {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        self.family(&mut encoder, "port_up", "Whether the port has a link", |port| {
            Some(ConstGauge::new(i64::from(port.up)))
        })?;
        if self.0.iter().any(|port| port.mtu.is_some()) {
            let help = "Longest IP packet that the port carries";
            self.family(&mut encoder, "port_mtu_bytes", help, |port| {
                Some(ConstGauge::new(i64::from(port.mtu?)))
            })?;
        }
        for (name, help, value) in COUNTERS {
            self.family(&mut encoder, name, help, |port| Some(ConstCounter::new(value(port))))?;
        }
        self.dropped(&mut encoder)?;
        self.lanes(&mut encoder)
    }
}

impl Ports {
    /// Writes one metric of all ports that have it.
    fn family<M: EncodeMetric>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&PortView) -> Option<M>,
    ) -> fmt::Result {
        let metrics: Vec<_> = self.0.iter().filter_map(|port| Some((port, value(port)?))).collect();
        let Some((_, first)) = metrics.first() else { return Ok(()) };
        let mut family = encoder.encode_descriptor(name, help, None, first.metric_type())?;
        for (port, metric) in &metrics {
            let labels = [("port", port.name.as_str()), ("kind", port.kind.name())];
            metric.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// Writes the counters of classes, and the bytes that wait, if a port has lanes.
    fn lanes(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if self.0.iter().all(|port| port.lanes.is_empty()) {
            return Ok(());
        }
        for (name, help, value) in LANE_COUNTERS {
            self.lane(encoder, name, help, |lane| ConstCounter::new(value(lane)))?;
        }
        let (name, help) = ("lane_waiting_bytes", "Bytes of the class that wait at the port");
        self.lane(encoder, name, help, |lane| ConstGauge::new(lane.depth.cast_signed()))
    }

    /// Writes one metric of all classes.
    fn lane<M: EncodeMetric>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&LaneView) -> M,
    ) -> fmt::Result {
        let kind = value(&LaneView::default()).metric_type();
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for port in &self.0 {
            for lane in &port.lanes {
                let class = lane.class.to_string();
                let labels = [("port", port.name.as_str()), ("class", class.as_str())];
                value(lane).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    /// Writes the numbers of dropped frames, by reason.
    fn dropped(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let kind = ConstCounter::new(0u64).metric_type();
        let (name, help) = ("port_dropped_frames", "Frames that were dropped");
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for port in &self.0 {
            for (reason, count) in &port.dropped {
                let labels = [
                    ("port", port.name.as_str()),
                    ("kind", port.kind.name()),
                    ("reason", reason.as_str()),
                ];
                ConstCounter::new(*count).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;
    use vrnic_control_api::port_view::Kind;

    use super::*;

    #[test]
    fn a_port_has_its_state_and_counters() {
        let port = |name: &str, kind, dropped: &[(&str, u64)]| PortView {
            name: name.to_owned(),
            kind,
            up: false,
            mtu: None,
            received_frames: 0,
            received_bytes: 0,
            sent_frames: 0,
            sent_bytes: 0,
            lanes: Vec::new(),
            dropped: dropped.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect(),
        };
        let trunk = PortView {
            up: true,
            mtu: Some(1500),
            received_frames: 1,
            received_bytes: 60,
            lanes: vec![LaneView { class: 3, frames: 7, depth: 9, ..LaneView::default() }],
            ..port("u", Kind::Trunk, &[("queue_full", 3)])
        };
        let mut registry = Registry::with_prefix("vrnic");
        let other = port("g", Kind::Guest, &[("forged", 0)]);
        registry.register_collector(Box::new(Ports(vec![other, trunk])));
        let mut out = String::new();
        text::encode(&mut out, &registry).expect("text");
        for line in [
            "vrnic_port_up{port=\"u\",kind=\"trunk\"} 1",
            "vrnic_port_up{port=\"g\",kind=\"guest\"} 0",
            "vrnic_port_mtu_bytes{port=\"u\",kind=\"trunk\"} 1500",
            "vrnic_port_received_frames_total{port=\"u\",kind=\"trunk\"} 1",
            "vrnic_port_received_bytes_total{port=\"u\",kind=\"trunk\"} 60",
            "vrnic_lane_frames_total{port=\"u\",class=\"3\"} 7",
            "vrnic_lane_waiting_bytes{port=\"u\",class=\"3\"} 9",
            "vrnic_port_dropped_frames_total{port=\"u\",kind=\"trunk\",reason=\"queue_full\"} 3",
            "vrnic_port_dropped_frames_total{port=\"g\",kind=\"guest\",reason=\"forged\"} 0",
        ] {
            assert!(out.lines().any(|l| l == line), "{line} is missing in\n{out}");
        }
        assert!(!out.contains("mtu_bytes{port=\"g\""), "{out}");
    }
}
