//! What the monitor shows.

use std::sync::Arc;

use parking_lot::Mutex;
use vrnic_control::monitor::Watched;
use vrnic_control::resource_view;
use vrnic_control_api::faults::FaultsView;
use vrnic_control_api::resource_view::{Amounts, ResourceRow};
use vrnic_control_api::{AdapterView, PortView};

use super::priorities;
use crate::faults::Faults;
use crate::host::vfio_host::VfioHost;
use crate::hosted::adapter::Adapter;
use crate::hosted::roster::Roster;
use crate::memory::external::Counts;
use crate::net::handle::SwitchHandle;
use crate::resources::table::ResourceTable;

/// The counters of functions that their adapters do not count.
const COUNTERS: [(&str, &str); Counts::NAMES.len() + priorities::NAMES.len()] = {
    let mut all = [("", ""); Counts::NAMES.len() + priorities::NAMES.len()];
    let (first, rest) = all.split_at_mut(Counts::NAMES.len());
    first.copy_from_slice(&Counts::NAMES);
    rest.copy_from_slice(&priorities::NAMES);
    all
};

/// The data of the daemon that the monitor shows.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    /// The adapters.
    pub(super) adapters: Arc<Roster>,
    /// The table of resources.
    pub(super) resources: Arc<Mutex<ResourceTable>>,
    /// The switch.
    pub(super) switch: SwitchHandle,
    /// The rules for faults.
    pub(super) faults: Arc<Faults>,
}

impl Watched for Shown {
    type Host = VfioHost;

    const COUNTERS: &'static [(&'static str, &'static str)] = &COUNTERS;

    fn adapters(&self) -> Vec<Arc<Adapter>> {
        self.adapters.all().iter().map(|hosted| Arc::clone(hosted.adapter())).collect()
    }

    fn resources(&self) -> Vec<ResourceRow> {
        // Cloned, so that a change does not wait for locks of adapters.
        let table = self.resources.lock().clone();
        let mut rows = vec![resource_view::physical(|resource| Amounts {
            maximum: table.maximum(resource),
            actual: table.assigned(resource),
        })];
        let adapters = self.adapters();
        rows.extend(table.rows().filter_map(|numbered| {
            // A function that is being added or removed may have no adapter.
            let adapter = adapters.iter().find(|adapter| adapter.name() == numbered.row.name)?;
            Some(resource_view::of(numbered.number, adapter, &numbered.row.maximum))
        }));
        rows
    }

    fn ports(&self) -> Vec<PortView> {
        self.switch.ports()
    }

    fn faults(&self) -> FaultsView {
        self.faults.view()
    }

    fn complete(&self, adapter: &Adapter, view: &mut AdapterView) {
        let lanes = self.switch.lanes(adapter.name());
        let named = lanes.iter().flat_map(priorities::counters);
        view.counters.extend(named.map(|(name, value)| (name.to_owned(), value)));
        let Some(external) = adapter.host().dma.external() else { return };
        let counts = external.counts();
        let named = Counts::NAMES.iter().zip(counts.values());
        view.counters.extend(named.map(|((name, _), value)| ((*name).to_owned(), value)));
        view.objects.insert("message_transfers".to_owned(), counts.waiting);
    }
}
