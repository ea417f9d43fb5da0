//! The options of the checker, which are in an environment variable.

use std::path::{Path, PathBuf};

use crate::rules::Rule;

/// The environment variable with the options.
pub const VARIABLE: &str = "VRNIC_CHECK";

/// What the checker prints, and what it looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The file to which reports are added as lines of JSON.
    pub json: Option<PathBuf>,
    /// The document of SARIF to which reports are added.
    pub sarif: Option<PathBuf>,
    /// True if a process with a mistake ends with an exit status of its own.
    pub fail: bool,
    /// True if all bytes of buffers are compared, and not samples of large ones.
    pub strict: bool,
    /// True if the program cannot write to pages of buffers while requests send them.
    pub guard: bool,
    /// True if hints are printed, which may be wrong.
    pub hints: bool,
    /// Reports that are not printed.
    pub suppressions: Vec<Suppression>,
}

/// Reports that are not printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suppression {
    rule: Rule,
    function: Option<String>,
    library: Option<String>,
}

impl Suppression {
    /// Returns whether a report of this rule, with these functions and files of its stacks, is not
    /// printed.
    pub(crate) fn covers(&self, rule: Rule, functions: &[&str], libraries: &[&str]) -> bool {
        let has = |wanted: &Option<String>, found: &[&str]| {
            wanted.as_ref().is_none_or(|wanted| found.contains(&wanted.as_str()))
        };
        self.rule == rule && has(&self.function, functions) && has(&self.library, libraries)
    }
}

impl Options {
    /// Reads options: words with commas between them.
    ///
    /// # Errors
    /// A sentence that says what is wrong with which word, or with which line of a file.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut options = Self::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                Some(("json", file)) if !file.is_empty() => options.json = Some(file.into()),
                Some(("sarif", file)) if !file.is_empty() => options.sarif = Some(file.into()),
                Some(("suppressions", file)) if !file.is_empty() => {
                    options.suppressions.extend(suppressions(Path::new(file))?);
                }
                None if word == "fail" => options.fail = true,
                None if word == "strict" => options.strict = true,
                None if word == "guard" => options.guard = true,
                None if word == "hints" => options.hints = true,
                _ => {
                    return Err(format!(
                        "{VARIABLE} has the unknown option '{word}'; there are json=FILE, \
                         sarif=FILE, fail, strict, guard, hints and suppressions=FILE"
                    ));
                }
            }
        }
        Ok(options)
    }
}

/// Reads a file with suppressions.
fn suppressions(file: &Path) -> Result<Vec<Suppression>, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("the suppressions {} cannot be read: {error}", file.display()))?;
    let lines = (1..).zip(text.lines().map(str::trim));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|(number, line)| {
            suppression(line).map_err(|error| format!("{}:{number}: {error}", file.display()))
        })
        .collect()
}

/// Returns a name as it is in a line: `%` and two digits stand for each byte of white space and of
/// percent signs.
pub(crate) fn escaped(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for sign in name.chars() {
        if sign.is_whitespace() || sign == '%' {
            for byte in sign.encode_utf8(&mut [0; 4]).bytes() {
                text += &format!("%{byte:02x}");
            }
        } else {
            text.push(sign);
        }
    }
    text
}

/// Returns the name that [`escaped`] has written so. Other percent signs stand for themselves.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend(parts.next().unwrap_or_default().bytes());
    for part in parts {
        let is_hex = |digits: &&str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let digits = part.get(..2).filter(is_hex);
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let rest = if byte.is_some() { part.get(2..).unwrap_or_default() } else { part };
        bytes.push(byte.unwrap_or(b'%'));
        bytes.extend(rest.bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads one line with a suppression.
pub(crate) fn suppression(line: &str) -> Result<Suppression, String> {
    let mut words = line.split_whitespace();
    let name = words.next().unwrap_or_default();
    let rule = Rule::find(name).ok_or_else(|| format!("there is no rule '{name}'"))?;
    let mut suppression = Suppression { rule, function: None, library: None };
    for word in words {
        match word.split_once('=') {
            Some(("function", name)) => suppression.function = Some(unescaped(name)),
            Some(("library", name)) => suppression.library = Some(unescaped(name)),
            _ => {
                return Err(format!(
                    "'{word}' is neither function=NAME nor library=NAME, which may follow the rule"
                ));
            }
        }
    }
    Ok(suppression)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_words_with_commas() {
        let options = Options::parse("json=out.json, fail,,hints,sarif=b").expect("options");
        assert_eq!(options.json.as_deref(), Some(Path::new("out.json")));
        assert_eq!(options.sarif.as_deref(), Some(Path::new("b")));
        assert!(options.fail && options.hints && !options.strict);
        assert_eq!(Options::parse(""), Ok(Options::default()));
    }

    #[test]
    fn unknown_options_are_named() {
        for word in ["fast", "fail=1", "json", "json=", "sarif="] {
            let error = Options::parse(&format!("fail,{word}")).expect_err("not an option");
            assert!(error.contains(&format!("unknown option '{word}'")), "{error}");
        }
        let error = Options::parse("suppressions=/nonexistent/file").expect_err("no such file");
        assert!(error.contains("/nonexistent/file cannot be read"), "{error}");
    }

    #[test]
    fn suppressions_are_lines_with_a_rule() {
        let line = suppression("queue-full function=post library=prog").expect("a suppression");
        assert!(line.covers(Rule::QueueFull, &["main", "post"], &["prog", "libc.so.6"]));
        assert!(!line.covers(Rule::QueueFull, &["main"], &["prog"]));
        assert!(!line.covers(Rule::QueueFull, &["post"], &["libc.so.6"]));
        assert!(!line.covers(Rule::SendBufferChanged, &["post"], &["prog"]));
        let plain = suppression("queue-full function=a%b%").expect("a suppression");
        assert!(plain.covers(Rule::QueueFull, &["a%b%"], &[]));
        let all = suppression("queue-full").expect("a suppression");
        assert!(all.covers(Rule::QueueFull, &[], &[]));
        assert!(suppression("no-such-rule").expect_err("no rule").contains("'no-such-rule'"));
        assert!(suppression("queue-full post").expect_err("no key").contains("'post'"));
    }
}
