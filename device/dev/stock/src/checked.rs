//! The programs that show the rules of the checker, and what the checker must say about them.

use serde::Deserialize;

/// The table of the programs.
const TABLE: &str = include_str!("../../../../check/tests/mistakes.toml");
/// Start of the last line of a checked process in which nothing was found, also no hint.
pub const NOTHING: &str = ": 0 mistakes, 0 hints in ";

/// The programs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Programs {
    /// The names of programs without a mistake.
    pub right: Vec<String>,
    /// The programs with a mistake, each of which has a right form.
    #[serde(rename = "mistake")]
    pub mistakes: Vec<Mistake>,
}

/// A program with a mistake.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mistake {
    /// The name of the program.
    pub program: String,
    /// The rule that names the mistake.
    pub rule: String,
    /// The function with the call that began it; empty if there is none.
    pub began: String,
    /// The function with the call that showed it; empty if there is none.
    pub shown: String,
    /// The exit status of the program.
    pub status: i32,
    /// The exit status on rxe, if it differs.
    pub status_on_rxe: Option<i32>,
}

/// A frame of a stack in a line of JSON.
#[derive(Debug, Deserialize)]
struct Frame {
    function: Option<String>,
    line: Option<String>,
}

/// A stack in a line of JSON.
#[derive(Debug, Deserialize)]
struct Stack {
    frames: Vec<Frame>,
}

impl Stack {
    /// Returns whether a function, with a line of its source, is in the stack.
    fn has(&self, function: &str) -> bool {
        let is = |frame: &Frame| frame.function.as_deref() == Some(function);
        function.is_empty() || self.frames.iter().any(|frame| is(frame) && frame.line.is_some())
    }
}

/// A report of the checker, which is a line of JSON.
#[derive(Debug, Deserialize)]
pub struct Report {
    name: String,
    began: Option<Stack>,
    shown: Stack,
}

impl Programs {
    /// Reads the table.
    ///
    /// # Errors
    /// Says what is wrong in it.
    pub fn read() -> Result<Self, toml::de::Error> {
        toml::from_str(TABLE)
    }

    /// Returns the names of all programs that must run without a report.
    pub fn right_ones(&self) -> impl Iterator<Item = &str> {
        let forms = self.mistakes.iter().map(|mistake| mistake.program.as_str());
        forms.chain(self.right.iter().map(String::as_str))
    }
}

impl Mistake {
    /// Returns whether a report names the mistake at its two places. There may be others, of
    /// mistakes that follow from this one.
    #[must_use]
    pub fn is_in(&self, reports: &[Report]) -> bool {
        let same = |report: &Report| {
            let began = report.began.as_ref();
            report.name == self.rule
                && began.is_some_and(|began| began.has(&self.began))
                && report.shown.has(&self.shown)
        };
        reports.iter().any(same)
    }
}

impl Report {
    /// Reads reports, one in each line.
    ///
    /// # Errors
    /// Says which part of a line is no report.
    pub fn parse(lines: &str) -> serde_json::Result<Vec<Self>> {
        lines.lines().map(serde_json::from_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_needs_both_places() {
        let all = Programs::read().expect("a table");
        let changed = all.mistakes.iter().find(|mistake| mistake.program == "changed");
        let changed = changed.expect("this program");
        let stack = |function: &str| {
            format!(r#"{{"call":"x","frames":[{{"function":"{function}","line":"a.c:1"}}]}}"#)
        };
        let report = |rule: &str, began: &str, shown: &str| {
            let (began, shown) = (stack(began), stack(shown));
            let line = format!(r#"{{"name":"{rule}","began":{began},"shown":{shown}}}"#);
            Report::parse(&line).expect("a report")
        };
        assert!(changed.is_in(&report(&changed.rule, &changed.began, &changed.shown)));
        assert!(!changed.is_in(&report(&changed.rule, &changed.began, "other")));
        assert!(!changed.is_in(&report(&changed.rule, "other", &changed.shown)));
        assert!(!changed.is_in(&report("other", &changed.began, &changed.shown)));
        assert!(!changed.is_in(&[]));
    }
}
