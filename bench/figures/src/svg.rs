//! Charts as SVG: axes, lines, bars.

use std::fmt::Write;

/// The width of a picture.
pub const WIDTH: f64 = 760.0;
/// The height of a picture.
pub const HEIGHT: f64 = 440.0;
/// The left edge of the plot in the picture.
pub const LEFT: f64 = 80.0;
/// The right edge of the plot.
pub const RIGHT: f64 = WIDTH - 24.0;
/// The upper edge of the plot.
pub const TOP: f64 = 76.0;
/// The lower edge of the plot.
pub const BOTTOM: f64 = HEIGHT - 56.0;

/// An axis from data to a place on the chart.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

/// The distances of values on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Logarithmic,
    Linear,
}

impl Axis {
    /// Creates a logarithmic axis from a value `low` at the place `from` to a value `high` at the
    /// place `to`.
    #[must_use]
    pub const fn new(low: f64, high: f64, from: f64, to: f64) -> Self {
        Self { scale: Scale::Logarithmic, low, high, from, to }
    }

    /// Creates a linear axis from zero at the place `from` to a value `high` at the place `to`.
    #[must_use]
    pub const fn linear(high: f64, from: f64, to: f64) -> Self {
        Self { scale: Scale::Linear, low: 0.0, high, from, to }
    }

    /// Creates a logarithmic, upright axis over whole decades that holds all `values`.
    pub fn decades(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = range(values);
        let low = low.log10().floor();
        let high = high.log10().ceil().max(low + 1.0);
        Self::new(10_f64.powf(low), 10_f64.powf(high), BOTTOM, TOP)
    }

    /// Returns the place of a value.
    #[must_use]
    pub fn place(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Logarithmic => (value / self.low).ln() / (self.high / self.low).ln(),
            Scale::Linear => (value - self.low) / (self.high - self.low),
        };
        self.from + share * (self.to - self.from)
    }

    /// Returns the values with a mark: powers of ten, or about five round numbers.
    fn marks(&self) -> Vec<f64> {
        if self.scale == Scale::Linear {
            let decade = 10_f64.powf((self.high / 5.0).log10().floor());
            let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
            let step = steps.into_iter().find(|step| self.high / step <= 6.0).unwrap_or(decade);
            // CAST: at most six.
            return (0..=(self.high / step) as u32).map(|nth| f64::from(nth) * step).collect();
        }
        let mut marks = vec![self.low];
        while let Some(last) = marks.last().filter(|last| **last < self.high * 0.99) {
            marks.push(last * 10.0);
        }
        marks
    }
}

/// Returns the smallest and the greatest positive value.
pub fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let found = values.filter(|value| value.is_normal() && *value > 0.0);
    let (low, high) =
        found.fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), v| (low.min(v), high.max(v)));
    if low <= high { (low, high) } else { (1.0, 10.0) }
}

/// Builds a drawing. Texts are our own words and numbers, so nothing needs escaping.
#[derive(Debug)]
pub struct Svg(String);

impl Svg {
    /// Begins a picture with a title.
    #[must_use]
    pub fn new(title: &str) -> Self {
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

    /// Draws grid lines and labels of an upright axis.
    pub fn grid(&mut self, axis: &Axis) {
        for mark in axis.marks() {
            let y = axis.place(mark);
            self.add(format_args!(
                "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>"
            ));
            self.text(LEFT - 8.0, y + 4.0, "end", &thousands(mark));
        }
    }

    /// Writes a text.
    pub fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" stroke=\"#fff\" \
             stroke-width=\"3\" paint-order=\"stroke\">{text}</text>"
        ));
    }

    /// Draws a line through places, with a dot at each place unless it is dashed.
    pub fn line(&mut self, places: &[(f64, f64)], colour: &str, dashed: bool) {
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

    /// Draws labels of a level axis, with a unit.
    pub fn level(&mut self, axis: &Axis, unit: &str) {
        for mark in axis.marks() {
            let label = format!("{} {unit}", thousands(mark));
            self.text(axis.place(mark), BOTTOM + 20.0, "middle", &label);
        }
    }

    /// Draws a thin line through many places, without dots.
    pub fn curve(&mut self, places: &[(f64, f64)], colour: &str) {
        let points: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.add(format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>",
            points.join(" ")
        ));
    }

    /// Draws a bar from `top` down to the axis.
    pub fn bar(&mut self, x: f64, top: f64, width: f64, colour: &str) {
        let height = BOTTOM - top;
        self.add(format_args!(
            "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
        ));
    }

    /// Adds a series to the legend.
    pub fn legend(&mut self, index: usize, name: &str, colour: &str) {
        self.legend_among(index, 1, name, colour);
    }

    /// Adds a series to the legend of this number of series.
    pub fn legend_among(&mut self, index: usize, count: usize, name: &str, colour: &str) {
        let width = ((RIGHT - LEFT) / count.max(1) as f64).min(100.0);
        let x = LEFT + width * index as f64;
        self.add(format_args!(
            "<rect x=\"{x}\" y=\"42\" width=\"14\" height=\"14\" fill=\"{colour}\"/>"
        ));
        self.text(x + 20.0, 54.0, "start", name);
    }

    /// Returns the picture.
    #[must_use]
    pub fn end(self) -> String {
        self.0 + "</svg>\n"
    }
}

/// Returns a power of ten in short: 10, 1 k, 100 k, 10 M.
fn thousands(value: f64) -> String {
    match value {
        millions if millions >= 0.99e6 => format!("{:.0} M", millions / 1e6),
        thousands if thousands >= 990.0 => format!("{:.0} k", thousands / 1e3),
        0.0 => "0".to_owned(),
        ones if ones >= 0.99 => format!("{ones:.0}"),
        _ => format!("{value:.6}").trim_end_matches('0').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_linear_axis_has_a_few_round_marks() {
        for (high, step) in [(1.0, 0.2), (60.0, 10.0), (250_000.0, 50_000.0), (7e9, 2e9)] {
            let axis = Axis::linear(high, 0.0, 100.0);
            let marks = axis.marks();
            assert!((3..=7).contains(&marks.len()), "{marks:?}");
            assert!(marks.windows(2).all(|pair| (pair[1] - pair[0] - step).abs() < step / 1e6));
            assert_eq!((axis.place(0.0), axis.place(high)), (0.0, 100.0));
        }
        let mut svg = Svg::new("a title");
        svg.curve(&[(1.0, 2.0), (3.0, 4.0)], "#000");
        assert_eq!(svg.end().matches("<polyline").count(), 1);
    }

    #[test]
    fn marks_are_short() {
        assert_eq!(
            [0.0, 0.1, 1.0, 1000.0, 1e5, 1e7].map(thousands),
            ["0", "0.1", "1", "1 k", "100 k", "10 M"]
        );
    }
}
