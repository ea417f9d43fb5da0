//! Reports as a document of SARIF 2.1.0, which forges show next to the code.
//!
//! Several processes add to one document, and each of them leaves it complete.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use serde_json::{Value, json};

use crate::rules::Rule;
use crate::stack::Frame;

/// Where the results are in a document.
const RESULTS: &str = "/runs/0/results";
/// Where the name of the program is that has made a document.
const MAKER: &str = "/runs/0/tool/driver/name";
/// The name of this one.
const NAME: &str = "vrnic-check";
/// The base of paths of sources, which the forge knows.
const BASE: &str = "%SRCROOT%";

/// A report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reported<'a> {
    pub(crate) rule: Rule,
    pub(crate) is_hint: bool,
    pub(crate) text: &'a str,
    /// The stacks that show it, each with a sentence: first the one that has shown it.
    pub(crate) stacks: [Option<Stack<'a>>; 2],
}

/// A stack in a report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stack<'a> {
    pub(crate) title: &'a str,
    pub(crate) frames: &'a [Frame],
}

/// Creates a document without results, unless there is one.
///
/// # Errors
/// If the file cannot be written, or has something else.
pub(crate) fn begin(path: &Path) -> io::Result<()> {
    let mut file = open(path)?;
    let document = read(&mut file)?;
    write(&mut file, &document)
}

/// Adds a report. `root` is the folder of the sources, to which their paths are relative.
///
/// # Errors
/// If the file cannot be written, or has something else.
pub(crate) fn add(path: &Path, root: &Path, result: &Reported<'_>) -> io::Result<()> {
    let mut file = open(path)?;
    let mut document = read(&mut file)?;
    let results = document.pointer_mut(RESULTS).and_then(Value::as_array_mut);
    results.ok_or_else(foreign)?.push(value(root, result));
    write(&mut file, &document)
}

/// Opens the file, and locks it until it is closed.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)?;
    file.lock()?;
    Ok(file)
}

fn foreign() -> io::Error {
    io::Error::other("it is no document of this program")
}

/// Returns the document in a file, or a new one if the file is empty.
fn read(file: &mut File) -> io::Result<Value> {
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    if text.is_empty() {
        return Ok(empty());
    }
    let document: Value = serde_json::from_str(&text).map_err(|_| foreign())?;
    let is_own = document.pointer(MAKER).and_then(Value::as_str) == Some(NAME);
    if is_own { Ok(document) } else { Err(foreign()) }
}

fn write(file: &mut File, document: &Value) -> io::Result<()> {
    let mut text = serde_json::to_string_pretty(document)?;
    text.push('\n');
    file.seek(SeekFrom::Start(0))?;
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)
}

/// Returns a document without results, which describes all rules.
fn empty() -> Value {
    let rule = |rule: &Rule| {
        let info = rule.info();
        json!({
            "id": info.name,
            "shortDescription": { "text": info.sentence },
            "help": { "text": format!("{} Source: {}.", info.sentence, info.source) },
            "properties": { "number": info.number },
        })
    };
    let rules: Vec<_> = Rule::ALL.iter().map(rule).collect();
    let driver = json!({ "name": NAME, "version": env!("CARGO_PKG_VERSION"), "rules": rules });
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": driver },
            "columnKind": "utf16CodeUnits",
            "results": [],
        }],
    })
}

/// Returns a report as a result.
fn value(root: &Path, result: &Reported<'_>) -> Value {
    let info = result.rule.info();
    let index = Rule::ALL.iter().position(|rule| *rule == result.rule);
    let stacks = || result.stacks.iter().flatten();
    let places: Vec<_> = stacks().filter_map(|stack| place(root, stack)).collect();
    let functions = stacks().filter_map(|stack| stack.frames.first());
    let functions = functions
        .map(|frame| format!(" {}@{}", frame.function.as_deref().unwrap_or("?"), frame.library));
    json!({
        "ruleId": info.name,
        "ruleIndex": index,
        "level": if result.is_hint { "note" } else { "error" },
        "message": { "text": result.text },
        "locations": places.iter().take(1).collect::<Vec<_>>(),
        "relatedLocations": places.iter().skip(1).collect::<Vec<_>>(),
        "stacks": stacks().map(|stack| frames(root, stack)).collect::<Vec<_>>(),
        "partialFingerprints": {
            "places/v1": format!("{}{}", info.name, functions.collect::<String>()),
        },
    })
}

