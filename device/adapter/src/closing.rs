//! The end of an adapter whose daemon ends: work requests that were started are finished, no new
//! ones are started, and finally the driver is notified.

use std::sync::Arc;

use vrnic_abi::regs::{FatalCode, Status};

use crate::adapter::Adapter;
use crate::control::admin;
use crate::host::Host;
use crate::objects::qp::Qp;

impl<H: Host> Adapter<H> {
    /// Stops starting work requests, permanently. Those that are posted stay in their queues.
    pub fn close(&self) {
        self.core().close();
    }

    /// Returns the number of QPs with work requests that have begun and have not ended.
    #[must_use]
    pub fn busy_qps(&self) -> usize {
        self.objects.all_qps().iter().filter(|qp| has_begun(qp)).count()
    }

    /// Ends all QPs and tells the driver, if there is one, that the device has failed because its
    /// daemon ends. The adapter does nothing more.
    pub fn stop(self: &Arc<Self>) {
        let _no_commands = self.objects.admin.lock();
        if self.core().is_enabled() && !self.registers.status().contains(Status::FATAL) {
            admin::stop(self, FatalCode::Stopped);
        }
    }
}

/// Returns whether a QP has work requests that have begun and have not ended.
fn has_begun<H: Host>(qp: &Qp<H>) -> bool {
    if qp.flushes_sends() {
        return false;
    }
    qp.requester.lock().has_begun()
}
