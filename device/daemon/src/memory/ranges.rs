//! The ranges of guest addresses that a VMM has mapped, as a B+ tree whose versions share the nodes
//! that are equal.
//!
//! A guest with an IOMMU maps its memory page by page. There can be millions of ranges, and each
//! change must be cheap. A change copies the nodes on the way from the root to the changed leaf,
//! and leaves the previous version as it was, because workers may still use it. A guest without an
//! IOMMU has so few ranges that one leaf holds them all.

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::mapping::Mapping;

/// Maximum number of ranges of a leaf, or of children of an inner node.
const FANOUT: usize = 64;
/// Two neighbours that have no more than this many together become one node.
const MERGE_MAX: usize = FANOUT * 3 / 4;

/// A range of guest addresses.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// First address.
    pub(super) first: u64,
    /// Last address, inclusive.
    pub(super) last: u64,
    /// True if the device may read.
    pub(super) readable: bool,
    /// True if the device may write.
    pub(super) writable: bool,
    /// Offset of the first address in `memory`.
    pub(super) base: usize,
    /// The memory. A range of a VMM has one if the VMM gave a file.
    pub(super) memory: Option<Arc<Mapping>>,
}

impl Entry {
    /// Returns whether `addr` is inside of this range.
    #[inline]
    fn holds(&self, addr: u64) -> bool {
        self.first <= addr && addr <= self.last
    }

    /// Returns whether `next` begins where this range ends, in addresses and in memory, and allows
    /// the same accesses. The two can then be one range.
    pub(super) fn continues_in(&self, next: &Self) -> bool {
        let follows = match (&self.memory, &next.memory) {
            (None, None) => true,
            (Some(own), Some(other)) => {
                let len = (next.first - self.first) as usize;
                Arc::ptr_eq(own, other) && self.base.checked_add(len) == Some(next.base)
            }
            _ => false,
        };
        self.last.checked_add(1) == Some(next.first)
            && (self.readable, self.writable) == (next.readable, next.writable)
            && follows
    }

    /// Returns the part of this range below `addr`, if there is any.
    pub(super) fn below(&self, addr: u64) -> Option<Self> {
        let last = addr.checked_sub(1).filter(|last| *last >= self.first)?;
        Some(Self { last: last.min(self.last), ..self.clone() })
    }

    /// Returns the part of this range above `addr`, if there is any.
    pub(super) fn above(&self, addr: u64) -> Option<Self> {
        let first = addr.checked_add(1).filter(|first| *first <= self.last)?;
        let first = first.max(self.first);
        // The offset of an address of the range is an offset in memory, which fits.
        let base = self.base + (first - self.first) as usize;
        Some(Self { first, base, ..self.clone() })
    }
}

/// A version of the ranges, sorted by address, without overlap.
#[derive(Clone, Debug)]
pub(super) struct Ranges {
    root: Node,
}

/// A part of the tree. All leaves have the same depth. No node but an empty root is empty, and two
/// neighbours below one parent have more than [`MERGE_MAX`] ranges or children together, so the
/// depth is at most the logarithm of the number of ranges to the base [`MERGE_MAX`] / 2.
#[derive(Clone, Debug)]
enum Node {
    Leaf(Arc<[Entry]>),
    Inner(Arc<[Child]>),
}

#[derive(Clone, Debug)]
struct Child {
    /// Last address of its last range.
    last: u64,
    /// Number of its ranges.
    count: usize,
    node: Node,
}

impl Default for Ranges {
    fn default() -> Self {
        Self { root: Node::Leaf(Arc::default()) }
    }
}

impl Ranges {
    /// Returns the number of ranges.
    pub(super) fn len(&self) -> usize {
        self.root.count()
    }

    /// Returns the range that contains `addr`. `place` is the place of the previous result in its
    /// leaf, where the search begins.
    #[inline(always)]
    pub(super) fn find(&self, addr: u64, place: &Cell<usize>) -> Option<&Entry> {
        if let Node::Leaf(entries) = &self.root
            && let Some(entry) = entries.get(place.get())
            && entry.holds(addr)
        {
            return Some(entry);
        }
        self.search(addr, place)
    }

    /// Returns the range that contains `addr`, and sets `place` to its place in its leaf.
    #[inline(never)]
    fn search(&self, addr: u64, place: &Cell<usize>) -> Option<&Entry> {
        let leaf = self.leaf(addr)?;
        let at = match leaf.get(place.get()) {
            Some(entry) if entry.holds(addr) => place.get(),
            _ => leaf.partition_point(|entry| entry.last < addr),
        };
        place.set(at);
        leaf.get(at).filter(|entry| entry.holds(addr))
    }

    /// Returns the range that contains `addr`.
    pub(super) fn at(&self, addr: u64) -> Option<&Entry> {
        self.find(addr, &Cell::new(0))
    }

