//! The end of an adapter whose daemon ends: work requests that were started are finished, no new
//! ones are started, and finally the driver is notified.

use vrnic_abi::regs::FatalCode;

use crate::adapter::Adapter;
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

    /// Lets the control thread end all QPs and tell the driver, if there is one, that the device
    /// has failed because its daemon ends. The adapter then does nothing more.
    /// [`Adapter::control`] must be called.
    pub fn stop(&self) {
        self.registers.ask_stop(FatalCode::Stopped);
    }
}

/// Returns whether a QP has work requests that have begun and have not ended.
fn has_begun<H: Host>(qp: &Qp<H>) -> bool {
    if qp.flushes_sends() {
        return false;
    }
    qp.requester.lock().has_begun()
}
