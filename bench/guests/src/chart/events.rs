//! Completion events of queues on as many vectors as queues, and on one.

use std::collections::BTreeMap;

use vrnic_figures::svg::{Axis, BOTTOM, LEFT, RIGHT, Svg};
use vrnic_figures::{Figure, Quantity, Subject};

use super::HOST;
use crate::markdown::number;
use crate::native::Native;

/// For each number of vectors, the label and the colour of its bars.
const BARS: [(u32, &str, &str); 2] = [(4, "4 vectors", "#0072b2"), (1, "1 vector", HOST)];

/// Bars for each amount of work; `None` when events were not measured.
pub(super) fn chart(native: &Native) -> Option<String> {
    let groups = groups(native);
    if groups.is_empty() {
        return None;
    }
    let y = Axis::decades(groups.values().flatten().flatten().copied());
    let mut svg = Svg::new("Completion events of 4 CQs: thousand per second, without guests");
    svg.grid(&y);
    let width = (RIGHT - LEFT) / groups.len() as f64;
    let bar = width / (BARS.len() as f64 + 1.5);
    for (nth, (work, values)) in groups.iter().enumerate() {
        let start = LEFT + width * nth as f64 + bar * 0.75;
        for (place, (value, (.., colour))) in values.iter().zip(BARS).enumerate() {
            let Some(value) = *value else { continue };
            let (x, top) = (start + bar * place as f64, y.place(value));
            svg.bar(x, top, bar * 0.9, colour);
            svg.text(x + bar * 0.45, top - 5.0, "middle", &number(value));
        }
        let middle = LEFT + width * (nth as f64 + 0.5);
        svg.text(middle, BOTTOM + 20.0, "middle", &format!("{work} µs of work for each event"));
    }
    for (index, (_, name, colour)) in BARS.into_iter().enumerate() {
        svg.legend(index, name, colour);
    }
    Some(svg.end())
}

/// Returns the rates by amount of work in µs, for each of [`BARS`].
fn groups(native: &Native) -> BTreeMap<u128, [Option<f64>; 2]> {
    let mut groups = BTreeMap::<_, [Option<f64>; 2]>::new();
    for (figure, value) in &native.figures {
        let Figure(Subject::Events(_, vectors, work), Quantity::Thousands) = figure else {
            continue;
        };
        let rates = groups.entry(*work).or_default().iter_mut();
        for (rate, _) in rates.zip(BARS).filter(|(_, (number, ..))| number == vectors) {
            *rate = Some(*value);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_stand_by_work_and_vectors() {
        let figure = |vectors, work, value| {
            (Figure(Subject::Events(4, vectors, work), Quantity::Thousands), value)
        };
        let figures = [figure(4, 0, 150.0), figure(1, 0, 130.0), figure(4, 20, 59.0)];
        let native = Native { figures: figures.into(), ..Native::default() };
        let expected = [(0, [Some(150.0), Some(130.0)]), (20, [Some(59.0), None])];
        assert_eq!(groups(&native), expected.into());
        let svg = chart(&native).expect("a chart");
        // The ground, a legend of two, three bars.
        assert_eq!(svg.matches("<rect").count(), 1 + 2 + 3, "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert!(chart(&Native::default()).is_none());
    }
}
