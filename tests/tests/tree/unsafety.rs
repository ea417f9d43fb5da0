//! The modules with `unsafe` that a crate's root names, compared with the crate's modules.
//!
//! If a crate has no such modules, its root forbids `unsafe`. Otherwise a sentence of the root's
//! documentation names them, or modules above them: "`unsafe` is confined to [`a`] and `b::c`." If
//! most modules have `unsafe`, the sentence names the others: "`unsafe` is in all modules but
//! [`a`]." The root itself is called `crate` there.

use std::path::Path;

use crate::files;
use crate::modules::{Module, Name, Tree};

/// The beginning of a sentence that names the modules with `unsafe`.
const CONFINED: &str = "`unsafe` is confined to ";
/// The beginning of a sentence that names the modules without `unsafe`.
const EXCEPT: &str = "`unsafe` is in all modules but ";
/// The attribute of a root without `unsafe`.
const FORBID: &str = "#![forbid(unsafe_code)]";
/// The macro of a kernel module, whose expansion has `unsafe`.
const KERNEL: &str = "module! {";

/// Returns the faults of a root's sentence.
pub(crate) fn check(root: &Path) -> Vec<String> {
    let wrong = compare(&files::text(root), &Tree::read(root).modules);
    wrong.into_iter().map(|wrong| format!("{}: {wrong}", root.display())).collect()
}

fn compare(text: &str, modules: &[Module]) -> Vec<String> {
    let line = |wanted: &str| text.lines().any(|line| line == wanted);
    let (with, without): (Vec<_>, Vec<_>) = modules.iter().partition(|module| module.has_unsafe);
    if let Some(except) = named(text, EXCEPT) {
        let not_named = |module: &&&Module| !covers(&except, &module.name);
        let wrong = with.iter().filter(|module| !not_named(module));
        let wrong = wrong.map(|module| format!("'{}' has `unsafe`", path(&module.name)));
        let parent = |module: &Module| with.iter().any(|other| below(&other.name, &module.name));
        let missing = without.iter().filter(not_named);
        let missing = missing.filter(|module| !module.name.is_empty() && !parent(module));
        let missing = missing
            .map(|module| format!("'{}' has no `unsafe`, but is not named", path(&module.name)));
        return wrong.chain(missing).collect();
    }
    let Some(mut confined) = named(text, CONFINED) else {
        let open = with.is_empty() && !line(FORBID) && !line(KERNEL);
        let open = open.then(|| format!("`{FORBID}` is missing"));
        let silent =
            (!with.is_empty()).then(|| "the modules with `unsafe` are not named".to_owned());
        return open.into_iter().chain(silent).collect();
    };
    // Other crates may be named, too.
    confined.retain(|name| !line(&format!("use {};", path(name))));
    let missing = with.iter().filter(|module| !covers(&confined, &module.name));
    let missing =
        missing.map(|module| format!("'{}' has `unsafe`, but is not named", path(&module.name)));
    let empty = confined.iter().filter(|name| !with.iter().any(|module| below(&module.name, name)));
    let empty = empty.map(|name| format!("'{}' has no `unsafe`", path(name)));
    missing.chain(empty).collect()
}

/// Returns true if one of the names is the name of the module, or of a module above it.
fn covers(names: &[Name], module: &[String]) -> bool {
    names.iter().any(|name| below(module, name))
}

/// Returns true if a module has the name, or is below the module that has it. The name of the root
/// means only the root.
fn below(module: &[String], name: &[String]) -> bool {
    module.starts_with(name) && (module.is_empty() || !name.is_empty())
}

/// Returns the modules that the sentence with this beginning names, if there is one.
fn named(text: &str, beginning: &str) -> Option<Vec<Name>> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("//!")).map(str::trim);
    let prose = lines.collect::<Vec<_>>().join(" ");
    let (_, behind) = prose.split_once(beginning)?;
    let sentence = behind.split_once('.').map_or(behind, |(sentence, _)| sentence);
    let name = |name: &str| {
        name.split("::").filter(|word| *word != "crate").map(str::to_owned).collect::<Name>()
    };
    Some(sentence.split('`').skip(1).step_by(2).map(name).collect())
}

fn path(name: &[String]) -> String {
    if name.is_empty() { "crate".to_owned() } else { name.join("::") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(names: &[(&str, bool)]) -> Vec<Module> {
        let module = |(name, has_unsafe): &(&str, bool)| Module {
            name: name.split("::").filter(|word| !word.is_empty()).map(str::to_owned).collect(),
            uses: Vec::new(),
            has_unsafe: *has_unsafe,
        };
        names.iter().map(module).collect()
    }

    #[test]
    fn modules_with_unsafe_are_compared() {
        let text = "//! A crate.\n//! `unsafe` is confined to [`a`],\n//! `b::c`, `k`. More of `d`.\nuse k;\n";
        let right = modules(&[("", false), ("a::x", true), ("b", false), ("b::c", true)]);
        assert!(compare(text, &right).is_empty());
        let wrong = compare(text, &modules(&[("", true), ("a", true), ("b", true)]));
        let wanted = [
            "'crate' has `unsafe`, but is not named",
            "'b' has `unsafe`, but is not named",
            "'b::c' has no `unsafe`",
        ];
        assert_eq!(wrong, wanted);
        let root = "//! `unsafe` is confined to `crate`.\n";
        assert!(compare(root, &modules(&[("", true)])).is_empty());
    }

    #[test]
    fn modules_without_unsafe_are_compared() {
        let text = "//! `unsafe` is in all modules but [`a`].\n";
        let right = modules(&[("", false), ("a", false), ("b", false), ("b::c", true)]);
        assert!(compare(text, &right).is_empty());
        let wrong = compare(text, &modules(&[("a", true), ("b", false)]));
        assert_eq!(wrong, ["'a' has `unsafe`", "'b' has no `unsafe`, but is not named"]);
    }

    #[test]
    fn roots_without_unsafe_forbid_it() {
        let safe = modules(&[("", false)]);
        assert!(compare("#![forbid(unsafe_code)]\n", &safe).is_empty());
        assert!(compare("module! {\n", &safe).is_empty());
        assert_eq!(compare("//! A crate.\n", &safe), ["`#![forbid(unsafe_code)]` is missing"]);
        let wrong = compare("//! A crate.\n", &modules(&[("a", true)]));
        assert_eq!(wrong, ["the modules with `unsafe` are not named"]);
    }
}
