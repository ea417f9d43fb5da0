//! What is known after a run of `scripts/test`: how long each part and each suite took, what has
//! failed, and the same as JUnit's XML.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use serde::Deserialize;

/// What a case of a suite has shown.
#[derive(Debug, Deserialize)]
pub struct Ran {
    /// The part of `scripts/test`.
    part: String,
    suite: String,
    case: String,
    seconds: f64,
    failure: Option<String>,
}

/// Reads the file that `VRNIC_RESULTS` names: a line for each case.
///
/// # Errors
/// If a line is none of the program of all suites.
pub fn results(text: &str) -> Result<Vec<Ran>> {
    text.lines().map(|line| serde_json::from_str(line).context(line.to_owned())).collect()
}

/// A test of a crate.
struct Tested {
    program: String,
    name: String,
    outcome: String,
}

/// The path of the program of all suites, as cargo prints it.
const SUITES: &str = "tests/suites.rs";

/// Returns the tests of crates in a log. The cases of suites are left out.
fn tested(log: &str) -> Vec<Tested> {
    let mut program = String::new();
    let mut found = Vec::new();
    for line in log.lines() {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("Running ") {
            // The name of a program ends with a number of cargo's.
            let file = rest.rsplit(['(', '/']).next().unwrap_or(rest).trim_end_matches(')');
            let crate_name = file.rsplit_once('-').map_or(file, |(name, _)| name);
            let source = rest.split(" (").next().unwrap_or(rest);
            program = format!("{crate_name}: {source}");
        } else if let Some(rest) = line.strip_prefix("Doc-tests ") {
            program = format!("{rest}: documentation");
        } else if let Some(rest) = line.strip_prefix("test ")
            && let Some((name, outcome)) = rest.split_once(" ... ")
            && !program.ends_with(SUITES)
        {
            let (program, name) = (program.clone(), name.to_owned());
            found.push(Tested { program, name, outcome: outcome.to_owned() });
        }
    }
    found
}

/// Returns the table of times: the lines of `parts`, which are seconds and a name each, then the
/// suites.
#[must_use]
pub fn times(parts: &str, results: &[Ran]) -> String {
    let mut table = "seconds  part\n".to_owned();
    for (seconds, name) in parts.lines().filter_map(|line| line.split_once('\t')) {
        // Writing to a string does not fail.
        let _ = writeln!(table, "{seconds:>7}  {name}");
    }
    let mut suites: BTreeMap<&str, (f64, usize)> = BTreeMap::new();
    for ran in results {
        let (seconds, cases) = suites.entry(&ran.suite).or_default();
        (*seconds, *cases) = (*seconds + ran.seconds, *cases + 1);
    }
    for (name, (seconds, cases)) in suites {
        let cases = if cases == 1 { "1 case".to_owned() } else { format!("{cases} cases") };
        let _ = writeln!(table, "{seconds:>7.1}  suite {name}, {cases}");
    }
    table
}

/// The case of a suite that cannot be made.
pub(crate) const BEGINNING: &str = "the_suite_begins";

/// Returns what `scripts/test --failed` runs again: a line for each case, test program and part.
/// Of suites whose guests and daemons are the usual ones these are the cases that have failed, and
/// of the crates the test programs. Other parts run as a whole.
#[must_use]
pub fn failed(failed_parts: &str, log: &str, results: &[Ran]) -> String {
    let again = |part: &str| {
        let whole = vec![format!("part {part}")];
        let cases = results.iter().filter(|ran| ran.part == part && ran.failure.is_some());
        let cases: Vec<_> = cases.collect();
        if part == "crates" {
            let programs = programs(log);
            if programs.is_empty() { whole } else { programs }
        } else if !(part.starts_with("suite ") || part == "smoke cases")
            || cases.is_empty()
            || cases.iter().any(|ran| ran.case == BEGINNING)
        {
            whole
        } else {
            cases.iter().map(|ran| format!("case {}::{}", ran.suite, ran.case)).collect()
        }
    };
    failed_parts.lines().flat_map(again).map(|line| line + "\n").collect()
}

