// SPDX-License-Identifier: GPL-2.0
//! The window of direct transfers and its blocks, as their debugfs file shows them.

use abi::admin::command;
use kernel::{debugfs::Writer, fmt, prelude::*, sync::Arc};

use crate::quiesce::Liveness;

/// The file `window`.
pub(super) struct Window(pub(super) Arc<Liveness>);

impl Writer for Window {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = self.0.execute_briefly::<command::QueryWindow>(&()).map_err(|_| fmt::Error)?;
        f.write_fmt(fmt!(
            "base {} length {} blocks {} allocated {} waiting {} short {}\n",
            found.base.get(),
            found.length.get(),
            found.blocks.get(),
            found.allocated.get(),
            found.waiting.get(),
            found.short.get(),
        ))
    }
}
