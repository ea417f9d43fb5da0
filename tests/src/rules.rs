//! Changes of the daemon through its control socket, such as rules for fault injection.

use anyhow::{Context, Result};
use serde_json::Value;
use vrnic_qemu::pair::Pair;

use crate::commands::works;

/// Returns the path of the control socket of the daemons of this process.
fn control() -> String {
    let file = format!("vrnic-control-{}", std::process::id());
    std::env::temp_dir().join(file).display().to_string()
}

/// Returns the arguments of a daemon that has a control socket. Only one daemon can have it.
#[must_use]
pub fn arguments() -> Vec<String> {
    vec!["--control".to_owned(), control()]
}

/// Runs `vrnic` with these arguments.
pub fn change(pair: &Pair, arguments: &[&str]) -> Result<String> {
    pair.monitor(&[&["--control", &control()], arguments].concat())
}

/// Runs `vrnic fault` with these arguments.
pub fn fault(pair: &Pair, arguments: &[&str]) -> Result<String> {
    change(pair, &[&["fault"], arguments].concat())
}

/// Replaces all rules by this one.
pub fn arm(pair: &Pair, rule: &str) -> Result<()> {
    fault(pair, &["clear"])?;
    let words: Vec<&str> = rule.split(' ').collect();
    fault(pair, &[&["add"], &words[..]].concat()).map(drop).context(rule.to_owned())
}

/// Waits until the only rule has hit this often.
pub fn proved(pair: &Pair, hits: u64) -> Result<()> {
    let hits = hits.to_string();
    fault(pair, &["wait", "1", "--hits", &hits, "--timeout", "60"]).map(drop)
}

/// Removes the rules, and checks that everything works again.
pub fn over(pair: &Pair) -> Result<()> {
    fault(pair, &["clear"])?;
    works(pair)
}

/// Returns the number of packets that each rule has hit.
pub fn hits(pair: &Pair) -> Result<Vec<u64>> {
    let listed = fault(pair, &["list", "--json"])?;
    let rules: Value = serde_json::from_str(&listed)?;
    let rules = rules["rules"].as_array().with_context(|| listed.clone())?;
    Ok(rules.iter().filter_map(|rule| rule["hit"].as_u64()).collect())
}
