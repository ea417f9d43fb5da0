//! An adapter behind a port, for tests.

use std::num::NonZeroI32;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use vrnic_adapter::ethernet::{self, Offered};
use vrnic_packet::{MacAddr, VlanMac};

use super::setup::{FrameSink, Vmm};

/// An adapter whose answers the test chooses.
pub(crate) struct FakeSink {
    /// Takes a frame.
    pub(crate) offer: Box<dyn Fn(ethernet::Frame) -> Offered + Send>,
    /// A second MAC of the adapter.
    pub(crate) claimed: Option<MacAddr>,
    /// The process of the VMM, or 0.
    pub(crate) vmm: Arc<AtomicI32>,
    /// True if the adapter has taken over all connections.
    pub(crate) takes_over: bool,
    /// Returns whether there is room for frames.
    pub(crate) has_room: Box<dyn Fn() -> bool + Send>,
    /// The number of frames that sniffers have got.
    pub(crate) sniffed: Arc<AtomicUsize>,
}

impl FakeSink {
    /// Creates an adapter that always has room, has only its own MAC, and no connections or VMM.
    pub(crate) fn new(offer: impl Fn(ethernet::Frame) -> Offered + Send + 'static) -> Self {
        Self {
            offer: Box::new(offer),
            claimed: None,
            vmm: Arc::default(),
            takes_over: false,
            has_room: Box::new(|| true),
            sniffed: Arc::default(),
        }
    }

    /// Returns it as the adapter of a [`PortSetup`](super::PortSetup).
    pub(crate) fn behind_port(self) -> Option<Box<dyn FrameSink>> {
        Some(Box::new(self))
    }
}

impl FrameSink for FakeSink {
    fn offer(&self, frame: ethernet::Frame) -> Offered {
        (self.offer)(frame)
    }

    fn has_address(&self, at: VlanMac) -> bool {
        self.claims(at.mac)
    }

    fn claims(&self, mac: MacAddr) -> bool {
        self.claimed == Some(mac)
    }

    fn messages(&self) -> u64 {
        0
    }

    fn vmm(&self) -> Option<Vmm> {
        NonZeroI32::new(self.vmm.load(Ordering::Relaxed)).map(Vmm)
    }

    fn has_taken_over(&self, _frame: &[u8]) -> bool {
        self.takes_over
    }

    fn sniff(&self, _frame: &ethernet::Frame) {
        self.sniffed.fetch_add(1, Ordering::Relaxed);
    }

    fn note(&self, _frame: &ethernet::Frame) -> Option<String> {
        None
    }

    fn has_room(&self) -> bool {
        (self.has_room)()
    }
}
