//! An adapter of this process behind its port of the switch.

use std::num::NonZeroI32;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vrnic_abi::admin::Counter;
use vrnic_adapter::ethernet::{Frame, Offered};
use vrnic_packet::{MacAddr, VlanMac};

use super::adapter::HostedAdapter;
use crate::net::port::setup::{FrameSink, Vmm};

/// An adapter that has failed discards all frames, so it has room, and has no other MACs and no
/// connections.
impl FrameSink for Arc<HostedAdapter> {
    fn offer(&self, frame: Frame) -> Offered {
        self.failure.contain(|| self.adapter.offer(frame)).unwrap_or(Offered::Taken)
    }

    fn has_address(&self, at: VlanMac) -> bool {
        self.failure.contain(|| self.adapter.has_address(at)).unwrap_or(false)
    }

    fn claims(&self, mac: MacAddr) -> bool {
        self.failure.contain(|| self.adapter.claims(mac)).unwrap_or(false)
    }

    fn messages(&self) -> u64 {
        let counters = self.adapter.stats();
        counters.get(Counter::TxPkts).wrapping_add(counters.get(Counter::RxPkts))
    }

    fn vmm(&self) -> Option<Vmm> {
        NonZeroI32::new(self.vmm.load(Ordering::Relaxed)).map(Vmm)
    }

    fn has_taken_over(&self, frame: &[u8]) -> bool {
        self.failure.contain(|| self.adapter.has_taken_over(frame)).unwrap_or(false)
    }

    fn sniff(&self, frame: &Frame) {
        if self.adapter.has_sniffers() {
            let _failed = self.failure.contain(|| self.adapter.sniff(frame));
        }
    }

    fn note(&self, frame: &Frame) -> Option<String> {
        self.failure.contain(|| self.adapter.note(frame)).flatten()
    }

    fn has_room(&self) -> bool {
        self.failure.contain(|| self.adapter.has_frame_room()).unwrap_or(true)
    }
}
