//! Reports: text for people, lines of JSON for programs, and a summary at the end.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{self, Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;

use crate::options::{self, Options};
use crate::rules::Rule;
use crate::sarif;
use crate::signals;
use crate::stack::{Frame, Place};

/// Most frames of a stack that are printed.
const FRAMES: usize = 8;
/// How long a report waits for another one, which may have to read debugging information.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a program has done wrong.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) rule: Rule,
    /// True if it may be right all the same.
    pub(crate) is_hint: bool,
    /// One sentence with the objects by name.
    pub(crate) text: String,
    /// The call that began it.
    pub(crate) began: Option<Place>,
    /// The call that showed it.
    pub(crate) shown: Place,
}

/// Reports that were equal: the same rule at the same places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    rule: Rule,
    is_hint: bool,
    began: Option<Place>,
    shown: Place,
}

/// Counts of equal reports.
#[derive(Debug, Default)]
struct Counted {
    /// The number of times that each was found, and whether it is suppressed.
    equal: HashMap<Key, Equal>,
}

#[derive(Clone, Copy, Debug)]
struct Equal {
    count: u64,
    is_suppressed: bool,
}

#[derive(Debug)]
struct Reporter {
    options: Options,
    /// The file for lines of JSON. A program may close descriptors that it does not know, so none
    /// is kept.
    json: Option<PathBuf>,
    /// The document of SARIF.
    sarif: Option<PathBuf>,
    /// The folder in which the process was started.
    folder: PathBuf,
    counted: Mutex<Counted>,
}

static REPORTER: OnceLock<Reporter> = OnceLock::new();

/// A place in a line of JSON.
#[derive(Serialize)]
struct JsonPlace<'a> {
    call: &'static str,
    frames: &'a [Frame],
}

/// A line of JSON.
#[derive(Serialize)]
struct JsonReport<'a> {
    process: u32,
    rule: u32,
    name: &'static str,
    hint: bool,
    text: &'a str,
    began: Option<JsonPlace<'a>>,
    shown: JsonPlace<'a>,
    source: &'static str,
}

/// Prepares reports.
///
/// # Errors
/// A sentence, if the file for reports cannot be written.
pub(crate) fn start(options: Options) -> Result<(), String> {
    let json = first(options.json.as_deref(), |path| open(path).map(drop))?;
    let sarif = first(options.sarif.as_deref(), sarif::begin)?;
    let folder = std::env::current_dir().unwrap_or_default();
    let counted = Mutex::default();
    let _started_once = REPORTER.set(Reporter { options, json, sarif, folder, counted });
    Ok(())
}

