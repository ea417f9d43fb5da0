//! The report: one page of Markdown.

use std::fmt::Write;

use vrnic_figures::{Figure, QUOTED, Subject};

use crate::goals::{Goal, goals};
use crate::plan::{Device, OPERATIONS, Operation, size};
use crate::results::{Failure, Results};

/// Returns a page with everything that was measured on `devices` with messages of `sizes` bytes.
/// With `charts`, the page shows the charts of [`crate::chart`], whose files must lie next to the
/// page.
pub(crate) fn report(results: &Results, devices: &[Device], sizes: &[u64], charts: bool) -> String {
    let mut text = introduction(results, devices);
    text += &reached(&goals(results));
    if let Some(native) = &results.native {
        // The ratios stand among the goals.
        let is_quoted = |line: &str| QUOTED.iter().any(|(name, _)| line.contains(name));
        let rows: Vec<&str> = native.table.lines().filter(|line| !is_quoted(line)).collect();
        text += &format!("\n## Without guests\n\n{NATIVE}\n\n{}\n", rows.join("\n"));
        let is_of_events = |figure: &Figure| matches!(figure.0, Subject::Events(..));
        if charts && native.figures.keys().any(is_of_events) {
            text += "\n![completion events per second](events.svg)\n";
        }
    }
    text += &format!("\n## Bandwidth in two guests\n\n{BANDWIDTH}\n");
    for operation in OPERATIONS {
        text += &bandwidth(results, operation, devices, sizes, charts);
    }
    text += &format!("\n## Latency in two guests\n\n{LATENCY}\n");
    text += &latency(results, devices, charts);
    for failure in &results.failures {
        text += &failed(failure);
    }
    text
}

const NATIVE: &str = "\
A driver in a program of its own plays both guests over real vfio-user sockets. The daemon has one worker, on the
other processor. Each figure is the best of several runs.";

const BANDWIDTH: &str = "\
MiB/s, and messages per second in brackets, as perftest counts them. *memcpy* copies a block of that size between the
same two places on the host, just before the test over vrnic. Each figure is the best of several tries.";

const LATENCY: &str = "\
perftest's typical latency of 8 B in µs; for write and send that is half a round trip.

The *relay* shows what any adapter in software can reach on this machine. Two threads spin, as the two guests'
processors do. A third thread carries each word from one to the other; there is no adapter and no guest. The figure is
the median of half a round trip, for each way in which the third thread may wait. On a machine with fewer than three
free processors *spin* measures the scheduler: the three spinning threads wait for each other's time slices.";

fn introduction(results: &Results, devices: &[Device]) -> String {
    let names: Vec<_> = devices.iter().map(ToString::to_string).collect();
    let machine = &results.machine;
    let mut text = format!(
        "# Benchmarks\n\n\
         `scripts/bench{}` wrote this page in one run. All figures of a ratio were measured within minutes on the same \
         machine.\nQuote ratios; the figures themselves belong to this machine.\n\n\
         - Machine: {} ({} processors), Linux {}, load average {} at the start.\n\
         - Guests: two, each with one processor, Linux {}, under {}.\n",
        match (results.iwarp, results.wire) {
            (true, _) => format!(" --devices {}", names.join(",")),
            (false, true) => " --wire".to_owned(),
            (false, false) => String::new(),
        },
        machine.processor,
        machine.processors,
        machine.kernel,
        machine.load,
        machine.guest_kernel,
        machine.accelerator,
    );
    if let Some(commit) = &machine.commit {
        text += &format!("- Commit: {commit}.\n");
    }
    if machine.accelerator == "TCG" {
        text += "- Under TCG, QEMU translates the guests' code, which then takes about ten times as long as on the bare\n  \
                 processor.\n";
    }
    text
}

/// Returns the goals and whether they are reached.
fn reached(goals: &[Goal]) -> String {
    let mut text = "\n## Goals\n\n".to_owned();
    let columns = ["measure", "name", "goal", "this run", "reached"].map(str::to_owned);
    let rows: Vec<_> = goals
        .iter()
        .map(|goal| {
            let verdict = match goal.value {
                None => "not measured",
                Some(_) if goal.reached() => "yes",
                Some(_) => "**no**",
            };
            let name = goal.name.map_or_else(String::new, |name| format!("`{name}`"));
            let value = goal.value.map_or_else(missing, number);
            vec![goal.meaning.to_owned(), name, goal.aim.to_string(), value, verdict.to_owned()]
        })
        .collect();
    text += &table(&columns, &rows);
    if !goals.iter().all(Goal::reached) {
        text += "\n[profile.md](profile.md) explains the goals that are hard to reach. \
                 [raw.md](raw.md) has the rates of raw packets,\n\
                 [streams.md](streams.md) those of TCP streams.\n";
    }
    text
}

