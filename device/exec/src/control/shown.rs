//! What the monitor shows.

use std::sync::Arc;

use vrnic_adapter::adapter::Adapter;
use vrnic_control::monitor::Watched;
use vrnic_control::{fault_view, resource_view};
use vrnic_control_api::faults::FaultsView;
use vrnic_control_api::resource_view::Amounts;
use vrnic_control_api::{PortView, ResourceRow};

use crate::adapter::driver::Driver;
use crate::adapter::host::ProcessHost;
use crate::adapter::traffic::Traffic;

/// The adapters and the rules for faults.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The drivers of the adapters.
    pub drivers: Arc<[Driver]>,
    /// The traffic, and the rules for it.
    pub traffic: Arc<Traffic>,
}

impl Watched for Shown {
    type Host = ProcessHost;

    fn adapters(&self) -> Vec<Arc<Adapter<ProcessHost>>> {
        self.drivers.iter().map(|driver| Arc::clone(driver.adapter())).collect()
    }

    /// Returns a row for each adapter. All of what they have together is theirs.
    fn resources(&self) -> Vec<ResourceRow> {
        let adapters = self.adapters();
        let physical = resource_view::physical(|resource| {
            let maxima = adapters.iter().map(|adapter| adapter.limits().of(resource));
            let maximum = maxima.fold(0, u64::saturating_add);
            Amounts { maximum, actual: Some(maximum) }
        });
        let rows = (1..).zip(&adapters);
        let rows =
            rows.map(|(number, adapter)| resource_view::of(number, adapter, &adapter.limits()));
        std::iter::once(physical).chain(rows).collect()
    }

    /// Returns none: the adapters' network has no switch.
    fn ports(&self) -> Vec<PortView> {
        Vec::new()
    }

    fn faults(&self) -> FaultsView {
        fault_view::view(self.traffic.gate())
    }
}
