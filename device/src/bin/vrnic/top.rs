//! Rates of all functions, refreshed at an interval.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use vrnic_device::monitor::AdapterView;

use crate::client::Client;
use crate::show::table;

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

pub(crate) fn parse_interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("'{text}' is not a number"))?;
    (0.1..=3600.0)
        .contains(&seconds)
        .then_some(seconds)
        .ok_or("the interval must be from 0.1 to 3600 seconds".to_owned())
}

/// Prints rates every `interval` seconds, `looks` times (0: for ever).
pub(crate) fn top(client: &Client, interval: f64, looks: u64) -> anyhow::Result<()> {
    let clear = std::io::stdout().is_terminal();
    let (mut before, mut at) = (client.functions()?, Instant::now());
    let mut done = 0;
    while looks == 0 || done < looks {
        std::thread::sleep(Duration::from_secs_f64(interval));
        let (now, now_at) = (client.functions()?, Instant::now());
        if clear {
            // Home, and clear what is below.
            print!("\x1b[H\x1b[J");
        }
        println!("{}", render(&before, &now, (now_at - at).as_secs_f64()));
        (before, at) = (now, now_at);
        done += 1;
    }
    Ok(())
}

fn render(before: &[AdapterView], now: &[AdapterView], seconds: f64) -> String {
    let mut head = vec!["function", "state", "qps", "tx MB/s", "rx MB/s"];
    head.extend(RATES.map(|(name, _)| name));
    let mut table = table(&head);
    for function in now {
        let Some(old) = before.iter().find(|old| old.name == function.name) else { continue };
        let rate = |counters: &[&str]| {
            let sum = |all: &Counters| counters.iter().filter_map(|name| all.get(*name)).sum();
            // After a reset the counters begin again.
            let (old, new): (u64, u64) = (sum(&old.counters), sum(&function.counters));
            new.saturating_sub(old) as f64 / seconds
        };
        let mut row = vec![function.name.clone(), state(function).to_owned()];
        row.push(function.objects.get("qps").copied().unwrap_or_default().to_string());
        row.extend(["tx_bytes", "rx_bytes"].map(|c| format!("{:.1}", rate(&[c]) / 1e6)));
        row.extend(RATES.map(|(_, counters)| format!("{:.0}", rate(counters))));
        table.add_row(row);
    }
    table.to_string()
}

fn state(function: &AdapterView) -> &'static str {
    match function {
        AdapterView { enabled: false, .. } => "off",
        AdapterView { fatal: 1.., .. } => "fatal",
        AdapterView { link: false, .. } => "down",
        _ => "active",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(writes: u64, bytes: u64) -> AdapterView {
        AdapterView {
            name: "a".to_owned(),
            mac: String::new(),
            enabled: true,
            fatal: 0,
            link: true,
            objects: [("qps".to_owned(), 7)].into(),
            counters: [("tx_write_req".to_owned(), writes), ("tx_bytes".to_owned(), bytes)].into(),
        }
    }

    #[test]
    fn rates_are_of_the_time_between() {
        let text = render(&[function(100, 0)], &[function(500, 8_000_000)], 2.0);
        let row = text.lines().last().expect("a row");
        let words: Vec<_> = row.split_whitespace().collect();
        assert_eq!(words[..7], ["a", "active", "7", "4.0", "0.0", "0", "200"], "{text}");
        // Counters that began again give no rate.
        let text = render(&[function(500, 0)], &[function(3, 0)], 1.0);
        assert!(
            text.lines().last().expect("a row").split_whitespace().nth(6) == Some("0"),
            "{text}"
        );
    }
}
