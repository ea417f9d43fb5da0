//! Inspection: plain copies of the adapter's objects.
//!
//! A view is taken without stopping anything, so two numbers of it may be of slightly different
//! moments. Locks of the datapath are held for a few loads, and those that a message holds are not
//! waited for.

mod records;

use crate::adapter::Adapter;
use crate::host::Host;
use crate::objects::id_table::IdTable;

/// Some of the objects of one kind, by ascending number.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// The objects.
    pub items: Vec<T>,
    /// The number to go on from; none behind the last object.
    pub next: Option<u32>,
}

impl<T> Page<T> {
    /// The first `most` of `objects`, which come by ascending number.
    fn of(objects: impl Iterator<Item = (u32, T)>, most: usize) -> Self {
        let mut items = Vec::new();
        for (number, view) in objects {
            if items.len() == most {
                return Self { items, next: Some(number) };
            }
            items.push(view);
        }
        Self { items, next: None }
    }
}

impl<H: Host> Adapter<H> {
    /// Its objects by kind: how many there are. Also multicast groups with members, bytes of device
    /// memory in which send queues lie, page addresses of rings, and words taken for those of
    /// regions.
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
            ("region_words", self.tpt().att().used()),
        ]
    }
}

fn count<N: From<u32> + Into<u32>, T>(table: &IdTable<N, T>) -> u64 {
    table.len().into()
}
