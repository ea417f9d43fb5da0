//! The manual pages of direct verbs, compared with the header: each call has one page, with the
//! declaration that the header has.

use std::path::{Path, PathBuf};

use crate::files;

/// The header with the calls.
const HEADER: &str = "provider/vrnicdv.h";
/// The folder of the pages. A page has the name of its first call.
const PAGES: &str = "provider/man";

/// Returns what is wrong with the pages.
pub(crate) fn check() -> Vec<String> {
    let header = files::text(Path::new(HEADER));
    let pages = files::with_extension("3").into_iter().filter(|page| page.starts_with(PAGES));
    let pages: Vec<_> = pages.map(|page| (page.clone(), files::text(&page))).collect();
    compare(&declarations(&header), &pages)
}

fn compare(calls: &[String], pages: &[(PathBuf, String)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for call in calls {
        let name = name(call);
        let having = |page: &&(PathBuf, String)| names(&page.1).any(|other| other == name);
        let mut with: Vec<_> = pages.iter().filter(having).collect();
        let Some((page, text)) = with.pop().filter(|_| with.is_empty()) else {
            wrong.push(format!("{name}: one page of {PAGES} must have it after .SH NAME"));
            continue;
        };
        if !spaced(text).contains(call) {
            wrong.push(format!("{}: the header declares '{call}'", page.display()));
        }
    }
    for (page, text) in pages {
        let unknown =
            names(text).filter(|name| !calls.iter().any(|call| self::name(call) == *name));
        wrong.extend(unknown.map(|name| format!("{}: {HEADER} has no {name}", page.display())));
        let first = names(text).next();
        if first != page.file_stem().and_then(|stem| stem.to_str()) {
            wrong.push(format!("{}: its name is not that of its first call", page.display()));
        }
    }
    wrong
}

/// Returns the declarations of the functions in a header, each in one line.
fn declarations(header: &str) -> Vec<String> {
    let begins = |line: &str| line.starts_with(|letter: char| letter.is_ascii_lowercase());
    let found = header.match_indices("vrnicdv_").filter_map(|(at, _)| {
        let start = header[..at].rfind('\n').map_or(0, |end| end + 1);
        let rest = &header[start..];
        let name = &header[at..];
        let named = name.find(|letter: char| !letter.is_ascii_lowercase() && letter != '_')?;
        let end = rest.find([';', '{'])?;
        let call = name[named..].starts_with('(') && begins(rest) && at < start + end;
        let text = rest[..end].strip_prefix("static inline ").unwrap_or(&rest[..end]);
        call.then(|| format!("{};", spaced(text.trim_end())))
    });
    found.collect()
}

/// Returns the name of the function that a declaration declares.
fn name(declaration: &str) -> &str {
    let before = declaration.split('(').next().unwrap_or_default();
    before.rsplit([' ', '*']).next().unwrap_or_default()
}

/// Returns the calls that a page is about: those in the line after its section `NAME`.
fn names(page: &str) -> impl Iterator<Item = &str> {
    let line = page.split(".SH NAME\n").nth(1).and_then(|rest| rest.lines().next());
    let names = line.and_then(|line| line.split(" \\- ").next()).unwrap_or_default();
    names.split(", ").filter(|name| !name.is_empty())
}

/// Returns text with one space wherever it has white space.
fn spaced(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn declarations_are_found() {
    let header = "/* vrnicdv_a() is none. */\nstruct vrnicdv_b { int c; };\n\
                  int vrnicdv_d(struct vrnicdv_b *b,\n\t\tint e);\n\
                  static inline struct f *vrnicdv_g(void)\n{\n\treturn vrnicdv_h(1);\n}\n";
    let found = declarations(header);
    assert_eq!(found, ["int vrnicdv_d(struct vrnicdv_b *b, int e);", "struct f *vrnicdv_g(void);"]);
    assert_eq!(found.iter().map(|call| name(call)).collect::<Vec<_>>(), ["vrnicdv_d", "vrnicdv_g"]);
}

#[test]
fn each_call_has_one_page() {
    let calls = ["int vrnicdv_a(int b);".to_owned(), "int vrnicdv_c(void);".to_owned()];
    let page = |file: &str, text: &str| (PathBuf::from(file), text.to_owned());
    let whole = ".SH NAME\nvrnicdv_a, vrnicdv_c \\- do\n.nf\nint vrnicdv_a(int\n    b);\nint vrnicdv_c(void);\n";
    assert!(compare(&calls, &[page("vrnicdv_a.3", whole)]).is_empty());
    let wrong = compare(&calls, &[page("vrnicdv_c.3", ".SH NAME\nvrnicdv_c, vrnicdv_d \\- do\n")]);
    assert_eq!(wrong.len(), 3, "{wrong:?}");
    let twice = [page("vrnicdv_a.3", whole), page("vrnicdv_c.3", whole)];
    assert_eq!(compare(&calls, &twice).len(), 3);
}
