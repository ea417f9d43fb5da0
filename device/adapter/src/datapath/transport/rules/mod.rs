//! Which QPs of raw packets get a frame. Can be called from any thread.
//!
//! | module | contents |
//! | --- | --- |
//! | `key` | the fields of a frame that flow rules compare |

mod key;

use std::borrow::Cow;

use self::key::key;
use super::arrival::Arrival;
use crate::ethernet::{Class, Classified, Frame, Offered};
use crate::host::Host;
use crate::objects::Objects;
use crate::objects::core::Core;
use crate::objects::network::frame_key::Target;
use crate::stats::Counter;
use crate::vlans::Vlans;

/// Number of rules with which a frame is compared in the time of a copy.
const RULES_PER_COPY: u64 = 32;

/// Gives copies of a frame of the function to its sniffers. The frame is as in the network. Returns
/// the number of copies.
#[inline]
pub(crate) fn sniff<H: Host>(objects: &Objects<H>, frame: &Frame) -> u64 {
    if objects.flows.has_sniffers()
        && let Some(frame) = for_guest(objects.core(), frame)
    {
        return copy(objects, &frame);
    }
    0
}

/// Gives copies of a frame, which is as the guest sees it, to the sniffers. Returns the number of
/// copies.
#[inline]
pub(crate) fn copy<H: Host>(objects: &Objects<H>, frame: &Frame) -> u64 {
    let core = objects.core();
    if !objects.flows.has_sniffers() || !core.carries() {
        return 0;
    }
    let sniffers = objects.flows.sniffers(|| key(frame.bytes()));
    for Target { qpn, worker } in &sniffers {
        let is_queued = core.put_copy(*worker, classified(frame, *qpn));
        count(core, frame, is_queued);
    }
    sniffers.len() as u64
}

/// Gives a frame to the QPs whose rules select it, and copies to the sniffers. Returns it if it is
/// also, or only, for the guest's network card.
pub(crate) fn take<H: Host>(objects: &Objects<H>, frame: Frame, arrival: &Arrival<'_>) -> Offered {
    let core = objects.core();
    // The switch has to look at the VLANs of both ports.
    let is_free = !arrival.comes_again || *core.port.vlans() == Vlans::All;
    if !core.carries() || !is_free {
        return Offered::Other(frame);
    }
    let Some(own) = for_guest(core, &frame) else { return Offered::Other(frame) };
    let selected = objects.flows.select(&key(own.bytes()));
    arrival.add_copies(selected.compared / RULES_PER_COPY);
    if arrival.comes_again && !selected.is_trapped {
        return Offered::Other(frame);
    }
    arrival.record(core, None, &frame);
    arrival.add_copies(copy(objects, &own) + selected.targets.len() as u64);
    for Target { qpn, worker } in selected.targets {
        let is_queued = core.put_frame(worker, classified(&own, qpn));
        count(core, &own, is_queued);
    }
    if selected.is_trapped {
        return Offered::Trapped;
    }
    drop(own);
    Offered::Other(frame)
}

/// Returns a frame of the network as the guest sees it, or `None` if the guest may not see it.
fn for_guest<'f, H: Host>(core: &Core<H>, frame: &'f Frame) -> Option<Cow<'f, Frame>> {
    match core.port.vlans() {
        Vlans::All | Vlans::Trunk(_) => Some(Cow::Borrowed(frame)),
        Vlans::Access(_) => frame.without_tag().map(Cow::Owned),
    }
}

/// Returns a copy for a QP.
fn classified(frame: &Frame, qpn: vrnic_abi::Qpn) -> Classified {
    Classified { frame: frame.clone(), class: Class::Raw(qpn) }
}

/// Counts a copy that was lost because there was no room.
fn count<H: Host>(core: &Core<H>, frame: &Frame, is_queued: bool) {
    if !is_queued {
        core.stats().add(Counter::RxRawDiscards, frame.count() as u64);
    }
}
