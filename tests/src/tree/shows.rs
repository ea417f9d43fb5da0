//! Tags in doc comments that say what a test shows.
//!
//! A tag is a paragraph `Shows: TOPIC` or `Shows: TOPIC: WORDS` in the doc comment of a test, of
//! the function of a case in guests, or of a file with tests. Without words, the name of the test
//! or the first sentence of the file says what is shown.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::tree::files;

/// The topics, in the order of the page, with their headings.
pub const TOPICS: [(&str, &str); 22] = [
    ("memory", "Regions, windows and keys"),
    ("paging", "Regions whose pages come and go"),
    ("queues", "Queue pairs, shared receive queues and their rings"),
    ("completions", "Completion queues, events and interrupts"),
    ("data", "Messages"),
    ("datagrams", "Datagrams and multicast"),
    ("raw", "Ethernet frames, flow rules and work queues"),
    ("roce", "Packets of RoCE v2"),
    ("iwarp", "Connections of iWARP"),
    ("tcp", "The TCP engine, and TCP streams of programs"),
    ("iscsi", "iSCSI"),
    ("direct", "Direct transfers and device memory"),
    ("network", "Addresses, ports, the switch and its uplinks"),
    ("resources", "Objects, their limits, and the shares of functions"),
    ("hostile", "Hostile guests, VMMs, programs and peers"),
    ("faults", "Injected faults, traces and captures"),
    ("views", "Counters, records and the monitor"),
    ("daemon", "The daemon"),
    ("driver", "The kernel module and its clients"),
    ("programs", "Processes, libraries and programs"),
    ("cost", "Time and memory that work costs"),
    ("tools", "Scripts, packages and the repository"),
];

/// Folders of tests that run in guests.
const GUESTS: [&str; 2] = ["tests/tests", "tests/verify/src/suite"];

/// What a tag says.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shown {
    file: PathBuf,
    /// The test or the case, unless the tag is that of a file.
    test: Option<String>,
    topic: String,
    words: String,
    in_guests: bool,
}

/// A doc comment, and what follows it.
#[derive(Default)]
struct Item<'a> {
    comment: Vec<&'a str>,
    is_test: bool,
    /// The name of the function, or nothing for the comment of a file.
    function: Option<&'a str>,
}

/// The texts of files.
type Texts = BTreeMap<PathBuf, String>;

/// Returns what all tags of the repository say, and the tags that are wrong.
#[must_use]
pub fn all() -> (Vec<Shown>, Vec<String>) {
    let texts = files::with_extension("rs").into_iter().map(|file| {
        let text = files::text(&file);
        (file, text)
    });
    read(&texts.collect())
}

/// Returns what the tags of files say, and the tags that are wrong.
fn read(texts: &Texts) -> (Vec<Shown>, Vec<String>) {
    let (mut shown, mut wrong) = (Vec::new(), Vec::new());
    for (file, text) in texts {
        for item in items(text) {
            for paragraph in paragraphs(&item.comment) {
                let Some(tag) = paragraph.strip_prefix("Shows:") else { continue };
                match understand(file, &item, tag.trim(), texts) {
                    Ok(says) => shown.push(says),
                    Err(error) => wrong.push(format!("{}: {paragraph}: {error}", file.display())),
                }
            }
        }
    }
    (shown, wrong)
}

/// Returns the doc comments of a file with what follows them: first that of the file.
fn items(text: &str) -> Vec<Item<'_>> {
    let (mut header, mut found, mut item) = (Item::default(), Vec::new(), Item::default());
    for line in text.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("//!") {
            header.comment.push(comment.trim());
        } else if let Some(comment) = line.strip_prefix("///") {
            item.comment.push(comment.trim());
        } else if line.starts_with("#[") {
            item.is_test |= line == "#[test]";
        } else {
            item.function = function(line).or(Some(""));
            found.push(std::mem::take(&mut item));
        }
    }
    found.retain(|item| !item.comment.is_empty());
    found.insert(0, header);
    found
}

