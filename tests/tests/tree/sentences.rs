//! Doc comments that do not stand alone.
//!
//! A reader sees a doc comment by itself: in the editor, in rustdoc, or next to a declaration in
//! the middle of a file. A paragraph that begins with "It" or "They" makes the reader look for the
//! thing that is meant.

use crate::files;

/// Words with which no paragraph begins.
const WORDS: [&str; 4] = ["It", "Its", "They", "Those"];

/// Returns the places of the paragraphs that begin with such a word.
pub(crate) fn check() -> Vec<String> {
    let mut found = Vec::new();
    for file in files::with_extension("rs") {
        let lines = find(&files::text(&file)).into_iter();
        found.extend(lines.map(|line| format!("{}:{line}", file.display())));
    }
    found
}

/// Returns the lines with which such a paragraph begins.
fn find(text: &str) -> Vec<usize> {
    let (mut found, mut within) = (Vec::new(), false);
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start();
        let comment = line.strip_prefix("///").or(line.strip_prefix("//!")).map(str::trim);
        let first = comment.and_then(|comment| comment.split_whitespace().next());
        if !within && first.is_some_and(|word| WORDS.contains(&word)) {
            found.push(number);
        }
        within = comment.is_some_and(|comment| !comment.is_empty());
    }
    found
}

#[test]
fn paragraphs_without_a_noun_are_found() {
    let text = "//! It is a crate.\n\n/// A thing.\n///\n/// They are many. A list:\n/// Its end.\n\
                struct A;\n    /// Those\n    /// Italian.\n    b: u8, // It is.\n/// Its c.\nc: u8,\n";
    assert_eq!(find(text), [1, 5, 8, 11]);
    assert!(find("/// Items.\n/// It is.\n/// - They are.\n// It\n").is_empty());
}