/// Returns the innermost place of a stack whose source is known, or else its innermost file.
fn place(root: &Path, stack: &Stack<'_>) -> Option<Value> {
    let known = stack.frames.iter().find(|frame| frame.path.is_some());
    let mut place = location(root, known.or(stack.frames.first())?);
    place["message"] = json!({ "text": stack.title });
    Some(place)
}

fn frames(root: &Path, stack: &Stack<'_>) -> Value {
    let frame =
        |frame: &Frame| json!({ "location": location(root, frame), "module": frame.library });
    let frames: Vec<_> = stack.frames.iter().map(frame).collect();
    json!({ "message": { "text": stack.title }, "frames": frames })
}

fn location(root: &Path, frame: &Frame) -> Value {
    let mut physical = match &frame.path {
        Some(path) => json!({ "artifactLocation": artifact(root, Path::new(path)) }),
        None => json!({ "artifactLocation": { "uri": escaped(&frame.library) } }),
    };
    let line = frame.line.as_ref().and_then(|line| line.rsplit_once(':'));
    let line = line.and_then(|(_, number)| number.parse::<u32>().ok()).filter(|line| *line > 0);
    if let Some(line) = line {
        physical["region"] = json!({ "startLine": line });
    }
    let function = frame.function.as_deref();
    let names = function.map(|name| vec![json!({ "fullyQualifiedName": name })]);
    json!({ "physicalLocation": physical, "logicalLocations": names.unwrap_or_default() })
}

/// Returns the place of a source, relative to the folder of all sources if it is there.
fn artifact(root: &Path, path: &Path) -> Value {
    match path.strip_prefix(root) {
        Ok(inside) => json!({ "uri": escaped(&inside.to_string_lossy()), "uriBaseId": BASE }),
        Err(_) if path.is_absolute() => {
            json!({ "uri": format!("file://{}", escaped(&path.to_string_lossy())) })
        }
        Err(_) => json!({ "uri": escaped(&path.to_string_lossy()) }),
    }
}

/// Returns a path as part of an address.
fn escaped(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                text.push(char::from(byte));
            }
            _ => text += &format!("%{byte:02X}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use vrnic_stock::sarif::results;

    use super::*;

    fn frame(function: Option<&str>, path: Option<&str>) -> Frame {
        Frame {
            function: function.map(str::to_owned),
            line: path.map(|path| format!("{}:12", path.rsplit('/').next().unwrap_or_default())),
            path: path.map(str::to_owned),
            library: "my program".to_owned(),
            offset: 16,
        }
    }

    #[test]
    fn documents_have_the_structure_of_the_format() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out.sarif");
        begin(&path).expect("a document");
        let text = std::fs::read_to_string(&path).expect("text");
        assert_eq!(results(&text).expect("a valid document"), Vec::<String>::new());
        let shown = [frame(Some("main"), Some("/src/a b/main.c")), frame(None, None)];
        let began = [frame(None, None), frame(Some("post"), Some("/usr/include/x.h"))];
        for rule in [Rule::QueueFull, Rule::NotFreed] {
            let stack = |title, frames| Some(Stack { title, frames });
            let result = Reported {
                rule,
                is_hint: rule == Rule::NotFreed,
                text: "text",
                stacks: [stack("seen", &shown[..]), stack("began", &began[..])],
            };
            add(&path, Path::new("/src"), &result).expect("added");
        }
        let nowhere =
            Reported { rule: Rule::CqOverrun, is_hint: false, text: "", stacks: [None; 2] };
        add(&path, Path::new("/src"), &nowhere).expect("added");
        let text = std::fs::read_to_string(&path).expect("text");
        let found = results(&text).expect("a valid document");
        assert_eq!(
            found,
            ["queue-full a%20b/main.c:12", "not-freed a%20b/main.c:12", "cq-overrun"]
        );
        assert!(
            text.contains("file:///usr/include/x.h") && text.contains("my%20program"),
            "{text}"
        );
    }

    #[test]
    fn other_files_are_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("main.c");
        for text in ["int main(void);\n", "{\"runs\": []}", "[]"] {
            std::fs::write(&path, text).expect("written");
            let error = begin(&path).expect_err("no document").to_string();
            assert!(error.contains("no document of this program"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).expect("text"), text);
        }
    }
}
