//! Parameters of functions that are tuple patterns.
//!
//! A parameter such as `(network, here): (Network, &Turn)` hides how many parameters a function
//! has, and its callers do not name the parts. Such parts are separate parameters or the fields of
//! a struct. Closures may have tuples, because iterators pass these to them. Modules of tests at
//! the end of a file are not searched.

use std::iter;
use std::path::{Path, PathBuf};

use crate::{files, modules};

/// Files that still have such parameters.
const EXCEPTED: [&str; 0] = [];

/// Returns the functions of the device, in these files, that have such a parameter, and the
/// exceptions that no longer apply.
pub(crate) fn check(files: &[PathBuf]) -> Vec<String> {
    let (mut wrong, mut excepted) = (Vec::new(), EXCEPTED.to_vec());
    for file in files.iter().filter(|file| is_of_device(file)) {
        let code = modules::code(&files::text(file));
        let found = find(&code);
        if let Some(at) = excepted.iter().position(|name| Path::new(name) == file)
            && !found.is_empty()
        {
            excepted.remove(at);
        } else {
            wrong.extend(found.iter().map(|name| format!("{}: {name}", file.display())));
        }
    }
    wrong.extend(excepted.iter().map(|name| format!("{name}: it has none and is excepted")));
    wrong
}

/// Returns whether a file is in `device/*/src`, `device/dev/*/src` or `bench/native/src`.
fn is_of_device(file: &Path) -> bool {
    let Ok(below) = file.strip_prefix("device") else {
        return file.starts_with("bench/native/src");
    };
    let below = below.strip_prefix("dev").unwrap_or(below);
    below.iter().nth(1).is_some_and(|folder| folder == "src")
}

/// Returns the names of the functions in code that have such a parameter.
fn find(code: &str) -> Vec<&str> {
    let begins = |at: usize| !code.get(..at).unwrap_or_default().ends_with(modules::is_word);
    let functions = code.match_indices("fn ").filter(|(at, _)| begins(*at));
    let functions = functions.filter_map(|(at, word)| {
        let rest = code.get(at + word.len()..)?;
        let (name, rest) = rest.split_at(rest.find(|letter| !modules::is_word(letter))?);
        let generic = rest.starts_with('<').then(|| inside(rest)).flatten();
        let list = generic.map_or(rest, |(_, behind)| behind).trim_start();
        let (list, _) = list.starts_with('(').then(|| inside(list))??;
        (!name.is_empty() && has_tuple(list)).then_some(name)
    });
    functions.collect()
}

/// Returns whether one of these parameters is a tuple pattern.
fn has_tuple(list: &str) -> bool {
    let commas = nested(list).filter(|(_, letter, depth)| *letter == ',' && *depth == 0);
    let mut begins = iter::once(0).chain(commas.map(|(at, ..)| at + 1));
    begins.any(|at| {
        let pattern = list.get(at..).unwrap_or_default().trim_start();
        pattern.trim_start_matches('&').starts_with('(')
    })
}

/// Returns the text in the bracket with which a text begins, and the text after it.
fn inside(text: &str) -> Option<(&str, &str)> {
    let (end, ..) = nested(text).skip(1).find(|(_, _, depth)| *depth == 0)?;
    Some((text.get(1..end)?, text.get(end + 1..)?))
}

/// Returns the letters of a text with their places and the number of brackets around them.
fn nested(text: &str) -> impl Iterator<Item = (usize, char, usize)> {
    let (mut depth, mut before) = (0usize, ' ');
    text.char_indices().map(move |(at, letter)| {
        let arrow = letter == '>' && matches!(before, '-' | '=');
        before = letter;
        let around = match letter {
            ')' | ']' | '}' | '>' if !arrow => depth.saturating_sub(1),
            _ => depth,
        };
        depth = around + usize::from(matches!(letter, '(' | '[' | '{' | '<'));
        (at, letter, around)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tuples_are_found() {
        let code = [
            "fn one((a, b): (u8, u8)) {}",
            "fn two<T: Fn(u8) -> (u8, u8)>(",
            "    &self,",
            "    list: Vec<(u8, u8)>,",
            "    &(a, b): &(T, T),",
            ") {}",
        ];
        assert_eq!(find(&code.join("\n")), ["one", "two"]);
    }

    #[test]
    fn other_parameters_are_not_found() {
        let code = [
            "fn one(a: (u8, u8), b: HashMap<u8, (u8, u8)>, Pair(c, d): Pair) -> (u8, u8) {",
            "    pairs.map(|(a, b)| a + b);",
            "    often (a, b);",
            "}",
            "fn two(work: impl Fn(u8, (u8, u8)) -> u8, next: fn(u8, (u8, u8))) {}",
        ];
        assert_eq!(find(&code.join("\n")), [""; 0]);
    }

    #[test]
    fn only_sources_of_the_device_are_searched() {
        let is = |name| is_of_device(Path::new(name));
        assert!(is("device/daemon/src/net/port.rs") && is("device/roce/src/lib.rs"));
        assert!(is("device/dev/testdriver/src/guest.rs") && is("bench/native/src/main.rs"));
        assert!(!is("device/roce/tests/src/lib.rs") && !is("tests/src/lib.rs"));
    }
}
