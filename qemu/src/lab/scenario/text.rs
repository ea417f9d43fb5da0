//! Scenarios as TOML. A file is refused as a whole, with the line of the first error.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use toml::Spanned;
use vrnic_faults::{Faults, Rule};
use vrnic_packet::Nanos;

use super::{Phase, Scenario};

/// The longest phase.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    title: String,
    #[serde(default)]
    fabric: Fabric,
    #[serde(default)]
    phase: Vec<PhaseText>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Fabric {
    #[default]
    Copy,
    Packets,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct PhaseText {
    name: String,
    lasts: Spanned<String>,
    #[serde(default)]
    faults: Vec<Spanned<String>>,
    #[serde(default)]
    may_miss: bool,
    #[serde(default)]
    expect: Vec<Spanned<String>>,
}

/// Returns the scenario of a file, for these adapters.
///
/// # Errors
/// If the file cannot be read or is not a scenario.
pub fn read(file: &Path, functions: &[String]) -> Result<Scenario> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    parse(&text, functions).map_err(|Wrong { line, why }| match line {
        Some(line) => anyhow::anyhow!("{}:{line}: {why}", file.display()),
        None => anyhow::anyhow!("{}: {why}", file.display()),
    })
}

/// Checks rules for these adapters, which are in force at the same time.
///
/// # Errors
/// If a text is not a rule, names another adapter, or contradicts another rule.
pub fn check_rules(rules: &[String], functions: &[String]) -> Result<()> {
    let mut set = Faults::default();
    for rule in rules {
        if let Err(why) = add(&mut set, rule, functions) {
            bail!("--fault '{rule}': {why}");
        }
    }
    Ok(())
}

/// The reason for which a text is not a scenario.
#[derive(Debug)]
struct Wrong {
    line: Option<usize>,
    why: String,
}

fn wrong(text: &str, span: Range<usize>, why: impl ToString) -> Wrong {
    let before = text.get(..span.start).unwrap_or(text);
    Wrong { line: Some(before.matches('\n').count() + 1), why: why.to_string() }
}

fn parse(text: &str, functions: &[String]) -> Result<Scenario, Wrong> {
    let file: File = toml::from_str(text).map_err(|error| match error.span() {
        Some(span) => wrong(text, span, error.message()),
        None => Wrong { line: None, why: error.message().to_owned() },
    })?;
    let phases = file.phase.iter().map(|phase| one_phase(text, phase, functions));
    let phases: Vec<Phase> = phases.collect::<Result<_, _>>()?;
    if phases.iter().all(|phase| phase.expect.is_empty()) {
        let why = "it asserts nothing: no phase has an 'expect' of counters";
        return Err(Wrong { line: None, why: why.to_owned() });
    }
    let packets = file.fabric == Fabric::Packets;
    Ok(Scenario { title: file.title, packets, waits: true, phases })
}

fn one_phase(text: &str, phase: &PhaseText, functions: &[String]) -> Result<Phase, Wrong> {
    let lasts = time(phase.lasts.get_ref());
    let lasts = lasts.ok_or_else(|| {
        wrong(text, phase.lasts.span(), "a time up to a day is expected, such as 5s or 200ms")
    })?;
    let mut set = Faults::default();
    for rule in &phase.faults {
        add(&mut set, rule.get_ref(), functions).map_err(|why| wrong(text, rule.span(), why))?;
    }
    let expect = phase.expect.iter().map(|expected| {
        let refuse = |why: String| wrong(text, expected.span(), why);
        let read: super::Expectation = expected.get_ref().parse().map_err(refuse)?;
        has(functions, &read.function).map_err(refuse)?;
        Ok(read)
    });
    let expect = expect.collect::<Result<_, _>>()?;
    let faults = phase.faults.iter().map(|rule| rule.get_ref().clone()).collect();
    let (name, may_miss) = (phase.name.clone(), phase.may_miss);
    Ok(Phase { name, lasts: Some(lasts), faults, may_miss, expect })
}

