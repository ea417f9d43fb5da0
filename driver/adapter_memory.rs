// SPDX-License-Identifier: GPL-2.0
//! The memory of an adapter for which the kernel has page structs, and the use of it for direct
//! transfers.

use abi::{
    admin::{SetWindow, command},
    direct::{RANGES, WINDOW_LEN},
};
use kernel::{device::Bound, pci, prelude::*, sync::Arc};

use crate::{hw::p2p::PeerMemory, quiesce::Liveness};

/// Memory of an adapter for which the kernel has page structs.
#[derive(Clone)]
pub(crate) struct AdapterMemory {
    /// Bytes of device memory that the kernel can allocate.
    pub(crate) device_memory: u64,
    /// The window of direct transfers, if the kernel has accepted it.
    pub(crate) window: Option<Arc<PeerMemory>>,
}

impl AdapterMemory {
    /// Returns the bytes of device memory that programs can use, used or not: `blocks` are the
    /// adapter's.
    pub(crate) fn of_programs(&self, blocks: Option<&PeerMemory>) -> u64 {
        let of_blocks = if blocks.is_some() { WINDOW_LEN.into() } else { 0 };
        self.device_memory.saturating_sub(of_blocks)
    }
}

/// Places the address ranges at the start of the window, and gives a block of device memory for
/// each of them to the adapter. Returns these blocks; without device memory there are none.
pub(crate) fn set_window(
    pdev: &pci::Device<Bound>,
    liveness: &Liveness,
) -> Result<Option<PeerMemory>> {
    // CAST: to the wider type.
    let blocks = PeerMemory::alloc(pdev, WINDOW_LEN as usize).ok();
    liveness.execute::<command::SetWindow>(&SetWindow {
        memory: blocks.as_ref().map_or(0, PeerMemory::bus_address).into(),
        base: 0.into(),
        length: WINDOW_LEN.into(),
        blocks: blocks.as_ref().map_or(0, |_| RANGES).into(),
        ..SetWindow::default()
    })?;
    Ok(blocks)
}
