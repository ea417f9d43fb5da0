//! Charts of the results, as SVG: both axes logarithmic, since the devices are decades apart.

mod events;

use std::fmt::Write;
use std::path::Path;
use std::{fs, io};

use crate::markdown::number;
use crate::plan::{Device, OPERATIONS, Operation, size};
use crate::results::Results;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
/// The edges of the plot in the picture.
const LEFT: f64 = 80.0;
const RIGHT: f64 = WIDTH - 24.0;
const TOP: f64 = 76.0;
const BOTTOM: f64 = HEIGHT - 56.0;
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

/// A logarithmic axis from data to a place on the chart.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// Creates an axis over whole decades that holds all `values`.
    fn decades(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = range(values);
        let low = low.log10().floor();
        let high = high.log10().ceil().max(low + 1.0);
        Self { low: 10_f64.powf(low), high: 10_f64.powf(high), from: BOTTOM, to: TOP }
    }

    fn place(&self, value: f64) -> f64 {
        let share = (value / self.low).ln() / (self.high / self.low).ln();
        self.from + share * (self.to - self.from)
    }

    /// Returns the powers of ten on it.
    fn marks(&self) -> Vec<f64> {
        let mut marks = vec![self.low];
        while let Some(last) = marks.last().filter(|last| **last < self.high * 0.99) {
            marks.push(last * 10.0);
        }
        marks
    }
}

/// Returns the smallest and the greatest positive value.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let found = values.filter(|value| value.is_normal() && *value > 0.0);
    let (low, high) =
        found.fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), v| (low.min(v), high.max(v)));
    if low <= high { (low, high) } else { (1.0, 10.0) }
}

/// Returns a chart with a line for each series over message sizes.
fn lines(title: &str, series: &[Series]) -> String {
    let all = || series.iter().flat_map(|series| series.points.iter());
    let (low, high) = range(all().map(|point| point.0));
    let x = Axis { low, high: high.max(low * 2.0), from: LEFT + 12.0, to: RIGHT - 12.0 };
    let y = Axis::decades(all().map(|point| point.1));
    let mut svg = Svg::new(title);
    svg.decades(&y);
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
    svg.decades(&y);
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

/// Builds a drawing. Texts are our own words and numbers, so nothing needs escaping.
struct Svg(String);

impl Svg {
    fn new(title: &str) -> Self {
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\">\n\
             <title>{title}</title>\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
             <text x=\"{LEFT}\" y=\"26\" font-size=\"16\" font-weight=\"bold\">{title}</text>\n"
        ))
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        // A String takes everything.
        let _never = writeln!(self.0, "{element}");
    }

    /// Draws grid lines and labels at powers of ten.
    fn decades(&mut self, axis: &Axis) {
        for mark in axis.marks() {
            let y = axis.place(mark);
            self.add(format_args!(
                "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>"
            ));
            self.text(LEFT - 8.0, y + 4.0, "end", &thousands(mark));
        }
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" stroke=\"#fff\" \
             stroke-width=\"3\" paint-order=\"stroke\">{text}</text>"
        ));
    }

    fn line(&mut self, places: &[(f64, f64)], colour: &str, dashed: bool) {
        let dash = if dashed { " stroke-dasharray=\"6 4\"" } else { "" };
        let points: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.add(format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.5\"{dash}/>",
            points.join(" ")
        ));
        if !dashed {
            for (x, y) in places {
                self.add(format_args!(
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>"
                ));
            }
        }
    }

    /// Draws a bar from `top` down to the axis.
    fn bar(&mut self, x: f64, top: f64, width: f64, colour: &str) {
        let height = BOTTOM - top;
        self.add(format_args!(
            "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
        ));
    }

    fn legend(&mut self, index: usize, name: &str, colour: &str) {
        let x = LEFT + 100.0 * index as f64;
        self.add(format_args!(
            "<rect x=\"{x}\" y=\"42\" width=\"14\" height=\"14\" fill=\"{colour}\"/>"
        ));
        self.text(x + 20.0, 54.0, "start", name);
    }

    fn end(self) -> String {
        self.0 + "</svg>\n"
    }
}

/// Returns a power of ten in short: 10, 1 k, 100 k, 10 M.
fn thousands(value: f64) -> String {
    match value {
        millions if millions >= 0.99e6 => format!("{:.0} M", millions / 1e6),
        thousands if thousands >= 990.0 => format!("{:.0} k", thousands / 1e3),
        ones if ones >= 0.99 => format!("{ones:.0}"),
        _ => format!("{value:.6}").trim_end_matches('0').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::sample;

    #[test]
    fn a_decade_is_a_decade_everywhere() {
        let axis = Axis::decades([3.0, 4200.0].into_iter());
        let places: Vec<f64> = axis.marks().into_iter().map(|mark| axis.place(mark)).collect();
        assert_eq!(places.len(), 5);
        let step = (TOP - BOTTOM) / 4.0;
        for pair in places.windows(2) {
            assert!((pair[1] - pair[0] - step).abs() < 1e-6, "{places:?}");
        }
    }

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

    #[test]
    fn marks_are_short() {
        assert_eq!(
            [0.1, 1.0, 1000.0, 1e5, 1e7].map(thousands),
            ["0.1", "1", "1 k", "100 k", "10 M"]
        );
    }
}
