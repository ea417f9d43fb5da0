//! Names that a reader of the repository cannot find in it: tests and other names that documents
//! mention, and numbers of lists that are not in the repository.

use std::collections::BTreeSet;

use crate::files;

/// Names in programs of others that have the form of names of tests.
const OTHERS: [&str; 4] = [
    "alloc_multi_pd_mr_from_je",
    "handle_command",
    "ibv_query_qp_data_in_order",
    "virtio_gpu_vram_map_dma_buf",
];
/// Extensions of the files that have the names.
const SOURCES: [&str; 4] = ["rs", "c", "h", "toml"];
/// A name of as many words is that of a test.
const WORDS: usize = 6;
/// Annexes of the InfiniBand specification, and a state of power of PCI devices.
const KNOWN: [&str; 4] = ["A14", "A17", "A19", "D0"];
/// Files whose comments begin with these characters.
const COMMENTS: [(&str, &[&str]); 4] =
    [("rs", &["//"]), ("c", &["//", "/*", "*"]), ("h", &["//", "/*", "*"]), ("md", &[""])];

/// Returns the names in documents that no source has: paths of Rust, and names of six words.
pub(crate) fn unknown() -> Vec<String> {
    let sources = SOURCES.iter().flat_map(|extension| files::with_extension(extension));
    let texts: Vec<_> = sources.map(|file| files::text(&file)).collect();
    let words: BTreeSet<_> = texts.iter().flat_map(|text| text.split(is_no_name)).collect();
    let found = files::with_extension("md").into_iter().flat_map(|file| {
        let unknown = unknown_in(&files::text(&file), &words);
        unknown.into_iter().map(|name| format!("{}: {name}", file.display())).collect::<Vec<_>>()
    });
    found.collect()
}

/// Returns the names in backquotes that are not among `words`. A name that ends with `*` stands for
/// all that begin like it.
fn unknown_in(document: &str, words: &BTreeSet<&str>) -> Vec<String> {
    let quoted = document.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_other = |letter| is_no_name(letter) && letter != ':' && letter != '*';
    let is_name = |text: &&str| !text.is_empty() && !text.contains(is_other);
    let is_test = |text: &&str| text.contains("::") || text.split('_').count() >= WORDS;
    let is_known = |part: &str| match part.strip_suffix('*') {
        Some(begin) => words.range(begin..).next().is_some_and(|word| word.starts_with(begin)),
        None => words.contains(part) || OTHERS.contains(&part),
    };
    let names = quoted.filter(is_name).filter(is_test);
    names.filter(|name| !name.split("::").all(is_known)).map(str::to_owned).collect()
}

/// Returns the words in documents and comments that are a capital letter and a number, which only a
/// list could explain.
pub(crate) fn numbers() -> Vec<String> {
    let mut found = Vec::new();
    for (extension, begins) in COMMENTS {
        for file in files::with_extension(extension) {
            for (number, line) in (1..).zip(files::text(&file).lines()) {
                let is_comment = begins.iter().any(|begin| line.trim_start().starts_with(begin));
                if is_comment {
                    let numbers = numbers_in(line);
                    found.extend(numbers.map(|of| format!("{}:{number}: {of}", file.display())));
                }
            }
        }
    }
    found
}

/// Returns the words of a line that are a capital letter and a number.
fn numbers_in(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|letter| is_no_name(letter) && letter != '-');
    let is_number = |word: &&str| {
        let digits = word.strip_prefix(|of: char| of.is_ascii_uppercase()).unwrap_or_default();
        matches!(digits.len(), 1..=3) && digits.bytes().all(|digit| digit.is_ascii_digit())
    };
    words.filter(is_number).filter(|word| !KNOWN.contains(word))
}

fn is_no_name(letter: char) -> bool {
    !letter.is_alphanumeric() && letter != '_'
}

#[test]
fn names_that_nothing_has_are_found() {
    let words = BTreeSet::from(["keys", "a_test_of_some_keys", "begins_with"]);
    let text = "`keys::begins_*`, `keys::a_test_of_some_keys`, `keys::gone`, `keys::gone_*`, `a/b::c`\n\
                `a_name_of_five_words`, `a_name_of_just_six_words` a_name_of_just_six_words\n";
    assert_eq!(
        unknown_in(text, &words),
        ["keys::gone", "keys::gone_*", "a_name_of_just_six_words"]
    );
}

#[test]
fn numbers_of_lists_are_found() {
    let line = "/// X12, W3–W5 (A19; C9-88, x86, X1234, gcc -O2): [`Y7`], 1A2, I2C.";
    assert_eq!(numbers_in(line).collect::<Vec<_>>(), ["X12", "W3", "W5", "Y7"]);
}
