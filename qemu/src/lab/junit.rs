//! The results as JUnit's XML, which forges show as tests.

use std::time::Duration;

use anyhow::{Context, Result};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use crate::lab::results::{Kernel, Ran, Results};

/// The name of the file's only suite.
const SUITE: &str = "vrnic lab";

/// Returns the file: a test for each command, and one for the kernel of each guest.
///
/// # Errors
/// If the XML cannot be written.
pub fn document(results: &Results) -> Result<String> {
    let mut suite = TestSuite::new(SUITE);
    let cases = cases(results);
    suite.set_time(cases.iter().filter_map(|case| case.time).sum());
    suite.add_test_cases(cases);
    let mut report = Report::new(SUITE);
    report.add_test_suite(suite);
    report.to_string().context("cannot write the results as XML")
}

fn cases(results: &Results) -> Vec<TestCase> {
    let command = |ran: &Ran| {
        let name = format!("guest {}: {}", ran.guest, ran.command);
        case(&name, ran.took, ran.failure().map(|what| (what, ran.tail.clone())))
    };
    let kernel = |kernel: &Kernel| {
        let faulty = results.strict && !kernel.faults.is_empty();
        let failure = || ("the kernel has reported a fault".to_owned(), kernel.faults.join("\n"));
        case(&format!("guest {}: kernel", kernel.guest), Duration::ZERO, faulty.then(failure))
    };
    let mut cases: Vec<TestCase> = results.commands.iter().map(command).collect();
    cases.extend(results.checks.iter().map(|check| {
        let failure = check.failure.clone().map(|why| ("the phase has failed".to_owned(), why));
        case(&check.name, check.took, failure)
    }));
    cases.extend(results.kernels.iter().map(kernel));
    if let Some(broken) = &results.broken {
        let failure = ("the run did not come to its end".to_owned(), broken.clone());
        cases.push(case("guests", Duration::ZERO, Some(failure)));
    }
    cases
}

/// Returns a test. A failure has a message, and the text about it.
fn case(name: &str, took: Duration, failure: Option<(String, String)>) -> TestCase {
    let mut status = TestCaseStatus::success();
    if let Some((what, about)) = failure {
        status = TestCaseStatus::non_success(NonSuccessKind::Failure);
        status.set_message(printable(&what)).set_description(printable(&about));
    }
    let mut case = TestCase::new(printable(name), status);
    case.set_classname("lab").set_time(took);
    case
}

/// Returns a text without what the library would take away from lines, such as tabs, or leave in
/// although XML does not have it.
fn printable(text: &str) -> String {
    text.replace('\t', "    ").replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::results::End;

    /// Returns results with a command that has ended so.
    fn results(end: End, faults: &[&str]) -> Results {
        let ran = Ran {
            guest: "a".into(),
            command: "test \"x\" <y".into(),
            end,
            took: Duration::from_millis(1500),
            tail: "\u{1b}[31ma & b\u{1b}[0m\tc\u{7}\u{fffe}\nd".into(),
        };
        let faults = faults.iter().map(|line| (*line).to_owned()).collect();
        let kernels = vec![Kernel { guest: "a".into(), faults }];
        Results { commands: vec![ran], kernels, strict: true, ..Results::default() }
    }

    #[test]
    fn a_failure_has_the_end_of_the_output_without_what_xml_forbids() -> Result<()> {
        let text = document(&results(End::Status(3), &[]))?;
        assert!(text.contains("tests=\"2\" skipped=\"0\" failures=\"1\""), "{text}");
        let name = "name=\"guest a: test &quot;x&quot; &lt;y\" classname=\"lab\" time=\"1.500\"";
        assert!(text.contains(name), "{text}");
        let failure =
            "<failure message=\"the command ended with 3\">a &amp; b    c\u{fffd}\nd</failure>";
        assert!(text.contains(failure), "{text}");
        Ok(())
    }

    #[test]
    fn a_warning_of_a_kernel_is_a_failed_test_if_that_is_asked_for() -> Result<()> {
        let mut found = results(End::Status(0), &["WARNING: 1"]);
        let text = document(&found)?;
        assert!(text.contains("failures=\"1\"") && text.contains(">WARNING: 1<"), "{text}");
        found.strict = false;
        assert!(document(&found)?.contains("failures=\"0\""));
        Ok(())
    }

    /// Shows: tools
    #[test]
    fn a_guest_that_is_gone_is_a_failure() -> Result<()> {
        let lost = document(&results(End::Lost, &[]))?;
        assert!(lost.contains("message=\"guest a has ended\""), "{lost}");
        let broken = Results { broken: Some("no memory".into()), ..results(End::Stopped, &[]) };
        let text = document(&broken)?;
        assert!(text.contains("failures=\"1\"") && text.contains(">no memory<"), "{text}");
        Ok(())
    }
}
