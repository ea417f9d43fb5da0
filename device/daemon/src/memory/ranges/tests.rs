//! Shows: memory: memory that is mapped page by page: adjoining pages, scattered pages, parts that
//! are unmapped

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Returns a range without memory. Adjacent ranges are not joined here, since only the table does
/// that.
fn entry(first: u64, last: u64) -> Entry {
    Entry { first, last, readable: true, writable: true, base: 0, memory: None }
}

/// Checks the shape of a part of the tree, and returns its depth and appends its ranges.
fn walk(node: &Node, is_root: bool, into: &mut Vec<(u64, u64)>) -> usize {
    assert!(node.width() <= FANOUT);
    match node {
        Node::Leaf(entries) => {
            assert!(is_root || !entries.is_empty());
            into.extend(entries.iter().map(|entry| (entry.first, entry.last)));
            1
        }
        Node::Inner(children) => {
            assert!(children.len() > usize::from(is_root), "a root with one child");
            let widths: Vec<_> = children.iter().map(|child| child.node.width()).collect();
            assert!(widths.windows(2).all(|pair| pair.iter().sum::<usize>() > MERGE_MAX));
            let mut depths: Vec<_> = children
                .iter()
                .map(|child| {
                    let before = into.len();
                    let depth = walk(&child.node, false, into);
                    assert_eq!(child.count, into.len() - before);
                    assert_eq!(into.last().map(|(_, last)| *last), Some(child.last));
                    depth
                })
                .collect();
            depths.dedup();
            assert_eq!(depths.len(), 1, "leaves of one depth");
            1 + depths[0]
        }
    }
}

/// Returns the depth and the ranges.
fn contents(ranges: &Ranges) -> (usize, Vec<(u64, u64)>) {
    let mut all = Vec::new();
    let depth = walk(&ranges.root, true, &mut all);
    assert_eq!(all.len(), ranges.len());
    (depth, all)
}

#[test]
fn a_tree_of_many_ranges_is_shallow_in_any_order_of_changes() {
    const COUNT: u64 = 20_000;
    // Steps without a factor in common with the number reach every place.
    for step in [1, 19_999, 4_487] {
        let mut ranges = Ranges::default();
        for at in (0..COUNT).map(|n| n * step % COUNT * 10) {
            ranges.splice(&(at..=at), vec![entry(at, at)]);
        }
        let (depth, all) = contents(&ranges);
        assert!(all.len() as u64 == COUNT && depth <= 4, "{depth}");
        // All but one in a thousand go one by one, and the tree becomes small.
        for at in (0..COUNT).map(|n| n * step % COUNT).filter(|at| !at.is_multiple_of(1000)) {
            ranges.splice(&(at * 10..=at * 10), Vec::new());
        }
        let (depth, all) = contents(&ranges);
        assert!(all.len() == 20 && depth <= 2, "{depth}");
    }
}

#[test]
fn a_version_stays_as_it_was() {
    let mut ranges = Ranges::default();
    for at in 0..1000 {
        ranges.splice(&(at..=at), vec![entry(at, at)]);
    }
    let before = ranges.clone();
    ranges.splice(&(100..=899), Vec::new());
    assert_eq!((before.len(), ranges.len()), (1000, 200));
    assert!(before.at(500).is_some() && ranges.at(500).is_none());
    contents(&before);
    contents(&ranges);
}

#[test]
fn a_part_of_a_range_keeps_its_place_in_memory() {
    let whole = Entry { base: 1000, ..entry(100, 199) };
    assert_eq!(whole.below(150).map(|e| (e.first, e.last, e.base)), Some((100, 149, 1000)));
    assert_eq!(whole.above(150).map(|e| (e.first, e.last, e.base)), Some((151, 199, 1051)));
    assert!(whole.below(100).is_none() && whole.above(199).is_none());
    let (top, bottom) = (entry(u64::MAX - 1, u64::MAX), entry(0, 1));
    assert!(top.above(u64::MAX).is_none() && bottom.below(0).is_none());
    assert!(!top.continues_in(&bottom));
}

proptest! {
    /// The same changes are made to the tree and to a map of the standard library.
    #[test]
    fn the_tree_agrees_with_an_ordered_map(
        changes in proptest::collection::vec((0u64..4000, 1u64..300, 0u8..8), 1..800),
        looks in proptest::collection::vec(0u64..4500, 50),
    ) {
        let mut ranges = Ranges::default();
        let mut model = BTreeMap::new();
        for (first, len, kind) in changes {
            // Mostly small ranges are added; some spans of any length are removed.
            let last = first + if kind == 0 { len * 5 } else { len % 4 };
            let inside = |(from, to): (&u64, &u64)| *from <= last && *to >= first;
            let met: Vec<_> = model.iter().filter(|(from, to)| inside((from, to)))
                .map(|(from, to)| (*from, *to)).collect();
            let found = ranges.first_in(&(first..=last)).map(|entry| entry.first);
            prop_assert_eq!(found, met.first().map(|met| met.0));
            met.iter().for_each(|met| { model.remove(&met.0); });
            let mut new = Vec::new();
            if kind > 0 {
                new.push((first, last));
            } else {
                new.extend(met.first().filter(|met| met.0 < first).map(|met| (met.0, first - 1)));
                new.extend(met.last().filter(|met| met.1 > last).map(|met| (last + 1, met.1)));
            }
            model.extend(new.iter().copied());
            let new = new.into_iter().map(|(first, last)| entry(first, last)).collect();
            ranges.splice(&(first..=last), new);
        }
        let expected: Vec<_> = model.iter().map(|(first, last)| (*first, *last)).collect();
        prop_assert_eq!(contents(&ranges).1, expected);
        let place = Cell::new(0);
        for addr in looks {
            let held = model.range(..=addr).next_back().filter(|(_, last)| **last >= addr);
            let found = ranges.find(addr, &place).map(|entry| entry.first);
            prop_assert_eq!(found, held.map(|(first, _)| *first));
        }
    }
}
