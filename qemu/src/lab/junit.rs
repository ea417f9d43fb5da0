//! The results as JUnit's XML, which forges show as tests.

use std::fmt::Write;
use std::time::Duration;

use crate::lab::results::Results;

/// A test of the file.
struct Case {
    name: String,
    took: Duration,
    /// The failure, and the text about it.
    failure: Option<(String, String)>,
}

/// Returns the file: a test for each command, and one for the kernel of each guest.
#[must_use]
pub fn document(results: &Results) -> String {
    let cases = cases(results);
    let failures = cases.iter().filter(|case| case.failure.is_some()).count();
    let time: Duration = cases.iter().map(|case| case.took).sum();
    let (tests, time) = (cases.len(), time.as_secs_f64());
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"vrnic lab\" \
         tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" time=\"{time:.3}\">\n"
    );
    for Case { name, took, failure } in &cases {
        let (name, took) = (escaped(name), took.as_secs_f64());
        text += &format!("    <testcase classname=\"lab\" name=\"{name}\" time=\"{took:.3}\"");
        text += &match failure {
            None => "/>\n".to_owned(),
            Some((what, about)) => format!(
                ">\n      <failure message=\"{}\">{}</failure>\n    </testcase>\n",
                escaped(what),
                escaped(about)
            ),
        };
    }
    text + "  </testsuite>\n</testsuites>\n"
}

fn cases(results: &Results) -> Vec<Case> {
    let command = |ran: &crate::lab::results::Ran| Case {
        name: format!("guest {}: {}", ran.guest, ran.command),
        took: ran.took,
        failure: ran.failure().map(|what| (what, ran.tail.clone())),
    };
    let kernel = |kernel: &crate::lab::results::Kernel| Case {
        name: format!("guest {}: kernel", kernel.guest),
        took: Duration::ZERO,
        failure: (results.strict && !kernel.faults.is_empty())
            .then(|| ("the kernel has reported a fault".to_owned(), kernel.faults.join("\n"))),
    };
    let mut cases: Vec<Case> = results.commands.iter().map(command).collect();
    cases.extend(results.checks.iter().map(|check| Case {
        name: check.name.clone(),
        took: check.took,
        failure: check.failure.clone().map(|why| ("the phase has failed".to_owned(), why)),
    }));
    cases.extend(results.kernels.iter().map(kernel));
    if let Some(broken) = &results.broken {
        let failure = Some(("the run did not come to its end".to_owned(), broken.clone()));
        cases.push(Case { name: "guests".to_owned(), took: Duration::ZERO, failure });
    }
    cases
}

/// Returns a text for XML. Characters that XML does not have are replaced.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\n' => escaped += "&#10;",
            '\t' => escaped += "&#9;",
            '\r' => escaped += "&#13;",
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            other => escaped.write_char(other).unwrap_or_default(),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::results::{End, Kernel, Ran};

    /// Returns results with a command that has ended so.
    fn results(end: End, faults: &[&str]) -> Results {
        let ran = Ran {
            guest: "a".into(),
            command: "test \"x\" <y".into(),
            end,
            took: Duration::from_millis(1500),
            tail: "a & b\u{1b}[0m".into(),
        };
        let faults = faults.iter().map(|line| (*line).to_owned()).collect();
        let kernels = vec![Kernel { guest: "a".into(), faults }];
        Results { commands: vec![ran], kernels, strict: true, ..Results::default() }
    }

    #[test]
    fn a_failure_has_the_end_of_the_output_without_what_xml_forbids() {
        let text = document(&results(End::Status(3), &[]));
        assert!(text.contains("tests=\"2\" failures=\"1\""), "{text}");
        assert!(text.contains("name=\"guest a: test &quot;x&quot; &lt;y\" time=\"1.500\""));
        let failure =
            "<failure message=\"the command ended with 3\">a &amp; b\u{fffd}[0m</failure>";
        assert!(text.contains(failure), "{text}");
    }

    #[test]
    fn a_warning_of_a_kernel_is_a_failed_test_if_that_is_asked_for() {
        let mut found = results(End::Status(0), &["WARNING: 1"]);
        let text = document(&found);
        assert!(text.contains("failures=\"1\"") && text.contains(">WARNING: 1<"), "{text}");
        found.strict = false;
        assert!(document(&found).contains("failures=\"0\""));
    }

    #[test]
    fn a_guest_that_is_gone_is_a_failure() {
        let lost = document(&results(End::Lost, &[]));
        assert!(lost.contains("message=\"guest a has ended\""), "{lost}");
        let broken = Results { broken: Some("no memory".into()), ..results(End::Stopped, &[]) };
        let text = document(&broken);
        assert!(text.contains("failures=\"1\"") && text.contains(">no memory<"), "{text}");
    }
}
