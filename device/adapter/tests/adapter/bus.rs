//! The test driver's bus to an adapter in this process.

use std::sync::Arc;

use vrnic_adapter::adapter::Adapter;
use vrnic_adapter::datapath::transport::peers::Fabric;
use vrnic_adapter::limits::Limits;
use vrnic_packet::MacAddr;
use vrnic_testdriver::bus::Bus;
use vrnic_testdriver::memory::{Memory, Ram};
use vrnic_testdriver::{cq, endpoint, guest, srq};

use crate::host::TestHost;

/// A guest of these tests.
pub(crate) type Guest = guest::Guest<InProcess>;
/// One side of a connection.
pub(crate) type Endpoint = endpoint::Endpoint<InProcess>;
pub(crate) type CompletionQueue = cq::CompletionQueue<InProcess>;
/// A shared receive queue.
pub(crate) type SharedQueue = srq::SharedQueue<InProcess>;

/// An adapter in this process, and its host.
pub(crate) struct InProcess {
    pub(crate) adapter: Arc<Adapter<TestHost>>,
    pub(crate) host: TestHost,
}

impl InProcess {
    /// Returns a guest with this number, whose driver has enabled its adapter with `workers`
    /// workers.
    pub(crate) fn guest(
        host: TestHost,
        number: u8,
        fabric: &Arc<Fabric<TestHost>>,
        workers: usize,
        limits: Limits,
    ) -> Guest {
        let (name, mac) = (format!("f{number}"), [2, 0, 0, 0, 0, number]);
        let adapter = Adapter::new(&name, MacAddr(mac), host.clone(), fabric, workers, limits);
        adapter.set_link(true);
        let guest = Guest::new(Self { adapter, host });
        guest.bring_up();
        guest
    }
}

impl Bus for InProcess {
    fn ram(&self) -> &Ram {
        self.host.ram()
    }

    fn bar(&self) -> &Memory {
        self.host.bar()
    }

    fn mac(&self) -> [u8; 6] {
        self.adapter.mac().0
    }

    fn read_register(&self, offset: u32) -> u32 {
        self.adapter.read_register(offset)
    }

    /// Runs the control thread's work, too.
    fn write_register(&self, offset: u32, value: u32) {
        if self.adapter.write_register(offset, value) {
            self.adapter.control();
        }
    }
}
