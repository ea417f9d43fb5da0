//! Numbers per second.

use std::collections::BTreeMap;

use serde_json::Value as Json;
use vrnic_control_api::AdapterView;

/// Columns: what they are called, and the counters that they sum up.
const RATES: [(&str, &[&str]); 9] = [
    ("sends/s", &["tx_send_req"]),
    ("writes/s", &["tx_write_req"]),
    ("reads/s", &["tx_read_req"]),
    ("atomics/s", &["tx_atomic_req"]),
    ("recvs/s", &["recv_wrs"]),
    ("events/s", &["completion_events"]),
    ("irqs/s", &["interrupts"]),
    ("retries/s", &["local_ack_timeout_err", "rnr_nak_retry_err"]),
    ("errors/s", &["req_cqe_error", "resp_cqe_error"]),
];

type Counters = BTreeMap<String, u64>;

/// Returns the headings of the columns of a function's row.
pub(super) fn heads() -> Vec<String> {
    let first = ["function", "state", "qps", "tx MB/s", "rx MB/s"];
    first.into_iter().chain(RATES.map(|(name, _)| name)).map(str::to_owned).collect()
}

/// Returns the cells of a function's row.
pub(super) fn cells(before: &AdapterView, now: &AdapterView, seconds: f64) -> Vec<String> {
    let rate = |counters: &[&str]| rate(&before.counters, &now.counters, counters, seconds);
    let mut row = vec![now.name.clone(), state(now).to_owned()];
    row.push(now.objects.get("qps").copied().unwrap_or_default().to_string());
    row.extend(["tx_bytes", "rx_bytes"].map(|c| format!("{:.1}", rate(&[c]) / 1e6)));
    row.extend(RATES.map(|(_, counters)| format!("{:.0}", rate(counters))));
    row
}

/// Returns the growth of the sum of these counters in a second.
pub(super) fn rate(before: &Counters, now: &Counters, names: &[&str], seconds: f64) -> f64 {
    let sum = |all: &Counters| names.iter().filter_map(|name| all.get(*name)).sum::<u64>();
    // After a reset the counters begin again.
    per_second(sum(now).saturating_sub(sum(before)), seconds)
}

/// Returns the number of requests that are posted to a queue of a QP in a second, or `None` if the
/// QP has no such queue or was not known before.
pub(super) fn posted(before: Option<&Json>, now: &Json, queue: &str, seconds: f64) -> Option<f64> {
    let index = |qp: &Json| qp[queue]["posted"].as_u64().and_then(|it| u32::try_from(it).ok());
    let grown = index(now)?.wrapping_sub(index(before?)?);
    Some(per_second(grown.into(), seconds))
}

fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// Returns a word for the state of a function.
pub(super) fn state(function: &AdapterView) -> &'static str {
    match function {
        AdapterView { enabled: false, .. } => "off",
        AdapterView { fatal: 1.., .. } => "fatal",
        AdapterView { link: false, .. } => "down",
        _ => "active",
    }
}
