//! Finds figures that grow without end, among figures that vary.

/// Number of figures from which growth can be told.
const ENOUGH: usize = 24;
/// Number of parts that are compared.
const PARTS: usize = 4;

/// The figures of one kind, after each round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    figures: Vec<u64>,
}

impl Series {
    /// Adds a figure.
    pub(crate) fn add(&mut self, figure: u64) {
        self.figures.push(figure);
    }

    /// Returns by how much the figures have grown if they grow without end: if more than `slack`
    /// was added from the smallest figure of the first quarter to that of the last one, and an
    /// eighth of it from each quarter to the next. Memory that is allocated at the first use, and a
    /// peak, are no such growth.
    pub(crate) fn growth(&self, slack: u64) -> Option<u64> {
        if self.figures.len() < ENOUGH {
            return None;
        }
        let minima: Vec<u64> = (0..PARTS)
            .filter_map(|part| {
                let at = |part: usize| part * self.figures.len() / PARTS;
                self.figures.get(at(part)..at(part + 1))?.iter().min().copied()
            })
            .collect();
        let grows = minima.windows(2).all(|two| two[1] > two[0] + slack / 8);
        let grown = minima.last()?.saturating_sub(*minima.first()?);
        (grows && grown > slack).then_some(grown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(figures: impl IntoIterator<Item = u64>, slack: u64) -> Option<u64> {
        let mut series = Series::default();
        figures.into_iter().for_each(|figure| series.add(figure));
        series.growth(slack)
    }

    /// Shows: tools
    #[test]
    fn figures_that_grow_are_found() {
        assert_eq!(growth((0..40).map(|round| 1000 + 10 * round), 100), Some(300));
        // Also if they vary by more than they grow in a round.
        assert!(growth((0..40).map(|round| 1000 + 10 * round + 37 * (round % 3)), 100).is_some());
        // One descriptor in four rounds.
        assert!(growth((0..40).map(|round| 60 + round / 4), 4).is_some());
    }

    #[test]
    fn figures_that_stay_are_no_growth() {
        assert_eq!(growth([70; 40], 0), None);
        assert_eq!(growth((0..40).map(|round| 100 + round % 7), 0), None);
        // Memory that is allocated at first, or once.
        assert_eq!(growth((0..40).map(|round| if round < 5 { 10 * round } else { 50 }), 5), None);
        assert_eq!(growth((0..40).map(|round| if round < 25 { 10 } else { 50 }), 5), None);
        // Less and less.
        assert_eq!(growth((1..40).map(|round| 8000 - 8000 / round), 4000), None);
        // A peak at the end.
        assert_eq!(growth((0..40).map(|round| if round > 36 { 900 } else { 10 }), 5), None);
    }

    #[test]
    fn a_few_figures_tell_nothing() {
        assert_eq!(growth((0..23).map(|round| 100 * round), 0), None);
    }
}
