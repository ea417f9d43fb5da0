//! Guards that are made before the code knows whether they are needed.
//!
//! `then_some` and `unwrap_or` take a value that exists already, and drop it if it is not used. The
//! drop of a guard then ends an action that never began: it unlocks a lock of another thread, or
//! frees an object of another owner. `then` and `unwrap_or_else` make the guard only if it is used.

use std::collections::BTreeSet;
use std::path::Path;

use crate::files;

/// Calls whose value is dropped if it is not used.
const EAGER: [&str; 2] = ["then_some(", "unwrap_or("];

/// Returns the places in a file where one of its guards is made for such a call.
pub(crate) fn eager(file: &Path) -> Vec<String> {
    let text = files::text(file);
    let found = find(&text).into_iter();
    found.map(|(line, name)| format!("{}:{line}: {name}", file.display())).collect()
}

/// Returns the names of the types in a file that implement `Drop`.
fn guards(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter_map(|line| line.trim_start().strip_prefix("impl")?.split_once("Drop for "))
        .map(|(_, name)| first_word(name))
}

/// Returns the lines and the names of guards in such calls.
fn find(text: &str) -> Vec<(usize, &str)> {
    let guards: BTreeSet<_> = guards(text).collect();
    let (mut own, mut found) = ("", Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        if line.starts_with("impl") {
            own = implemented(line);
        }
        for (at, call) in EAGER.iter().flat_map(|call| line.match_indices(call)) {
            let name = match first_word(line.get(at + call.len()..).unwrap_or_default()) {
                "Self" => own,
                name => name,
            };
            if guards.contains(name) {
                found.push((number, name));
            }
        }
    }
    found
}

/// Returns the type in the first line of an `impl`.
fn implemented(line: &str) -> &str {
    let rest = line.strip_prefix("impl").unwrap_or_default();
    let rest = match rest.strip_prefix('<') {
        Some(generic) => generic.split_once("> ").map_or("", |(_, rest)| rest),
        None => rest,
    };
    first_word(rest.rsplit_once(" for ").map_or(rest, |(_, name)| name).trim_start())
}

fn first_word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_for_eager_calls_are_found() {
        let text = [
            "impl<'a> Lock<'a> {",
            "    (locked != 0).then_some(Self { device })",
            "    (locked != 0).then(|| Self { device })",
            "}",
            "impl Drop for Lock<'_> {",
            "}",
            "impl Plain {",
            "    yes.then_some(Self)",
            "    locked.unwrap_or(Lock { device })",
            "}",
        ];
        assert_eq!(find(&text.join("\n")), [(2, "Lock"), (9, "Lock")]);
    }
}