/// Adds a rule to those of the same time.
fn add(set: &mut Faults, rule: &str, functions: &[String]) -> Result<(), String> {
    let rule: Rule = rule.parse().map_err(|error| format!("{error}"))?;
    if let Some(function) = &rule.filter.function {
        has(functions, function)?;
    }
    set.add(rule, Nanos(0)).map(|_| ()).map_err(|error| error.to_string())
}

fn has(functions: &[String], name: &str) -> Result<(), String> {
    if functions.iter().any(|function| function == name) {
        return Ok(());
    }
    Err(format!("there is no adapter '{name}', only {}", functions.join(", ")))
}

/// Reads a time in seconds or milliseconds.
fn time(text: &str) -> Option<Duration> {
    let milliseconds = match text.strip_suffix("ms") {
        Some(number) => number.parse().ok()?,
        None => text.strip_suffix('s')?.parse::<u64>().ok()?.checked_mul(1000)?,
    };
    let time = Duration::from_millis(milliseconds);
    (!time.is_zero() && time <= LONGEST).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "title = \"t\"\n[[phase]]\nname = \"p\"\nlasts = \"2s\"\n\
                        faults = [\"drop function=a prob=0.01\"]\nexpect = [\"a.tx_pkts > 0\"]\n";

    fn functions() -> Vec<String> {
        ["a", "b", "a1", "b1"].map(str::to_owned).to_vec()
    }

    #[test]
    fn a_scenario_is_read() {
        let read = parse(GOOD, &functions()).expect("a scenario");
        let [phase] = &read.phases[..] else { panic!("{read:?}") };
        assert_eq!((phase.lasts, phase.faults.len()), (Some(Duration::from_secs(2)), 1));
        assert!(!phase.may_miss && !read.packets && read.waits);
    }

    /// Shows: tools: scenarios that make no sense are refused with their line
    #[test]
    fn what_makes_no_sense_is_refused_with_its_line() {
        let cases = [
            ("prob=0.01", "prob=7", Some(5), "prob=7 is not right"),
            ("function=a", "function=z", Some(5), "there is no adapter 'z', only a, b, a1, b1"),
            ("a.tx_pkts", "z.tx_pkts", Some(6), "there is no adapter 'z'"),
            ("a.tx_pkts", "a.luck", Some(6), "no adapter has a counter 'luck'"),
            ("2s", "2", Some(4), "a time up to a day is expected"),
            ("2s", "0s", Some(4), "a time up to a day is expected"),
            ("lasts", "length", Some(4), "unknown field `length`"),
            ("[\"a.tx_pkts > 0\"]", "[]", None, "it asserts nothing"),
            ("title = \"t\"", "", None, "missing field `title`"),
            ("title", "title = ", Some(1), ""),
        ];
        for (old, new, line, why) in cases {
            let wrong = parse(&GOOD.replace(old, new), &functions()).expect_err(new);
            assert!(wrong.why.contains(why), "{new}: {}", wrong.why);
            assert!(line.is_none() || wrong.line == line, "{new}: {wrong:?}");
        }
        let two = "[\"lower-mtu bytes=512\", \"lower-mtu bytes=1024 function=a\"]";
        let text = GOOD.replace("[\"drop function=a prob=0.01\"]", two);
        assert!(parse(&text, &functions()).expect_err("two sizes").why.contains("contradicts"));
        assert!(check_rules(&["drop function=z".to_owned()], &functions()).is_err());
    }

    #[test]
    fn all_scenarios_of_the_folder_are_right() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ci/scenarios");
        let files = fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("an entry"));
        let titles: Vec<_> = files
            .map(|entry| read(&entry.path(), &functions()).expect("a scenario").title)
            .collect();
        assert_eq!(titles.len(), 6, "{titles:?}");
    }
}
