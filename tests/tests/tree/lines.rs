//! Lines that are too long, and lines with which code in documentation begins.

use std::path::Path;

use crate::files;

/// Last column of a line of Markdown.
const MARKDOWN: usize = 120;
/// Last column of a comment. Code has the same limit.
const COMMENT: usize = 100;

/// Returns the lines of a Markdown file that are too long. Tables, blocks of code and images may be
/// as wide as they need, and the target of a link does not count.
pub(crate) fn markdown(file: &Path) -> Vec<String> {
    named(file, long_markdown(&files::text(file)))
}

/// Returns the comments of a Rust file that are too long.
pub(crate) fn comments(file: &Path) -> Vec<String> {
    named(file, long_comments(&files::text(file)))
}

/// Returns the lines of a Rust file with which code in documentation begins. No command runs such
/// code, so that it stands in tests, and other blocks there are marked as text.
pub(crate) fn documented_code(file: &Path) -> Vec<String> {
    named(file, code_in_documentation(&files::text(file)))
}

fn code_in_documentation(text: &str) -> Vec<usize> {
    let (mut found, mut open) = (Vec::new(), false);
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start();
        let words = line.strip_prefix("///").or(line.strip_prefix("//!")).map(str::trim);
        let Some(kind) = words.and_then(|words| words.strip_prefix("```")) else { continue };
        if !open && kind != "text" {
            found.push(number);
        }
        open = !open;
    }
    found
}

fn named(file: &Path, lines: Vec<usize>) -> Vec<String> {
    lines.into_iter().map(|line| format!("{}:{line}", file.display())).collect()
}

fn long_markdown(text: &str) -> Vec<usize> {
    let (mut long, mut code) = (Vec::new(), false);
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            code = !code;
        }
        let free = code || line.starts_with('|') || line.starts_with("![");
        if !free && width(&without_targets(line)) > MARKDOWN {
            long.push(number);
        }
    }
    long
}

/// Removes the targets of links.
fn without_targets(line: &str) -> String {
    let mut parts = line.split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str("](");
        text.push_str(part.split_once(')').map_or(part, |(_, rest)| rest));
    }
    text
}

fn long_comments(text: &str) -> Vec<usize> {
    let long = |line: &str| {
        let comment = line.trim_start().starts_with("//");
        // The width of a table, or of a word that cannot be broken, is not limited.
        let body = line.trim_start().trim_start_matches(['/', '!']).trim();
        comment && width(line) > COMMENT && !body.starts_with('|') && body.contains(' ')
    };
    (1..).zip(text.lines()).filter(|(_, line)| long(line)).map(|(number, _)| number).collect()
}

fn width(line: &str) -> usize {
    line.chars().count()
}

#[test]
fn long_lines_are_found() {
    let long = "word ".repeat(30);
    let text = format!("short\n{long}\n| {long} |\n```\n{long}\n```\n{long}\n");
    assert_eq!(long_markdown(&text), [2, 7]);
    let link = format!("[a]({}) b", "x".repeat(130));
    assert!(long_markdown(&link).is_empty());
    let text = format!(
        "code();\n    // {long}\nlet s = \"{long}\";\n//! | {long}\n/// {}\n",
        "x".repeat(120)
    );
    assert_eq!(long_comments(&text), [2]);
}

#[test]
fn code_in_documentation_is_found() {
    let text = "//! ```text\n//! a\n//! ```\n    /// ```\n    /// b();\n    /// ```\n// ```\n";
    assert_eq!(code_in_documentation(text), [4]);
}
