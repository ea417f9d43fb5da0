//! The pane table: ranges of the stream that have arrived out of order.

use arrayvec::ArrayVec;

use crate::seq::StreamPos;

/// Maximum number of panes of a connection.
pub(crate) const PANES: usize = 16;

/// The place of a pane's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The sink has placed them.
    Placed,
    /// The connection stores them.
    Buffered,
}

/// A range of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: StreamPos,
    pub(crate) end: StreamPos,
}

/// A range whose bytes have arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pane {
    pub(crate) range: Range,
    pub(crate) kind: Kind,
    /// The value of the counter of insertions when a segment last became part of the pane.
    touched: u64,
}

/// Panes in the order of their positions. They do not overlap, and adjacent panes of the same kind
/// are merged.
#[derive(Debug, Default)]
pub(crate) struct Panes {
    list: ArrayVec<Pane, PANES>,
    insertions: u64,
}

impl Panes {
    pub(crate) fn all(&self) -> &[Pane] {
        &self.list
    }

    pub(crate) fn first(&self) -> Option<Pane> {
        self.list.first().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn remove_first(&mut self) {
        self.list.pop_at(0);
    }

    /// Removes the beginning of the first pane.
    pub(crate) fn trim_first(&mut self, start: StreamPos) {
        if let Some(first) = self.list.first_mut() {
            first.range.start = start;
        }
    }

    /// Returns whether the connection stores the bytes of a pane.
    pub(crate) fn any_stored(&self) -> bool {
        self.list.iter().any(|pane| pane.kind == Kind::Buffered)
    }

    /// Removes the panes whose bytes the sink has placed.
    pub(crate) fn forget_placed(&mut self) {
        self.list.retain(|pane| pane.kind == Kind::Buffered);
    }

    /// Returns whether the sink has placed the bytes of a pane.
    pub(crate) fn any_placed(&self) -> bool {
        self.list.iter().any(|pane| pane.kind == Kind::Placed)
    }

    /// Returns the end of the last pane.
    pub(crate) fn end(&self) -> Option<StreamPos> {
        self.list.last().map(|pane| pane.range.end)
    }

    /// Returns the end of the contiguous bytes from `at` on.
    pub(crate) fn contiguous(&self, at: StreamPos) -> StreamPos {
        self.list.iter().fold(
            at,
            |at, pane| {
                if pane.range.start <= at { at.max(pane.range.end) } else { at }
            },
        )
    }

    /// Returns the first part of a range that is in no pane.
    pub(crate) fn gap(&self, range: Range) -> Option<Range> {
        let mut start = range.start;
        for pane in &self.list {
            if pane.range.start > start {
                break;
            }
            start = start.max(pane.range.end);
        }
        let next = self.list.iter().map(|pane| pane.range.start).find(|at| *at > start);
        let end = next.map_or(range.end, |next| next.min(range.end));
        (start < end).then_some(Range { start, end })
    }

    /// Returns whether there is room for a range that is in no pane.
    pub(crate) fn has_room(&self, range: Range, kind: Kind) -> bool {
        !self.list.is_full() || self.list.iter().any(|pane| pane.joins(range, kind))
    }

    /// Inserts a range that is in no pane. Returns whether there was room.
    pub(crate) fn insert(&mut self, mut range: Range, kind: Kind) -> bool {
        if !self.has_room(range, kind) {
            return false;
        }
        self.insertions += 1;
        self.list.retain(|pane| {
            let joins = pane.joins(range, kind);
            if joins {
                range.start = range.start.min(pane.range.start);
                range.end = range.end.max(pane.range.end);
            }
            !joins
        });
        let at = self.list.partition_point(|pane| pane.range.start < range.start);
        self.list.insert(at, Pane { range, kind, touched: self.insertions });
        true
    }

    /// Marks the pane with this byte as the one to which the latest segment belongs.
    pub(crate) fn touch(&mut self, at: StreamPos) {
        self.insertions += 1;
        let holds = |pane: &&mut Pane| pane.range.start <= at && at < pane.range.end;
        if let Some(pane) = self.list.iter_mut().find(holds) {
            pane.touched = self.insertions;
        }
    }

    /// Returns the ranges beyond `from`, the most recent first, with adjacent ranges joined: the
    /// blocks to report (RFC 2018, 4).
    pub(crate) fn blocks(&self, from: StreamPos) -> ArrayVec<Range, PANES> {
        let mut joined: ArrayVec<Pane, PANES> = ArrayVec::new();
        for pane in self.list.iter().filter(|pane| pane.range.start >= from) {
            match joined.last_mut() {
                Some(last) if last.range.end == pane.range.start => {
                    last.range.end = pane.range.end;
                    last.touched = last.touched.max(pane.touched);
                }
                _ => joined.push(*pane),
            }
        }
        joined.sort_unstable_by_key(|pane| u64::MAX - pane.touched);
        joined.iter().map(|pane| pane.range).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Range> {
        self.list.iter().map(|pane| pane.range)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }
}

impl Pane {
    fn joins(&self, range: Range, kind: Kind) -> bool {
        self.kind == kind && (self.range.end == range.start || range.end == self.range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> Range {
        Range { start: StreamPos(start), end: StreamPos(end) }
    }

    /// Shows: tcp: ranges of a stream that have arrived out of order are joined at both ends
    #[test]
    fn panes_merge_at_both_ends() {
        let mut panes = Panes::default();
        assert!(panes.insert(range(10, 20), Kind::Buffered));
        assert!(panes.insert(range(30, 40), Kind::Buffered));
        assert!(panes.insert(range(20, 30), Kind::Buffered));
        assert_eq!((panes.len(), panes.blocks(StreamPos(0))[0]), (1, range(10, 40)));
    }

    #[test]
    fn panes_of_two_kinds_touch_and_are_reported_as_one_block() {
        let mut panes = Panes::default();
        assert!(panes.insert(range(10, 20), Kind::Buffered));
        assert!(panes.insert(range(20, 30), Kind::Placed));
        assert_eq!((panes.len(), panes.blocks(StreamPos(0)).as_slice()), (2, &[range(10, 30)][..]));
    }

    #[test]
    fn a_full_table_takes_only_what_joins_a_pane() {
        let mut panes = Panes::default();
        for at in 0..PANES as u64 {
            assert!(panes.insert(range(at * 10, at * 10 + 5), Kind::Buffered));
        }
        assert!(!panes.insert(range(1000, 1010), Kind::Buffered));
        assert!(!panes.insert(range(5, 8), Kind::Placed));
        assert!(panes.insert(range(5, 10), Kind::Buffered));
        assert!(panes.insert(range(1000, 1010), Kind::Placed));
    }

    #[test]
    fn gaps_are_what_no_pane_has() {
        let mut panes = Panes::default();
        assert!(panes.insert(range(10, 20), Kind::Buffered));
        assert!(panes.insert(range(30, 40), Kind::Placed));
        assert_eq!(panes.gap(range(0, 50)), Some(range(0, 10)));
        assert_eq!(panes.gap(range(10, 50)), Some(range(20, 30)));
        assert_eq!(panes.gap(range(30, 50)), Some(range(40, 50)));
        assert_eq!(panes.gap(range(12, 18)), None);
        assert_eq!(panes.contiguous(StreamPos(10)), StreamPos(20));
    }

    #[test]
    fn the_block_of_the_last_segment_comes_first() {
        let mut panes = Panes::default();
        assert!(panes.insert(range(10, 20), Kind::Buffered));
        assert!(panes.insert(range(30, 40), Kind::Buffered));
        assert_eq!(panes.blocks(StreamPos(0)).as_slice(), [range(30, 40), range(10, 20)]);
        panes.touch(StreamPos(15));
        assert_eq!(panes.blocks(StreamPos(0)).as_slice(), [range(10, 20), range(30, 40)]);
    }
}
