//! Inspection: plain copies of the adapter's objects.
//!
//! A view is taken without stopping the adapter, so two numbers in it may belong to slightly
//! different times. Locks of the data path are held for a few loads. A lock that a message holds is
//! not waited for, except for a millisecond where a connection is looked at.

mod connections;
mod records;

use crate::adapter::Adapter;
use crate::host::Host;
use crate::objects::id_table::IdTable;

/// Some objects of one kind, in ascending order of their numbers.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// The objects.
    pub items: Vec<T>,
    /// The number to continue from; none after the last object.
    pub next: Option<u32>,
}

impl<T> Page<T> {
    /// Returns the first `limit` of `objects`, which must be in ascending order of their numbers.
    fn of(objects: impl Iterator<Item = (u32, T)>, limit: usize) -> Self {
        let mut items = Vec::new();
        for (number, view) in objects {
            if items.len() == limit {
                return Self { items, next: Some(number) };
            }
            items.push(view);
        }
        Self { items, next: None }
    }
}

impl<H: Host> Adapter<H> {
    /// Returns the number of its objects, by kind. Also the number of multicast groups with
    /// members, bytes of device memory with send queues, page addresses of rings, and words that
    /// hold page addresses of regions.
    #[must_use]
    pub fn counts(&self) -> [(&'static str, u64); 13] {
        let objects = &self.objects;
        [
            ("contexts", count(&objects.contexts)),
            ("pds", count(&objects.pds)),
            ("eqs", count(&objects.eqs)),
            ("cqs", count(&objects.cqs)),
            ("srqs", count(&objects.srqs)),
            ("xrcds", count(&objects.xrcds)),
            ("qps", objects.all_qps().len() as u64),
            ("uars", count(&objects.uars)),
            ("keys", self.tpt().used()),
            ("groups", objects.groups.count() as u64),
            ("sq_bytes", objects.sq_memory.lock().used()),
            ("ring_pages", objects.page_budget.used().saturating_sub(self.tpt().charged())),
            ("region_words", self.tpt().mtt().used()),
        ]
    }
}

fn count<N: From<u32> + Into<u32>, T>(table: &IdTable<N, T>) -> u64 {
    table.len().into()
}
