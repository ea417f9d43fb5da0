//! Completion events of queues on as many vectors as queues, and on one.

use super::{Axis, BOTTOM, HOST, LEFT, RIGHT, Svg};
use crate::markdown::number;
use crate::native::Native;

/// First and last parts of the names of the harness's figures.
const PREFIX: &str = "events of 4 CQs on ";
const SUFFIX: &str = " µs of work each, thousand/s";
/// By number of vectors: its words and its colour.
const BARS: [(&str, &str, &str); 2] = [("4", "4 vectors", "#0072b2"), ("1", "1 vector", HOST)];

/// Bars for each amount of work; `None` when events were not measured.
pub(super) fn chart(native: &Native) -> Option<String> {
    let groups = groups(native);
    if groups.is_empty() {
        return None;
    }
    let y = Axis::decades(groups.iter().flat_map(|(_, values)| values.iter().flatten().copied()));
    let mut svg = Svg::new("Completion events of 4 CQs: thousand per second, without guests");
    svg.decades(&y);
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

/// Returns the rates by amount of work, for each of [`BARS`].
fn groups(native: &Native) -> Vec<(String, [Option<f64>; 2])> {
    let mut groups: Vec<(String, [Option<f64>; 2])> = Vec::new();
    for (name, value) in &native.figures {
        let Some(rest) = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX))
        else {
            continue;
        };
        let Some((vectors, work)) = rest.split_once(" vectors, ") else { continue };
        let Some(place) = BARS.iter().position(|(number, ..)| *number == vectors) else { continue };
        let at = groups.iter().position(|(known, _)| known == work).unwrap_or_else(|| {
            groups.push((work.to_owned(), [None; 2]));
            groups.len() - 1
        });
        if let Some(slot) = groups.get_mut(at).and_then(|(_, values)| values.get_mut(place)) {
            *slot = Some(*value);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_stand_by_work_and_vectors() {
        let figure = |vectors: u32, work: u32, value| {
            (format!("{PREFIX}{vectors} vectors, {work}{SUFFIX}"), value)
        };
        let figures = [figure(4, 0, 150.0), figure(1, 0, 130.0), figure(4, 20, 59.0)];
        let native = Native { figures: figures.into_iter().collect(), ..Native::default() };
        let mut found = groups(&native);
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let expected =
            [("0".to_owned(), [Some(150.0), Some(130.0)]), ("20".to_owned(), [Some(59.0), None])];
        assert_eq!(found, expected);
        let svg = chart(&native).expect("a chart");
        // The ground, a legend of two, three bars.
        assert_eq!(svg.matches("<rect").count(), 1 + 2 + 3, "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert!(chart(&Native::default()).is_none());
    }
}
