//! The results as a table in Markdown, for the page of a job.

use crate::lab::results::{End, Results};
use crate::machine::clock::sentence;

/// Maximum number of characters of a command.
const COMMAND: usize = 80;
/// Maximum number of lines of a kernel's faults.
const FAULTS: usize = 20;

/// Returns the text.
#[must_use]
pub fn document(results: &Results) -> String {
    let mut text = "| guest | command | result | time |\n| --- | --- | --- | --- |\n".to_owned();
    for ran in &results.commands {
        let result = match ran.end {
            End::Stopped => "server, stopped".to_owned(),
            _ => ran.failure().unwrap_or_else(|| "passed".to_owned()),
        };
        let took = ran.took.as_secs_f64();
        let command = cell(&ran.command);
        text += &format!("| {} | `{command}` | {result} | {took:.1} s |\n", ran.guest);
    }
    if !results.checks.is_empty() {
        text += "\n| phase | result | time |\n| --- | --- | --- |\n";
    }
    for check in &results.checks {
        let result = cell(check.failure.as_deref().unwrap_or("passed"));
        let (name, took) = (cell(&check.name), check.took.as_secs_f64());
        text += &format!("| {name} | {result} | {took:.1} s |\n");
    }
    if !results.start.is_empty() {
        let whole: std::time::Duration = results.start.iter().map(|(_, took)| *took).sum();
        let parts = sentence(&results.start);
        text += &format!("\nReady after {:.1} s: {parts}.\n", whole.as_secs_f64());
    }
    for kernel in results.kernels.iter().filter(|kernel| !kernel.faults.is_empty()) {
        let lines: Vec<&str> = kernel.faults.iter().take(FAULTS).map(String::as_str).collect();
        let lines = lines.join("\n    ");
        text += &format!("\nThe kernel of guest {} reported:\n\n    {lines}\n", kernel.guest);
    }
    if let Some(broken) = &results.broken {
        text += &format!("\nThe run did not come to its end:\n\n    {}\n", indented(broken));
    }
    if !results.counters.is_empty() {
        text += "\n| adapter | counter | before | after |\n| --- | --- | --- | --- |\n";
        for change in &results.counters {
            let crate::lab::counters::Change { function, counter, before, after } = change;
            text += &format!("| {function} | {counter} | {before} | {after} |\n");
        }
    }
    text
}

fn indented(text: &str) -> String {
    text.replace('\n', "\n    ")
}

/// Returns the first characters of a command, in the form of a cell of a table.
fn cell(command: &str) -> String {
    let line = command.replace(['\n', '\r', '`'], " ").replace('|', "\\|");
    match line.char_indices().nth(COMMAND) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::lab::results::{Kernel, Ran};

    #[test]
    fn the_table_has_a_row_for_each_command_and_the_faults_of_kernels() {
        let ran = Ran {
            guest: "a".into(),
            command: format!("one | `two`\n{}", "x".repeat(100)),
            end: End::Status(2),
            took: Duration::from_millis(2340),
            tail: String::new(),
        };
        let faults = vec!["WARNING: bad".to_owned()];
        let results = Results {
            commands: vec![ran.clone(), Ran { end: End::Stopped, guest: "b".into(), ..ran }],
            kernels: vec![Kernel { guest: "a".into(), faults }],
            start: vec![("the daemon", Duration::from_secs(1))],
            ..Results::default()
        };
        let text = document(&results);
        let row = format!(
            "| a | `one \\|  two  {}…` | the command ended with 2 | 2.3 s |\n",
            "x".repeat(67)
        );
        assert!(text.contains(&row), "{text}");
        assert!(text.contains("| server, stopped | 2.3 s |"), "{text}");
        assert!(text.contains("Ready after 1.0 s: 1.0 s for the daemon.\n"), "{text}");
        assert!(text.contains("guest a reported:\n\n    WARNING: bad\n"), "{text}");
    }
}
