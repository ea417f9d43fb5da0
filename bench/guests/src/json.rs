//! The results as JSON: all figures, the goals, and the quoted ratios by their names.

use serde_json::{Map, Value};

use crate::goals::{Goal, goals};
use crate::results::Results;

/// Returns all figures, the goals, and the ratios under `ratios`. A ratio that lacks a figure is
/// left out.
pub(crate) fn text(results: &Results) -> serde_json::Result<String> {
    let mut all = serde_json::to_value(results)?;
    let goals = goals(results);
    let ratio = |goal: &Goal| Some((goal.name?.to_owned(), goal.value?.into()));
    let ratios: Map<String, Value> = goals.iter().filter_map(ratio).collect();
    if let Some(all) = all.as_object_mut() {
        all.insert("goals".to_owned(), serde_json::to_value(&goals)?);
        all.insert("ratios".to_owned(), ratios.into());
    }
    serde_json::to_string_pretty(&all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::sample;

    #[test]
    fn json_has_figures_and_ratios() -> serde_json::Result<()> {
        let all: Value = serde_json::from_str(&text(&sample())?)?;
        assert_eq!(all["ratios"]["guest_rate8_vs_rxe"], 25.0);
        assert_eq!(all["ratios"]["native_write64_latency_us"], 0.25);
        assert_eq!(all["goals"][0]["at_most"], 0.4);
        assert_eq!(all["bandwidth"][2]["messages_s"], 250_000.0);
        assert_eq!(all["latency"][1]["device"], "siw");
        Ok(())
    }
}
