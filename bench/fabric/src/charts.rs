//! Pictures of outcomes.

use vrnic_figures::svg::{Axis, BOTTOM, LEFT, RIGHT, Svg, TOP};

use crate::outcome::Outcome;

/// Colours that can be told apart by people who cannot distinguish red and green.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#9b5ba5", "#e69f00", "#56b4e9", "#6b6b6b", "#000000"];
/// Number of samples for each value of a goodput: 1 ms.
const STEP: usize = 50;

/// An outcome with the name that the legend shows.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// The name.
    pub name: &'a str,
    /// The outcome.
    pub outcome: &'a Outcome,
}

/// Returns the queue to the receiver over time, with a curve for each outcome.
#[must_use]
pub fn depths(title: &str, outcomes: &[Named<'_>]) -> String {
    let curves: Vec<_> = outcomes.iter().map(|it| it.outcome.depths()).collect();
    let names: Vec<_> = outcomes.iter().map(|it| it.name.to_owned()).collect();
    curves_over_time(&format!("{title}: bytes"), &curves, &names)
}

/// Returns the goodput of each flow of class 3 over time.
#[must_use]
pub fn rates(title: &str, outcome: &Outcome) -> String {
    let mut curves = outcome.rates(STEP);
    curves.truncate(outcome.senders);
    let names: Vec<_> = (1..=curves.len()).map(|nth| format!("sender {nth}")).collect();
    curves_over_time(&format!("{title}: bit/s"), &curves, &names)
}

fn curves_over_time(title: &str, curves: &[Vec<(f64, f64)>], names: &[String]) -> String {
    let all = || curves.iter().flatten();
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(1.0, f64::max);
    let x = Axis::linear(most(&mut all().map(|point| point.0)), LEFT, RIGHT);
    let y = Axis::linear(most(&mut all().map(|point| point.1)) * 1.05, BOTTOM, TOP);
    let mut svg = Svg::new(title);
    svg.grid(&y);
    svg.level(&x, "ms");
    for (nth, ((curve, name), colour)) in
        curves.iter().zip(names).zip(COLOURS.iter().cycle()).enumerate()
    {
        let places: Vec<_> = curve.iter().map(|(at, of)| (x.place(*at), y.place(*of))).collect();
        svg.curve(&places, colour);
        svg.legend_among(nth, names.len(), name, colour);
    }
    svg.end()
}
