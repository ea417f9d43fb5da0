//! Charts of the results, as SVG: both axes logarithmic, since the devices are decades apart.

mod events;

use std::path::Path;
use std::{fs, io};

use vrnic_figures::svg::{Axis, BOTTOM, LEFT, RIGHT, Svg, range};

use crate::markdown::number;
use crate::plan::{Device, OPERATIONS, Operation, size};
use crate::results::Results;

/// Colour of what the host can do.
const HOST: &str = "#6b6b6b";

/// A line of a chart.
struct Series {
    name: String,
    colour: &'static str,
    dashed: bool,
    points: Vec<(f64, f64)>,
}

/// Writes a chart for each operation's bandwidth and message rate, one for latency, and one for
/// events if those were measured.
pub(crate) fn write_all(results: &Results, devices: &[Device], dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for operation in OPERATIONS {
        let mut series: Vec<Series> = devices
            .iter()
            .map(|&device| line(results, device, operation, |point| point.mib_s))
            .collect();
        series.push(Series {
            name: "memcpy".into(),
            colour: HOST,
            dashed: true,
            points: memcpy(results, operation),
        });
        let title = format!("ib_{operation}_bw: MiB/s by message size");
        fs::write(dir.join(format!("{operation}-bandwidth.svg")), lines(&title, &series))?;
        let series: Vec<Series> = devices
            .iter()
            .map(|&device| line(results, device, operation, |point| point.messages_s))
            .collect();
        let title = format!("ib_{operation}_bw: messages per second by message size");
        fs::write(dir.join(format!("{operation}-rate.svg")), lines(&title, &series))?;
    }
    if let Some(svg) = results.native.as_ref().and_then(events::chart) {
        fs::write(dir.join("events.svg"), svg)?;
    }
    fs::write(dir.join("latency.svg"), latency(results, devices))
}

fn line(
    results: &Results,
    device: Device,
    operation: Operation,
    value: impl Fn(&crate::results::Bandwidth) -> f64,
) -> Series {
    let points = results.bandwidth.iter();
    let points = points.filter(|point| (point.device, point.operation) == (device, operation));
    Series {
        name: device.to_string(),
        colour: colour(device),
        dashed: false,
        points: points.map(|point| (point.bytes as f64, value(point))).collect(),
    }
}

fn memcpy(results: &Results, operation: Operation) -> Vec<(f64, f64)> {
    let copies = results.memcpy.iter().filter(|copy| copy.operation == operation);
    copies.map(|copy| (copy.bytes as f64, copy.mib_s)).collect()
}

/// Returns the colour of a device. All colours can be told apart by people who cannot distinguish
/// red and green.
fn colour(device: Device) -> &'static str {
    match device {
        Device::Vrnic | Device::Iwarp => "#0072b2",
        Device::Rxe => "#d55e00",
        Device::Mixed => "#009e73",
        Device::Siw => "#9b5ba5",
    }
}

/// Returns a chart with a line for each series over message sizes.
fn lines(title: &str, series: &[Series]) -> String {
    let all = || series.iter().flat_map(|series| series.points.iter());
    let (low, high) = range(all().map(|point| point.0));
    let x = Axis::new(low, high.max(low * 2.0), LEFT + 12.0, RIGHT - 12.0);
    let y = Axis::decades(all().map(|point| point.1));
    let mut svg = Svg::new(title);
    svg.grid(&y);
    let mut sizes: Vec<f64> = all().map(|point| point.0).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    for bytes in sizes {
        svg.text(x.place(bytes), BOTTOM + 20.0, "middle", &size(bytes as u64));
    }
    for (index, Series { name, colour, dashed, points }) in series.iter().enumerate() {
        let places: Vec<(f64, f64)> = points
            .iter()
            .filter(|point| point.1 > 0.0)
            .map(|&(bytes, value)| (x.place(bytes), y.place(value)))
            .collect();
        svg.line(&places, colour, *dashed);
        svg.legend(index, name, colour);
    }
    svg.end()
}

/// Returns bars of each device for each operation, and the fastest relay as a line across.
fn latency(results: &Results, devices: &[Device]) -> String {
    let values = results.latency.iter().map(|latency| latency.typical_us);
    let y = Axis::decades(values.chain(results.relay()));
    let mut svg = Svg::new("Latency at 8 B: µs, typical (less is better)");
    svg.grid(&y);
    if let Some(relay) = results.relay() {
        let at = y.place(relay);
        svg.line(&[(LEFT, at), (RIGHT, at)], HOST, true);
        svg.legend(
            devices.len(),
            &format!("three-thread relay on the host: {} µs", number(relay)),
            HOST,
        );
    }
    let group = (RIGHT - LEFT) / OPERATIONS.len() as f64;
    let bar = group * 0.7 / devices.len().max(1) as f64;
    for (index, operation) in OPERATIONS.into_iter().enumerate() {
        let start = LEFT + group * (index as f64 + 0.15);
        svg.text(start + group * 0.35, BOTTOM + 20.0, "middle", &format!("ib_{operation}_lat"));
        for (place, &device) in devices.iter().enumerate() {
            let Some(value) = results.latency(device, operation) else { continue };
            let (x, top) = (start + bar * place as f64, y.place(value));
            svg.bar(x, top, bar * 0.9, colour(device));
            svg.text(x + bar * 0.45, top - 5.0, "middle", &number(value));
        }
    }
    for (index, &device) in devices.iter().enumerate() {
        svg.legend(index, &device.to_string(), colour(device));
    }
    svg.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::sample;

    #[test]
    fn every_device_has_its_line_and_gaps_are_left_out() {
        let devices = [Device::Vrnic, Device::Rxe, Device::Siw];
        let results = sample();
        let series: Vec<Series> = devices
            .iter()
            .map(|&device| line(&results, device, Operation::Write, |point| point.mib_s))
            .collect();
        let svg = lines("a title", &series);
        assert_eq!(svg.matches("<polyline").count(), 3);
        assert_eq!(svg.matches("<circle").count(), 4);
        assert!(svg.contains(">64 KiB<") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert_eq!(latency(&results, &devices).matches("<rect").count(), 1 + 3 + 3 + 1);
    }

    #[test]
    fn memcpy_is_that_beside_the_operation() {
        let mut results = sample();
        let other = crate::host::Memcpy { operation: Operation::Read, bytes: 65536, mib_s: 1.0 };
        results.memcpy.push(other);
        assert_eq!(memcpy(&results, Operation::Write), [(65536.0, 10_000.0)]);
    }
}
