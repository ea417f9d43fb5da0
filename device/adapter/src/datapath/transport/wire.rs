//! The transports between daemons, and the choice of the one for a QP or a frame. Each has a folder
//! here and a variant of [`crate::objects::qp::Path`].

use std::sync::Arc;

use vrnic_abi::qp::AddressVector;
use vrnic_roce::wire::frame::destination;

pub(crate) use super::packets::connect::{Modified, Refused};
use super::{packets, raw, tcp};
use crate::datapath::transport::peers::Network;
use crate::ethernet::{Class, Classified, Frame, Parsed};
use crate::host::{Clock, Host};
use crate::objects::faults::trace::Step;
use crate::objects::qp::{Qp, Route};
use crate::slice::{Slice, cost};

/// Prepares the transport of a QP for the attributes that MODIFY_QP sets. For iWARP,
/// OPEN_CONNECTION does this.
///
/// # Errors
/// The reason for which the QP cannot have them.
pub(crate) fn connect<H: Host>(
    network: Network<'_, H>,
    qp: &Qp<H>,
    modified: Modified<'_>,
) -> Result<(), Refused> {
    packets::connect::connect(network, qp, modified)
}

/// Returns the route to a peer with this address vector, or `None` if no packet can be sent to it.
pub(crate) fn route<H: Host>(network: Network<'_, H>, av: &AddressVector) -> Option<Route> {
    packets::connect::route(network.own, av)
}

/// Passes a frame to its destination QP. Returns the QP if it needs a turn.
pub(crate) fn arrive<H: Host>(
    network: Network<'_, H>,
    classified: &Classified,
    slice: &Slice<'_, H>,
) -> Option<Arc<Qp<H>>> {
    let Classified { frame, class } = classified;
    charge(frame, slice);
    let parsed = |headers| Parsed { frame, headers };
    match *class {
        Class::Roce(headers) => packets::arrive(network, parsed(headers), slice),
        Class::Segment(qpn, headers) => {
            let (qp, parsed) = (network.own.qp(qpn)?, parsed(headers));
            tcp::arrive(network, parsed, qp, slice)
        }
        Class::TooLong(qpn, headers) => {
            let (qp, parsed) = (network.own.qp(qpn)?, parsed(headers));
            tcp::too_long(network, parsed, qp)
        }
        Class::Raw(qpn) => {
            raw::arrive(network, frame, qpn, slice);
            None
        }
    }
}

/// Passes a frame that has arrived to the trace of its destination QP.
#[cold]
pub(crate) fn trace<H: Host>(network: Network<'_, H>, Classified { frame, class }: &Classified) {
    let qpn = match class {
        Class::Roce(headers) => destination(frame.bytes(), headers).map(|qpn| qpn.get().into()),
        Class::Segment(qpn, _) | Class::TooLong(qpn, _) | Class::Raw(qpn) => Some(*qpn),
    };
    if let Some(qpn) = qpn {
        let core = network.core();
        core.injection.trace(core.here(), qpn, Step::packet(frame.bytes(), false));
    }
}

/// Charges the time that a frame takes. Each segment of a joined frame takes that of a packet.
fn charge<C: Clock>(frame: &Frame, slice: &Slice<'_, C>) {
    slice.charge(cost::PACKET * frame.count() as u64);
    slice.charge_copy(frame.bytes().len() as u64);
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use vrnic_packet::Nanos;

    use super::*;
    use crate::ethernet::{Joint, SEGMENT_MIN};
    use crate::host::Lane;

    /// Counts how often it is read.
    #[derive(Debug, Default)]
    struct Counting(Cell<u32>);

    impl Clock for Counting {
        fn now(&self) -> Nanos {
            self.0.set(self.0.get() + 1);
            Nanos(0)
        }
    }

    #[test]
    fn each_segment_of_a_joined_frame_is_charged_as_a_packet() {
        let bytes = || vec![0; 54 + 40 * SEGMENT_MIN];
        let joint = Joint { headers: 54, segment: SEGMENT_MIN as u16 };
        for (frame, readings) in [(Frame::new(bytes()), 0), (Frame::joined(bytes(), joint), 1)] {
            let clock = Counting::default();
            charge(&frame, &Slice::new(&clock, Lane::worker(0)));
            assert_eq!(clock.0.get(), readings);
        }
    }
}