/// Returns the name of the function that begins in a line.
fn function(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    let name = rest.split(['(', '<']).next()?;
    (before.is_empty() || before.ends_with(' ')).then_some(name)
}

/// Returns the paragraphs of a comment.
fn paragraphs<'a>(comment: &'a [&str]) -> impl Iterator<Item = String> + use<'a> {
    comment.split(|line| line.is_empty()).map(|lines| lines.join(" "))
}

/// Returns what a tag says.
fn understand(file: &Path, item: &Item<'_>, tag: &str, texts: &Texts) -> Result<Shown> {
    let (topic, words) = tag.split_once(':').unwrap_or((tag, ""));
    let is_known = TOPICS.iter().any(|(known, _)| *known == topic);
    ensure!(is_known, "'{topic}' is no topic of tests/src/tree/shows.rs");
    let (suite, has_tests) = (suite(file), texts[file].contains("#[test]"));
    let (test, in_guests) = match item.function {
        None if has_tests || suite.is_some() => (None, !has_tests),
        Some(name) if item.is_test => (Some(name.to_owned()), false),
        Some(name) if suite.is_some() => (Some(case(texts, suite.as_deref(), name)?), true),
        _ => bail!("this is neither a test nor a file with tests"),
    };
    let words = match words.trim() {
        "" => test.as_ref().map_or_else(|| first_sentence(item), |test| test.replace('_', " ")),
        words => words.to_owned(),
    };
    Ok(Shown { topic: topic.to_owned(), words, file: file.to_owned(), test, in_guests })
}

/// Returns the suite in guests that a file belongs to: its file or folder in the folder of a
/// subject, without extension.
fn suite(file: &Path) -> Option<PathBuf> {
    let below = |folder: &&'static str| Some((*folder, file.strip_prefix(folder).ok()?));
    let (folder, rest) = GUESTS.iter().find_map(below)?;
    Some(Path::new(folder).join(rest.iter().take(2).collect::<PathBuf>()).with_extension(""))
}

/// Returns the name of the case that runs a function: the text in quotes before the function's name
/// in the call of `Case::new`, or in a call that makes cases.
fn case(texts: &Texts, of: Option<&Path>, function: &str) -> Result<String> {
    let files = texts.iter().filter(|(file, _)| suite(file).as_deref() == of);
    let cases = files.filter_map(|(_, text)| case_in(text, function));
    cases.min().with_context(|| format!("'{function}' is neither a test nor run by a case"))
}

fn case_in(text: &str, function: &str) -> Option<String> {
    let parts: Vec<_> = text.split('"').collect();
    let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
    let runs = |after: &str| {
        let mut statements = after.split(';');
        let first = statements.next();
        let second = statements.next().filter(|next| next.contains("Case::new("));
        let calls = first.into_iter().chain(second);
        let mut words = calls.flat_map(|call| call.split(|letter| !is_letter(letter)));
        after.starts_with(',') && words.any(|word| word == function)
    };
    let is_name = |name: &str| name.chars().all(|of| is_letter(of) || "/{}".contains(of));
    let mut names = parts.windows(2).skip(1).step_by(2);
    names.find(|pair| is_name(pair[0]) && runs(pair[1])).map(|pair| pair[0].to_owned())
}

fn first_sentence(item: &Item<'_>) -> String {
    let first = paragraphs(&item.comment).next().unwrap_or_default();
    let sentence = first.split_once(". ").map_or(first.as_str(), |(sentence, _)| sentence);
    sentence.trim_end_matches('.').to_owned()
}

