//! The modules of a crate, and the modules that each of them uses. Code for tests is left out: it
//! may use any module.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::files;

/// The name of a module, starting at the crate's root. The name of the root is empty.
pub(crate) type Name = Vec<String>;

pub(crate) struct Module {
    pub(crate) name: Name,
    /// Modules of the same crate that it uses by paths that begin with `crate`, `super` or `self`.
    pub(crate) uses: Vec<Name>,
    /// True if its own file has `unsafe` in code.
    pub(crate) has_unsafe: bool,
}

/// A crate's modules.
pub(crate) struct Tree {
    pub(crate) modules: Vec<Module>,
}

/// A module's declaration in its parent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Declared {
    pub(crate) name: String,
    /// The value of a `path` attribute.
    path: Option<String>,
    /// True if the module has no separate file.
    pub(crate) inline: bool,
    pub(crate) test: bool,
}

/// Returns the root files of all crates and kernel modules: the files that no other file declares
/// as a module.
pub(crate) fn roots() -> Vec<PathBuf> {
    let files = files::with_extension("rs");
    let children = |file: &PathBuf| {
        let declared = declared(&code(&files::text(file)));
        let apart = declared.into_iter().filter(|child| !child.inline);
        let folder = folder(file, &files);
        apart.map(|child| place(&child, file, &folder).0).collect::<Vec<_>>()
    };
    let declared: BTreeSet<_> = files.iter().flat_map(children).collect();
    files.iter().filter(|file| named_root(file) || !declared.contains(*file)).cloned().collect()
}

/// Returns true for the root of a library, a program or a kernel module. Returns false for the root
/// of a test, of a build script and the like.
pub(crate) fn is_product(root: &Path) -> bool {
    let source = root.iter().any(|part| part == "src");
    source || root.starts_with("driver")
}

/// Returns true if cargo considers a file a root because of its name. Such a file can also be a
/// module of another crate.
fn named_root(file: &Path) -> bool {
    let named = file.ends_with("src/lib.rs") || file.ends_with("src/main.rs");
    named || file.file_name().is_some_and(|name| name == "main.rs")
}

/// Returns the folder with the modules that a file declares. If the file is a root or a `mod.rs`,
/// they are in its own folder, otherwise in a folder with the name of the file.
fn folder(file: &Path, files: &[PathBuf]) -> PathBuf {
    let below = file.with_extension("");
    let own = !file.ends_with("mod.rs") && files.iter().any(|other| other.starts_with(&below));
    if own { below } else { file.parent().expect("a folder").to_owned() }
}

impl Tree {
    /// Reads the crate with this root file.
    pub(crate) fn read(root: &Path) -> Self {
        let mut found = Vec::new();
        collect(root, root.parent().expect("a folder"), Vec::new(), &mut found);
        let names: Vec<_> = found.iter().map(|(name, _)| name.clone()).collect();
        let modules = found.into_iter().map(|(name, code)| {
            let paths = paths(&code);
            let mut uses: Vec<_> = paths.iter().map(|path| resolve(&name, path, &names)).collect();
            uses.sort();
            uses.dedup();
            Module { name, uses, has_unsafe: has_unsafe(&code) }
        });
        Self { modules: modules.collect() }
    }

    /// Returns the names of a module's children.
    pub(crate) fn children(&self, parent: &[String]) -> Vec<&str> {
        let child = |module: &'_ Module| module.name.len() == parent.len() + 1;
        let below = self.modules.iter().filter(|module| module.name.starts_with(parent));
        below
            .filter(|module| child(module))
            .filter_map(|module| module.name.last())
            .map(String::as_str)
            .collect()
    }
}

/// Reads the code of a module and of the modules below it. `folder` contains the files of its
/// children.
fn collect(file: &Path, folder: &Path, name: Name, found: &mut Vec<(Name, String)>) {
    let code = code(&files::text(file));
    for child in declared(&code).into_iter().filter(|child| !child.test && !child.inline) {
        let (at, below) = place(&child, file, folder);
        let name = [name.as_slice(), &[child.name]].concat();
        collect(&at, &below, name, found);
    }
    found.push((name, code));
}

/// Returns the file of a module that `file` declares, and the folder with the files of its
/// children. `folder` contains the files of the modules that `file` declares.
fn place(child: &Declared, file: &Path, folder: &Path) -> (PathBuf, PathBuf) {
    if let Some(path) = &child.path {
        // A path is relative to the folder of the file that declares it.
        let at = normal(&file.parent().expect("a folder").join(path));
        let below = at.parent().expect("a folder").to_owned();
        return (at, below);
    }
    let below = folder.join(&child.name);
    let flat = folder.join(format!("{}.rs", child.name));
    (if files::top().join(&flat).exists() { flat } else { below.join("mod.rs") }, below)
}

/// Removes `..` from a path.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.iter() {
        if part == ".." {
            normal.pop();
        } else {
            normal.push(part);
        }
    }
    normal
}

/// Returns the code of a file without comments, and without the module of tests at its end.
pub(crate) fn code(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let line = line.trim();
        let tests = |next: &&str| next.starts_with("mod ") && next.ends_with('{');
        if line == "#[cfg(test)]" && lines.peek().is_some_and(tests) {
            break;
        }
        if !line.starts_with("//") {
            code.push_str(line.split(" // ").next().unwrap_or_default());
            code.push('\n');
        }
    }
    code
}