    /// Returns the first range that intersects `span`.
    pub(super) fn first_in(&self, span: &RangeInclusive<u64>) -> Option<&Entry> {
        let leaf = self.leaf(*span.start())?;
        let entry = leaf.get(leaf.partition_point(|entry| entry.last < *span.start()))?;
        (entry.first <= *span.end()).then_some(entry)
    }

    /// Returns the leaf of the first range that does not end before `addr`.
    fn leaf(&self, addr: u64) -> Option<&[Entry]> {
        let mut node = &self.root;
        loop {
            match node {
                Node::Leaf(entries) => return Some(entries),
                Node::Inner(children) => {
                    let at = children.partition_point(|child| child.last < addr);
                    node = &children.get(at)?.node;
                }
            }
        }
    }

    /// Removes all ranges that intersect `span`, and adds `new` ranges. These are sorted, and lie
    /// in `span` or in what was removed.
    pub(super) fn splice(&mut self, span: &RangeInclusive<u64>, new: Vec<Entry>) {
        let mut nodes = self.root.splice(span, new);
        self.root = match (nodes.pop(), nodes.is_empty()) {
            (None, _) => Node::Leaf(Arc::default()),
            (Some(only), true) => only,
            (Some(last), false) => {
                nodes.push(last);
                Node::Inner(nodes.into_iter().map(Child::of).collect())
            }
        };
        while let Node::Inner(children) = &self.root
            && let [only] = &**children
        {
            self.root = only.node.clone();
        }
    }
}

impl Node {
    /// Returns the number of ranges.
    fn count(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Inner(children) => children.iter().map(|child| child.count).sum(),
        }
    }

    /// Returns the number of ranges of a leaf, or of children of an inner node.
    fn width(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Inner(children) => children.len(),
        }
    }

    /// Returns the nodes that replace this one: none if nothing is left, or up to two. See
    /// [`Ranges::splice`].
    fn splice(&self, span: &RangeInclusive<u64>, mut new: Vec<Entry>) -> Vec<Self> {
        let (first, last) = (*span.start(), *span.end());
        match self {
            Self::Leaf(entries) => {
                let before = entries.partition_point(|entry| entry.last < first);
                let after = entries.partition_point(|entry| entry.first <= last);
                let mut all = Vec::with_capacity(entries.len() + new.len());
                all.extend(entries.iter().take(before).cloned());
                all.append(&mut new);
                all.extend(entries.iter().skip(after).cloned());
                split(all).map(Self::Leaf).collect()
            }
            Self::Inner(children) => {
                // The first and the last child that the change concerns. Those between them hold
                // nothing but removed ranges.
                let rightmost = children.len().saturating_sub(1);
                let place = |addr| children.partition_point(|child| child.last < addr);
                let (left, right) = (place(first).min(rightmost), place(last).min(rightmost));
                let mut all = Vec::with_capacity(children.len() + 2);
                for (at, child) in children.iter().enumerate() {
                    if at < left || at > right {
                        push(&mut all, child.clone());
                    } else if at == left || at == right {
                        let nodes = child.node.splice(span, std::mem::take(&mut new));
                        nodes.into_iter().for_each(|node| push(&mut all, Child::of(node)));
                    }
                }
                split(all).map(Self::Inner).collect()
            }
        }
    }

    /// Joins two neighbours of the same depth.
    fn join(&self, next: &Self) -> Option<Self> {
        match (self, next) {
            (Self::Leaf(own), Self::Leaf(other)) => {
                Some(Self::Leaf(own.iter().chain(&**other).cloned().collect()))
            }
            (Self::Inner(own), Self::Inner(other)) => {
                let mut all = Vec::with_capacity(own.len() + other.len());
                own.iter().chain(&**other).for_each(|child| push(&mut all, child.clone()));
                Some(Self::Inner(all.into()))
            }
            _ => None,
        }
    }
}

impl Child {
    fn of(node: Node) -> Self {
        let last = match &node {
            Node::Leaf(entries) => entries.last().map(|entry| entry.last),
            Node::Inner(children) => children.last().map(|child| child.last),
        };
        Self { last: last.unwrap_or(0), count: node.count(), node }
    }
}

/// Appends a child, and joins it with the one before it if the two are small.
fn push(children: &mut Vec<Child>, child: Child) {
    if let Some(before) = children.last_mut()
        && before.node.width() + child.node.width() <= MERGE_MAX
        && let Some(joined) = before.node.join(&child.node)
    {
        *before = Child::of(joined);
    } else {
        children.push(child);
    }
}

/// Makes one node of `all`, two if there are too many for one, or none.
fn split<T>(mut all: Vec<T>) -> impl Iterator<Item = Arc<[T]>> {
    let more = if all.len() > FANOUT { all.split_off(all.len() / 2) } else { Vec::new() };
    [all, more].into_iter().filter(|part| !part.is_empty()).map(Arc::from)
}

#[cfg(test)]
mod tests;
