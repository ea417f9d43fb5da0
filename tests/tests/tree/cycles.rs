//! Modules that use each other.
//!
//! Among the children of one parent, a child includes all modules below it: A uses B if any module
//! of A uses any module of B. A cycle is a set of such siblings each of which leads to all others.
//! Uses between a module and its own parents do not count, because other modules see them as one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::modules::{Name, Tree};

/// Siblings that use each other.
#[derive(Debug)]
pub(crate) struct Cycle {
    parent: Name,
    pub(crate) members: Vec<String>,
    /// The uses between their modules.
    uses: Vec<(Name, Name)>,
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in '{}': {:?}", self.parent.join("::"), self.members)?;
        for (from, to) in &self.uses {
            write!(f, "\n    {} uses {}", from.join("::"), to.join("::"))?;
        }
        Ok(())
    }
}

/// Returns the cycles of a crate.
pub(crate) fn find(tree: &Tree) -> Vec<Cycle> {
    tree.modules.iter().flat_map(|parent| among_children(tree, &parent.name)).collect()
}

/// Returns the cycles among the children of a module.
fn among_children(tree: &Tree, parent: &Name) -> Vec<Cycle> {
    let children = tree.children(parent);
    let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut uses = Vec::new();
    for module in tree.modules.iter().filter(|module| module.name.starts_with(parent)) {
        let Some(from) = module.name.get(parent.len()) else { continue };
        for used in module.uses.iter().filter(|used| used.starts_with(parent)) {
            if let Some(to) = used.get(parent.len()).filter(|to| *to != from) {
                edges.entry(from).or_default().insert(to);
                uses.push((module.name.clone(), used.clone()));
            }
        }
    }
    let reached: BTreeMap<_, _> =
        children.iter().map(|child| (*child, reachable(child, &edges))).collect();
    let mut cycles: Vec<Cycle> = Vec::new();
    for child in &children {
        let seen = cycles.iter().any(|cycle| cycle.members.iter().any(|member| member == child));
        let back =
            |other: &&&str| reached[*child].contains(**other) && reached[**other].contains(*child);
        let members: Vec<_> = children.iter().filter(back).map(|name| (*name).to_owned()).collect();
        if !seen && members.len() > 1 {
            let inside =
                |name: &Name| name.get(parent.len()).is_some_and(|name| members.contains(name));
            let uses =
                uses.iter().filter(|(from, to)| inside(from) && inside(to)).cloned().collect();
            cycles.push(Cycle { parent: parent.clone(), members, uses });
        }
    }
    cycles
}

/// Returns the modules to which a module leads. The module itself is among them only if a cycle
/// leads back to it.
fn reachable<'a>(from: &'a str, edges: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(at) = next.pop() {
        for to in edges.get(at).into_iter().flatten() {
            if reached.insert(*to) {
                next.push(to);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::Module;

    fn tree(modules: &[(&str, &[&str])]) -> Tree {
        let name = |text: &str| {
            text.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect::<Name>()
        };
        let module = |(of, uses): &(&str, &[&str])| Module {
            name: name(of),
            uses: uses.iter().map(|used| name(used)).collect(),
            has_unsafe: false,
        };
        Tree { modules: modules.iter().map(module).collect() }
    }

    #[test]
    fn cycles_are_found() {
        // c is a folder. d uses items of its parent, which is not a cycle. d also leads back to a,
        // which is one.
        let tree = tree(&[
            ("", &[]),
            ("a", &["b"]),
            ("b", &["c"]),
            ("c", &["c::d", "c::e"]),
            ("c::d", &["c", "a", "c::e"]),
            ("c::e", &["c::d"]),
            ("f", &["a"]),
        ]);
        let found = find(&tree);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0].members, ["a", "b", "c"], "{}", found[0]);
        assert_eq!(found[1].members, ["d", "e"], "{}", found[1]);
        assert_eq!(found[0].uses.len(), 3, "{}", found[0]);
    }
}
