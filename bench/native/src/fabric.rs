//! Runs the network in virtual time, and draws its pictures. The figures depend on nothing but the
//! seed.

use std::fs;
use std::path::Path;

use anyhow::Context;
use vrnic_fabric::charts::{self, Named};
use vrnic_fabric::{Outcome, Scenario, run};

/// Number of senders of the incast.
const SENDERS: usize = 8;

/// Prints what the incast of eight senders into one receiver measures with and without DCQCN and
/// PFC. Writes pictures into the folder `pictures`, if there is one.
///
/// # Errors
/// When a picture cannot be written.
pub(crate) fn measure(pictures: Option<&Path>) -> anyhow::Result<()> {
    let incast = || Scenario::incast(SENDERS);
    let scenarios = [
        ("neither", incast()),
        ("PFC", incast().with_pfc()),
        ("DCQCN", incast().with_dcqcn()),
        ("both", incast().with_dcqcn().with_pfc()),
    ];
    let outcomes: Vec<(&str, Outcome)> =
        scenarios.iter().map(|(name, scenario)| (*name, run(scenario))).collect();
    print!("{}", table(&outcomes));
    if let Some(folder) = pictures {
        let with_pfc = |(name, _): &&(&str, Outcome)| ["PFC", "both"].contains(name);
        let shown = outcomes.iter().filter(with_pfc);
        let named: Vec<_> = shown.map(|(name, outcome)| Named { name, outcome }).collect();
        let mut files = vec![(
            "incast-queue.svg",
            charts::depths("Queue to the receiver of 8 senders", &named),
        )];
        if let Some((_, outcome)) = outcomes.iter().find(|(name, _)| *name == "both") {
            files.push(("incast-rates.svg", charts::rates("Goodput of 8 senders", outcome)));
        }
        for (name, svg) in files {
            let file = folder.join(name);
            fs::write(&file, svg).with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    Ok(())
}

fn table(outcomes: &[(&str, Outcome)]) -> String {
    let mut text = String::from(
        "| flow control | goodput, Gbit/s | fairness | queue, median KB | queue, 99 % KB \
         | paused, ms | dropped | marked | rates reduced |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for (name, outcome) in outcomes {
        let paused: f64 = outcome.paused.iter().map(|paused| paused.as_secs_f64() * 1e3).sum();
        let cells = [
            format!("{:.2}", outcome.total() / 1e9),
            format!("{:.3}", outcome.fairness()),
            (outcome.depth(0.5) / 1000).to_string(),
            (outcome.depth(0.99) / 1000).to_string(),
            format!("{:.1}", paused / SENDERS as f64),
            outcome.drops.to_string(),
            outcome.port.map_or(0, |port| port.marks).to_string(),
            outcome.notified.to_string(),
        ];
        text += &format!("| {name} | {} |\n", cells.join(" | "));
    }
    text
}