fn bandwidth(
    results: &Results,
    operation: Operation,
    devices: &[Device],
    sizes: &[u64],
    charts: bool,
) -> String {
    let mut text = format!("\n### ib_{operation}_bw\n\n");
    let rows: Vec<_> = sizes
        .iter()
        .map(|&bytes| {
            let mut row = vec![size(bytes)];
            row.extend(devices.iter().map(|&device| {
                results.bandwidth(device, operation, bytes).map_or_else(missing, |point| {
                    format!("{} ({})", number(point.mib_s), number(point.messages_s))
                })
            }));
            row.push(results.memcpy(operation, bytes).map_or_else(missing, number));
            row
        })
        .collect();
    text += &table(&header("size", devices, Some("memcpy")), &rows);
    if charts {
        text += &format!(
            "\n![MiB/s of ib_{operation}_bw by size]({operation}-bandwidth.svg)\n\
             ![messages per second of ib_{operation}_bw by size]({operation}-rate.svg)\n"
        );
    }
    text
}

fn latency(results: &Results, devices: &[Device], charts: bool) -> String {
    let row = |operation| {
        let mut row = vec![format!("ib_{operation}_lat")];
        let figure = |&device: &Device| results.latency(device, operation);
        row.extend(devices.iter().map(|device| figure(device).map_or_else(missing, number)));
        row
    };
    let mut text = "\n".to_owned();
    text += &table(&header("test", devices, None), &OPERATIONS.map(row));
    let relays = results.relay.iter().map(|r| vec![r.gear.clone(), number(r.half_round_us)]);
    let columns = ["the relay".to_owned(), "µs".to_owned()];
    text += &format!("\n{}", table(&columns, &relays.collect::<Vec<_>>()));
    if charts {
        text += "\n![latency at 8 B](latency.svg)\n";
    }
    text
}

fn failed(failure: &Failure) -> String {
    let mut text = String::new();
    // Text of a tool, so it must not end the code block.
    let said = failure.text.replace("```", "'''");
    let _never = write!(
        text,
        "\n**{}** failed with {}:\n\n```\n{}\n```\n",
        failure.test,
        failure.code,
        said.trim()
    );
    text
}

fn header(first: &str, devices: &[Device], last: Option<&str>) -> Vec<String> {
    let names = devices.iter().map(ToString::to_string);
    std::iter::once(first.to_owned()).chain(names).chain(last.map(str::to_owned)).collect()
}

/// Returns a table whose first column has words and whose others have figures.
pub(crate) fn table(header: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule: Vec<String> =
        (0..header.len()).map(|column| if column == 0 { "---" } else { "---:" }.into()).collect();
    rows.iter().fold(line(header) + &line(&rule), |text, row| text + &line(row))
}

fn missing() -> String {
    "–".to_owned()
}

/// Returns a number with three significant digits.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::sample;

    #[test]
    fn figures_and_gaps_are_shown() {
        let text = report(&sample(), &[Device::Vrnic, Device::Rxe], &[8, 65536], true);
        assert!(text.contains("| 64 KiB | 8000 (128000) | 16.0 (256) | 10000 |"), "{text}");
        assert!(text.contains("| 8 B | 1.91 (250000) | 0.08 (10000) | – |"), "{text}");
        assert!(text.contains("](write-rate.svg)"), "{text}");
    }

    #[test]
    fn goals_are_reached_missed_or_unknown() {
        let text = report(&sample(), &[Device::Vrnic], &[8], false);
        assert!(text.contains("| `native_write64_latency_us` | ≤ 0.4 | 0.25 | yes |"), "{text}");
        assert!(text.contains("| `native_write64_mops` | ≥ 8 | – | not measured |"), "{text}");
        assert!(text.contains("| `guest_rate8_vs_rxe` | ≥ 20 | 25.0 | yes |"), "{text}");
        assert!(!text.contains("| native_write64_latency_us | 0.25 |"), "{text}");
        assert!(!text.contains(".svg"), "{text}");
        let mut slow = sample();
        slow.latency[0].typical_us = 50.0;
        let text = report(&slow, &[Device::Vrnic], &[8], false);
        assert!(text.contains("| `guest_write_lat8_vs_relay` | ≤ 1.2 | 1.56 | **no** |"), "{text}");
    }
}
