//! Inspection: plain copies of the adapter's objects.
//!
//! A view is taken without stopping anything, so two numbers of it may be of slightly different
//! moments. Locks of the datapath are held for a few loads, and those that a message holds are not
//! waited for.

mod keys;
mod queues;
mod records;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use vrnic_abi::admin::STAT_NAMES;
use vrnic_abi::regs::{self, Status};

pub use self::keys::KeyView;
pub(crate) use self::records::Records;
use crate::adapter::Adapter;
use crate::host::Host;
use crate::objects::id_table::IdTable;
pub use crate::objects::views::{CqView, EqView, QpView, QueueView, SrqView};

/// An adapter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterView {
    /// Its name.
    pub name: String,
    /// MAC of its port.
    pub mac: String,
    /// True if a driver has enabled it.
    pub enabled: bool,
    /// The register FATAL_CODE; zero while all is well.
    pub fatal: u32,
    /// True if its port carries traffic: the link is up, and the driver has opened the port.
    pub link: bool,
    /// Its objects by kind: how many there are. Also multicast groups with members, bytes of device
    /// memory in which send queues lie, page addresses of rings, and words taken for those of
    /// regions.
    pub objects: BTreeMap<String, u64>,
    /// Its counters, named as the guest's are.
    pub counters: BTreeMap<String, u64>,
}

/// Some of the objects of one kind, by ascending number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The adapter itself.
    #[must_use]
    pub fn view(&self) -> AdapterView {
        let status = Status::from_bits_truncate(self.read_register(regs::STATUS));
        let objects = &self.objects;
        let counts = [
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
        ];
        let counters = STAT_NAMES.iter().zip(self.stats().values());
        AdapterView {
            name: self.name().to_owned(),
            mac: mac(self.mac()),
            enabled: status.contains(Status::ENABLED),
            fatal: self.read_register(regs::FATAL_CODE),
            link: self.core().carries(),
            objects: counts.map(|(kind, count)| (kind.to_owned(), count)).into(),
            counters: counters.map(|(name, value)| ((*name).to_owned(), value)).collect(),
        }
    }
}

fn count<N: From<u32> + Into<u32>, T>(table: &IdTable<N, T>) -> u64 {
    table.len().into()
}

/// A MAC as text.
fn mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
