//! The results as Markdown.

use std::fmt::Write;

use crate::plan::{Device, OPERATIONS, size};
use crate::results::Results;

/// Tables of everything that was measured on `devices` with messages of `sizes` bytes.
pub(crate) fn markdown(results: &Results, devices: &[Device], sizes: &[u64]) -> String {
    let mut text = machine(results);
    for operation in OPERATIONS {
        text += &format!("\n### ib_{operation}_bw: MiB/s (messages per second)\n\n");
        let mut rows = Vec::new();
        for &bytes in sizes {
            let mut row = vec![size(bytes)];
            row.extend(devices.iter().map(|&device| {
                results.bandwidth(device, operation, bytes).map_or_else(missing, |point| {
                    format!("{} ({})", number(point.mib_s), number(point.messages_s))
                })
            }));
            row.push(results.memcpy(bytes).map_or_else(missing, number));
            rows.push(row);
        }
        text += &table(&header("size", devices, Some("memcpy")), &rows);
    }
    text += "\n### Latency at 8 B: µs, typical\n\n";
    let rows: Vec<_> =
        OPERATIONS
            .iter()
            .map(|&operation| {
                let mut row = vec![format!("ib_{operation}_lat")];
                row.extend(devices.iter().map(|&device| {
                    results.latency(device, operation).map_or_else(missing, number)
                }));
                row
            })
            .collect();
    text += &table(&header("test", devices, None), &rows);
    text += "\n### Three threads on the host, one relaying: µs of one crossing, median\n\n";
    let rows: Vec<_> =
        results.relay.iter().map(|r| vec![r.gear.clone(), number(r.half_round_us)]).collect();
    text += &table(&["relay".into(), "µs".into()], &rows);
    text += "\n### Ratios\n\n";
    let rows: Vec<_> =
        results.ratios().into_iter().map(|(name, r)| vec![name.to_owned(), number(r)]).collect();
    text += &table(&["ratio".into(), "value".into()], &rows);
    for failure in &results.failures {
        // Text of a tool, so it must not end the code block.
        let said = failure.text.replace("```", "'''");
        let _never = write!(
            text,
            "\n**{}** failed with {}:\n\n```\n{}\n```\n",
            failure.test,
            failure.code,
            said.trim()
        );
    }
    text
}

fn machine(results: &Results) -> String {
    let machine = &results.machine;
    format!(
        "{} ({} processors), Linux {}, load average {} at the start; guests: Linux {} under {}.\n",
        machine.processor,
        machine.processors,
        machine.kernel,
        machine.load,
        machine.guest_kernel,
        machine.accelerator
    )
}

fn header(first: &str, devices: &[Device], last: Option<&str>) -> Vec<String> {
    let names = devices.iter().map(ToString::to_string);
    std::iter::once(first.to_owned()).chain(names).chain(last.map(str::to_owned)).collect()
}

fn table(header: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule: Vec<String> =
        (0..header.len()).map(|column| if column == 0 { "---" } else { "---:" }.into()).collect();
    rows.iter().fold(line(header) + &line(&rule), |text, row| text + &line(row))
}

fn missing() -> String {
    "–".to_owned()
}

/// Three digits that count.
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
        let text = markdown(&sample(), &[Device::Vrnic, Device::Rxe], &[8, 65536]);
        assert!(text.contains("| 64 KiB | 8000 (128000) | 16.0 (256) | 10000 |"), "{text}");
        assert!(text.contains("| 8 B | 1.91 (250000) | 0.08 (10000) | – |"), "{text}");
        assert!(text.contains("| guest_write_lat8_vs_relay | 1.12 |"), "{text}");
    }
}