/// Returns the page for readers, with one topic or all of them.
///
/// # Errors
///
/// Fails if there is no such topic.
pub fn page(shown: &[Shown], only: Option<&str>) -> Result<String> {
    let is_asked = |topic: &str| only.is_none_or(|only| only == topic);
    let topics: Vec<_> = TOPICS.iter().filter(|(topic, _)| is_asked(topic)).collect();
    let names = TOPICS.map(|(topic, _)| topic).join(", ");
    ensure!(!topics.is_empty(), "there is no such topic; the topics are {names}");
    let mut page = String::from("# What the tests show\n");
    for (topic, heading) in topics {
        writeln!(page, "\n## {heading} ({topic})")?;
        for (in_guests, place) in [(false, "Without guests"), (true, "In guests")] {
            let of = |shown: &&Shown| shown.topic == *topic && shown.in_guests == in_guests;
            let mut shown: Vec<_> = shown.iter().filter(of).collect();
            shown.sort();
            if !shown.is_empty() {
                writeln!(page, "\n{place}:\n")?;
            }
            for files in shown.chunk_by(|one, other| one.file == other.file) {
                write!(page, "{}", of_file(files))?;
            }
        }
    }
    Ok(page)
}

/// Returns the lines of what the tests of a file show: first what all of them show.
fn of_file(shown: &[&Shown]) -> String {
    let mut lines = match shown.first() {
        Some(first) if first.test.is_some() => format!("- `{}`\n", first.file.display()),
        _ => String::new(),
    };
    for shown in shown {
        let _ = match &shown.test {
            None => writeln!(lines, "- {} (`{}`)", shown.words, shown.file.display()),
            Some(test) => writeln!(lines, "  - {} (`{test}`)", shown.words),
        };
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(files: &[(&str, &str)]) -> Texts {
        files.iter().map(|(file, text)| (file.into(), (*text).to_owned())).collect()
    }

    #[test]
    fn tags_of_tests_cases_and_files_are_read() {
        let keys = [
            "//! Keys. And more.",
            "//!",
            "//! Shows: memory",
            "",
            "/// Text.",
            "///",
            "/// Shows: data: one or",
            "/// several bytes",
            "#[test]",
            "fn bytes() {}",
            "/// Shows: cost",
            "#[test]",
            "fn a_test() {}",
        ];
        let (shown, wrong) = read(&texts(&[
            ("a/tests/keys.rs", &keys.join("\n")),
            ("tests/tests/a/b/mod.rs", "//! Shows: iwarp: all\nCase::new(\"a_case\", c::run);\n"),
            ("tests/tests/a/b/c.rs", "/// Shows: tcp\npub(crate) fn run(pair: &Pair) {\n"),
        ]));
        assert!(wrong.is_empty(), "{wrong:?}");
        let page = page(&shown, None).expect("all topics");
        let lines: Vec<_> = page.lines().filter(|line| line.contains('-')).collect();
        assert_eq!(
            lines,
            [
                "- Keys (`a/tests/keys.rs`)",
                "- `a/tests/keys.rs`",
                "  - one or several bytes (`bytes`)",
                "- all (`tests/tests/a/b/mod.rs`)",
                "- `tests/tests/a/b/c.rs`",
                "  - a case (`a_case`)",
                "- `a/tests/keys.rs`",
                "  - a test (`a_test`)",
            ]
        );
        assert!(super::page(&shown, Some("nothing")).is_err());
    }

    #[test]
    fn wrong_tags_are_found() {
        let (shown, wrong) = read(&texts(&[
            ("a/src/lib.rs", "//! Shows: data\n/// Shows: data\nfn no_test() {}\n"),
            ("b/src/lib.rs", "/// Shows: nothing\n#[test]\nfn test() {}\n"),
            ("tests/tests/a/c.rs", "/// Shows: data\nfn helper() {}\nCase::new(\"c\", other);\n"),
            ("tests/tests/a/d.rs", "Case::new(\"of_another_suite\", helper);\n"),
        ]));
        assert_eq!((shown, wrong.len()), (Vec::new(), 4), "{wrong:?}");
    }
}