/// Returns the modules that code declares.
pub(crate) fn declared(code: &str) -> Vec<Declared> {
    let mut found = Vec::new();
    let (mut path, mut test) = (None, false);
    for line in code.lines() {
        if let Some(value) = line.strip_prefix("#[path = \"") {
            path = value.split('"').next().map(str::to_owned);
        } else if line.starts_with("#[cfg(test)]") {
            test = true;
        } else if !line.starts_with("#[") && !line.is_empty() {
            let bare = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub(super) "));
            let bare = bare.or(line.strip_prefix("pub ")).unwrap_or(line);
            let name = bare.strip_prefix("mod ").unwrap_or_default();
            let (file, inline) = (name.strip_suffix(';'), name.strip_suffix(" {"));
            if let Some(name) = file.or(inline) {
                let (name, inline) = (name.to_owned(), inline.is_some());
                found.push(Declared { name, path: path.take(), inline, test });
            }
            (path, test) = (None, false);
        }
    }
    found
}

/// Returns the paths in code that begin with `crate`, `super` or `self`. Paths in braces are
/// returned separately.
fn paths(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back().unwrap_or(' ');
            if !is_word(before) && before != ':' && before != '$' {
                path(&mut code[at..].chars().peekable(), &mut Vec::new(), &mut found);
            }
        }
    }
    found
}

/// Reads a path, or several paths in braces, after `prefix`.
fn path(
    rest: &mut std::iter::Peekable<std::str::Chars<'_>>,
    prefix: &mut Vec<String>,
    found: &mut Vec<Vec<String>>,
) {
    let depth = prefix.len();
    loop {
        let mut word = String::new();
        while let Some(letter) = rest.next_if(|letter| is_word(*letter)) {
            word.push(letter);
        }
        if !word.is_empty() {
            prefix.push(word);
        }
        // Two colons continue a path.
        if rest.next_if_eq(&':').is_some() && rest.next_if_eq(&':').is_some() {
            if rest.next_if_eq(&'{').is_some() {
                group(rest, prefix, found);
                break;
            }
            continue;
        }
        found.push(prefix.clone());
        break;
    }
    prefix.truncate(depth);
}

/// Reads the paths in braces, up to the closing brace.
fn group(
    rest: &mut std::iter::Peekable<std::str::Chars<'_>>,
    prefix: &mut Vec<String>,
    found: &mut Vec<Vec<String>>,
) {
    loop {
        while rest.next_if(|letter| letter.is_whitespace() || *letter == ',').is_some() {}
        match rest.peek() {
            None => break,
            Some('}') => {
                rest.next();
                break;
            }
            Some(_) => path(rest, prefix, found),
        }
        // The text after a path: `as name`, or `*`.
        while rest.next_if(|letter| *letter != ',' && *letter != '}').is_some() {}
    }
}

/// Returns true if code has the keyword `unsafe`.
fn has_unsafe(code: &str) -> bool {
    code.match_indices("unsafe").any(|(at, word)| {
        let before = code[..at].chars().next_back().unwrap_or(' ');
        let behind = code[at + word.len()..].chars().next().unwrap_or(' ');
        before.is_whitespace() | "([=>,{".contains(before) && behind.is_whitespace()
    })
}

pub(crate) fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Returns the module of a crate that a path in the module `from` leads to, or through.
fn resolve(from: &[String], path: &[String], names: &[Name]) -> Name {
    let mut at = from.to_vec();
    for word in path {
        match word.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => drop(at.pop()),
            _ => {
                at.push(word.clone());
                if !names.contains(&at) {
                    at.pop();
                    break;
                }
            }
        }
    }
    at
}

#[test]
fn paths_are_found_and_resolved() {
    let text = "use crate::{a::{B, c::D}, e as f, g::*};\nuse super::h::I; // super::no::j\n/// crate::no\n\
                fn k() { self::l::m(); $crate::no::n(); }\n#[cfg(test)]\nmod tests {\nuse crate::no;\n}\n";
    let mut found: Vec<_> = paths(&code(text)).iter().map(|path| path.join("::")).collect();
    found.sort();
    let wanted =
        ["crate::a::B", "crate::a::c::D", "crate::e", "crate::g", "self::l::m", "super::h::I"];
    assert_eq!(found, wanted);
    let name = |text: &str| text.split("::").map(str::to_owned).collect::<Name>();
    let names = [name("a"), name("a::c"), name("a::b")];
    assert_eq!(resolve(&name("a::b"), &name("crate::a::c::D"), &names), name("a::c"));
    assert_eq!(resolve(&name("a::b"), &name("super::c::D"), &names), name("a::c"));
    assert_eq!(resolve(&name("a::b"), &name("super::X"), &names), name("a"));
}

#[test]
fn declarations_are_found() {
    let code = code(
        "pub mod a;\n#[cfg(test)]\nmod tests;\n#[path = \"../x.rs\"]\npub(crate) mod b;\nmod c {\n}\n",
    );
    let declared = declared(&code);
    let names: Vec<_> = declared.iter().map(|child| (child.name.as_str(), child.test)).collect();
    assert_eq!(names, [("a", false), ("tests", true), ("b", false), ("c", false)]);
    assert_eq!(declared[2].path.as_deref(), Some("../x.rs"));
}

#[test]
fn unsafe_code_is_found() {
    assert!(has_unsafe(&code("fn a() {\n    let b = unsafe { c() };\n}\n")));
    assert!(has_unsafe(&code("d(unsafe { c() });\nunsafe impl Send for E {}\n")));
    let without = "#![forbid(unsafe_code)]\n/// This is unsafe code.\nfn f() {} // unsafe {}\n";
    assert!(!has_unsafe(&code(without)));
}
