//! The control path: work that register writes start, and admin commands.
//!
//! | module | contents |
//! | --- | --- |
//! | [`admin`] | admin commands |

pub mod admin;

use std::sync::Arc;

use vrnic_abi::regs::{FatalCode, Status};

use crate::adapter::Adapter;
use crate::host::Host;

impl<H: Host> Adapter<H> {
    /// Does the control work that register writes have started: reset, enable, admin commands. Also
    /// lets the adapter fail if that has been asked for.
    pub fn control(self: &Arc<Self>) {
        if self.registers.take_reset() {
            self.reset();
            self.end_reset();
        }
        if let Some(code) = self.registers.take_stop() {
            self.fail(code);
        }
        if self.registers.take_enable() {
            admin::enable(self);
        }
        admin::run(self);
        admin::tell_failure(self);
    }
    /// Lets the adapter fail, if a driver uses it.
    fn fail(&self, code: FatalCode) {
        let _no_commands = self.objects.admin.lock();
        if self.core().is_enabled() && !self.registers.status().contains(Status::FATAL) {
            admin::stop(self, code);
        }
    }
}
