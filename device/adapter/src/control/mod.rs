//! The control path: work that register writes start, and admin commands.
//!
//! | module | contents |
//! | --- | --- |
//! | [`admin`] | admin commands |

pub mod admin;

use std::sync::Arc;

use crate::adapter::Adapter;
use crate::host::Host;

impl<H: Host> Adapter<H> {
    /// Does the control work that register writes have started: reset, enable, admin commands.
    pub fn control(self: &Arc<Self>) {
        if self.registers.take_reset() {
            self.reset();
            self.end_reset();
        }
        if self.registers.take_enable() {
            admin::enable(self);
        }
        admin::run(self);
    }
}