/// Returns the absolute path of a file for reports, because the program may change its folder,
/// after a first use of it.
fn first(
    path: Option<&Path>,
    uses: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<Option<PathBuf>, String> {
    let Some(path) = path else { return Ok(None) };
    let path = path::absolute(path).map_err(|error| unwritten(path, &error))?;
    uses(&path).map_err(|error| unwritten(&path, &error))?;
    Ok(Some(path))
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

fn unwritten(path: &Path, error: &io::Error) -> String {
    format!("the file for reports, {}, cannot be written: {error}", path.display())
}

/// Returns the options. Before the start these are the usual ones.
pub(crate) fn options() -> &'static Options {
    static USUAL: OnceLock<Options> = OnceLock::new();
    match REPORTER.get() {
        Some(reporter) => &reporter.options,
        None => USUAL.get_or_init(Options::default),
    }
}

/// Forgets what was counted: a forked process counts from zero.
pub(crate) fn forget() {
    // Another thread may have had the lock when this process was forked. Then the counts stay.
    if let Some(mut counted) = REPORTER.get().and_then(|reporter| reporter.counted.try_lock()) {
        counted.equal.clear();
    }
}

/// Prints a line that is no report.
pub(crate) fn say(text: &str) {
    print(&format!("vrnic-check: {text}\n"));
}

/// Prints a line about this process.
pub(crate) fn say_about(text: &str) {
    print(&format!("vrnic-check{text}\n"));
}

fn print(line: &str) {
    // If standard error is closed, no reader is left.
    let _written = signals::write(|| io::stderr().write_all(line.as_bytes()));
}

/// Reports what was found, unless it is a hint that nobody wants, or was reported before.
pub(crate) fn report(finding: &Finding) {
    let Some(reporter) = REPORTER.get() else { return };
    if !finding.is_hint || reporter.options.hints {
        signals::uncancelled(|| count_and_print(reporter, finding));
    }
}

fn count_and_print(reporter: &Reporter, finding: &Finding) {
    let &Finding { rule, is_hint, began, shown, .. } = finding;
    let key = Key { rule, is_hint, began, shown };
    // In a forked process, a thread that does not exist there may have had the lock.
    let Some(mut counted) = reporter.counted.try_lock_for(PATIENCE) else { return };
    if let Some(equal) = counted.equal.get_mut(&key) {
        equal.count += 1;
        return;
    }
    let began = began.map(frames).unwrap_or_default();
    let shown = frames(shown);
    let all = || began.iter().chain(&shown);
    let functions: Vec<_> = all().filter_map(|frame| frame.function.as_deref()).collect();
    let libraries: Vec<_> = all().map(|frame| frame.library.as_str()).collect();
    let suppressions = &reporter.options.suppressions;
    let is_suppressed = suppressions.iter().any(|line| line.covers(rule, &functions, &libraries));
    counted.equal.insert(key, Equal { count: 1, is_suppressed });
    if is_suppressed {
        return;
    }
    print(&text(finding, &began, &shown));
    if let Some(path) = reporter.json.as_deref() {
        let line = json(finding, &began, &shown);
        keep(path, || open(path)?.write_all(line.as_bytes()));
    }
    if let Some(path) = reporter.sarif.as_deref() {
        let titles = [Some(finding.shown), finding.began]
            .map(|place| place.map(|place| place.call).unwrap_or_default());
        let titles = [format!("seen by {}", titles[0]), format!("began with {}", titles[1])];
        let stack = |title, frames| Some(sarif::Stack { title, frames });
        let began = finding.began.and_then(|_| stack(&titles[1], &began));
        let result = sarif::Reported {
            rule,
            is_hint,
            text: &finding.text,
            stacks: [stack(&titles[0], &shown), began],
        };
        keep(path, || sarif::add(path, &reporter.folder, &result));
    }
}

/// Writes to a file for reports, and says so if that fails.
fn keep(path: &Path, write: impl FnOnce() -> io::Result<()>) {
    if let Err(error) = signals::write(write) {
        say(&unwritten(path, &error));
    }
}

/// Returns the frames of the program. Functions in the header of libibverbs, which make the call,
/// are left out.
fn frames(place: Place) -> Vec<Frame> {
    let mut frames = place.stack.frames();
    let is_header =
        |frame: &Frame| frame.line.as_ref().is_some_and(|line| line.starts_with("verbs.h:"));
    frames.retain(|frame| !is_header(frame));
    frames
}

/// Returns a report as text.
fn text(finding: &Finding, began: &[Frame], shown: &[Frame]) -> String {
    let info = finding.rule.info();
    let kind = if finding.is_hint { "hint" } else { "mistake" };
    let mut text = format!(
        "vrnic-check[{}]: {kind} {} ({}): {}\n",
        std::process::id(),
        info.number,
        info.name,
        finding.text
    );
    stack(&mut text, "seen by", finding.shown, shown);
    if let Some(place) = finding.began {
        stack(&mut text, "began with", place, began);
    }
    let line = suppression(info.name, began, shown);
    // Writing to a string does not fail.
    let _written =
        writeln!(text, "  rule: {}\n  source: {}\n  suppress: {line}", info.sentence, info.source);
    text
}

/// Returns the line of a file that suppresses a report.
fn suppression(rule: &str, began: &[Frame], shown: &[Frame]) -> String {
    let mut line = rule.to_owned();
    let first = began.first().or(shown.first());
    if let Some(function) = first.and_then(|frame| frame.function.as_ref()) {
        let _written = write!(line, " function={}", options::escaped(function));
    }
    if let Some(frame) = first {
        let _written = write!(line, " library={}", options::escaped(&frame.library));
    }
    line
}

fn stack(text: &mut String, title: &str, place: Place, frames: &[Frame]) {
    let _written = writeln!(text, "  {title} {}", place.call);
    for (number, frame) in frames.iter().take(FRAMES).enumerate() {
        let place = frame.line.as_ref().map_or_else(
            || format!("{}+{:#x}", frame.library, frame.offset),
            |line| format!("{line} ({})", frame.library),
        );
        let function = frame.function.as_deref().unwrap_or("?");
        let _written = writeln!(text, "    #{number} {function} at {place}");
    }
}

/// Returns a report as a line of JSON.
fn json(finding: &Finding, began: &[Frame], shown: &[Frame]) -> String {
    let info = finding.rule.info();
    let report = JsonReport {
        process: std::process::id(),
        rule: info.number,
        name: info.name,
        hint: finding.is_hint,
        text: &finding.text,
        began: finding.began.map(|place| JsonPlace { call: place.call, frames: began }),
        shown: JsonPlace { call: finding.shown.call, frames: shown },
        source: info.source,
    };
    // Nothing in it can fail.
    serde_json::to_string(&report).unwrap_or_default() + "\n"
}

/// What was found until now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) mistakes: u64,
    pub(crate) hints: u64,
    /// Reports beyond the first of each kind and place.
    pub(crate) repeated: u64,
    pub(crate) suppressed: u64,
}

/// Returns a number of things, with their name.
pub(crate) fn count(number: u64, name: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{number} {name}{end}")
}

/// Returns what was found until now; nothing if another thread keeps the counts for too long.
pub(crate) fn totals() -> Totals {
    let mut totals = Totals::default();
    let Some(reporter) = REPORTER.get() else { return totals };
    let Some(counted) = reporter.counted.try_lock_for(PATIENCE) else { return totals };
    for (key, equal) in &counted.equal {
        if equal.is_suppressed {
            totals.suppressed += equal.count;
            continue;
        }
        let sort = if key.is_hint { &mut totals.hints } else { &mut totals.mistakes };
        *sort += 1;
        totals.repeated += equal.count - 1;
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_suppresses_a_report_can_be_read() {
        let (function, library) = ("operator%(int, char\t) 100%20", "my program");
        let frame = Frame {
            function: Some(function.to_owned()),
            line: None,
            path: None,
            library: library.to_owned(),
            offset: 0,
        };
        let line = suppression("queue-full", &[frame], &[]);
        let read = options::suppression(&line).expect("a suppression");
        assert!(read.covers(Rule::QueueFull, &[function], &[library]), "{line}");
    }
}
