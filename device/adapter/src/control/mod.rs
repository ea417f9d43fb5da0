//! The control path: what the driver asks for by registers and admin commands.
//!
//! | module | contents |
//! | --- | --- |
//! | [`registers`] | the register file of BAR0 |
//! | [`admin`] | admin commands |
//! | `port` | link, MTU, and whether the port carries traffic |

pub mod admin;
pub(crate) mod port;
pub mod registers;

use std::sync::Arc;

use crate::function::Function;
use crate::host::Host;

impl<H: Host> Function<H> {
    /// Does control work that a register write started: reset, enable, admin commands.
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