/// Returns the test programs of crates that have failed, as cargo names them.
fn programs(log: &str) -> Vec<String> {
    let program = |line: &str| {
        let options = line.trim().strip_prefix("`-p ")?.strip_suffix('`')?;
        (!options.ends_with("--test suites")).then(|| format!("program -p {options}"))
    };
    log.lines().filter_map(program).collect()
}

/// Returns the results as JUnit's XML.
///
/// # Errors
/// If they cannot be written so.
pub fn junit(log: &str, results: &[Ran]) -> Result<String> {
    let mut suites: BTreeMap<String, Vec<TestCase>> = BTreeMap::new();
    for test in tested(log) {
        let status = match test.outcome.as_str() {
            outcome if outcome.starts_with("ignored") => TestCaseStatus::skipped(),
            outcome if outcome.ends_with("FAILED") => failure("the log has the message"),
            _ => TestCaseStatus::success(),
        };
        suites.entry(test.program).or_default().push(TestCase::new(test.name, status));
    }
    for ran in results {
        let status = ran.failure.as_deref().map_or_else(TestCaseStatus::success, failure);
        let mut case = TestCase::new(ran.case.as_str(), status);
        case.set_time(Duration::from_secs_f64(ran.seconds.max(0.0)));
        suites.entry(ran.suite.clone()).or_default().push(case);
    }
    let mut report = Report::new("vrnic");
    for (name, cases) in suites {
        let mut suite = TestSuite::new(name);
        suite.add_test_cases(cases);
        report.add_test_suite(suite);
    }
    Ok(report.to_string()?)
}

fn failure(why: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
    status.set_message(why.lines().next().unwrap_or_default());
    status.set_description(why);
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "     Running unittests src/lib.rs (target/debug/deps/vrnic_abi-0f)\n\
                       test a ... ok\ntest b ... FAILED\n\
                       error: 1 target failed:\n    `-p vrnic-abi --lib`\n\
                       \x20    Running tests/suites.rs (target/debug/deps/suites-0e)\n\
                       test tools::x ... FAILED\n    `-p vrnic-tests --test suites`\n";
    const RESULTS: &str = r#"{"part":"smoke cases","suite":"tools","case":"x","seconds":1.5,"failure":"why\nso"}
{"part":"smoke cases","suite":"tools","case":"y","seconds":2.0,"failure":null}
"#;

    #[test]
    fn what_has_failed_is_run_again() -> Result<()> {
        let again = |parts: &str| failed(parts, LOG, &results(RESULTS).unwrap_or_default());
        assert_eq!(again("smoke cases\n"), "case tools::x\n");
        assert_eq!(again("lints\ncrates\n"), "part lints\nprogram -p vrnic-abi --lib\n");
        let others = "suite cm\nperftest, over packets\nmodels\n";
        assert_eq!(again(others), "part suite cm\npart perftest, over packets\npart models\n");
        assert_eq!(failed("crates\n", "", &[]), "part crates\n");
        let begun = RESULTS.replace("\"x\"", &format!("\"{BEGINNING}\""));
        assert_eq!(failed("smoke cases\n", LOG, &results(&begun)?), "part smoke cases\n");
        Ok(())
    }

    #[test]
    fn times_are_those_of_parts_and_suites() -> Result<()> {
        let table = times("12\tformat\n", &results(RESULTS)?);
        assert_eq!(table, "seconds  part\n     12  format\n    3.5  suite tools, 2 cases\n");
        Ok(())
    }

    #[test]
    fn junit_has_tests_and_cases() -> Result<()> {
        let text = junit(LOG, &results(RESULTS)?)?;
        for part in ["\"vrnic_abi: unittests src/lib.rs\"", "name=\"tools\"", "message=\"why\""] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert_eq!((text.matches("<testcase").count(), text.matches("<failure").count()), (4, 2));
        Ok(())
    }
}
