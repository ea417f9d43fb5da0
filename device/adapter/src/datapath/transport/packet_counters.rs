//! Counts copied messages as the packets that they would be on a RoCE network.
//!
//! A completed message counts at both ends as packets of the path MTU, at least one. A READ or an
//! atomic counts as one packet in one direction, and as the packets of the response in the other.
//! Inside a daemon, there are no acknowledgements, and nothing is lost, repeated or out of order,
//! so these counters stay zero.

use crate::datapath::turn::TurnContext;
use crate::host::Host;
use crate::requests::wqe::SendWqe;
use crate::stats::Counter;

/// Returns the number of packets of `length` bytes. `mtu` is the path MTU as `enum ib_mtu`.
#[inline]
fn packets(length: u64, mtu: u8) -> u64 {
    let shift = 7 + u32::from(mtu.min(5));
    (length.saturating_add((1 << shift) - 1) >> shift).max(1)
}

/// The packets of a message.
#[derive(Clone, Copy)]
struct Packets {
    count: u64,
    /// Number of bytes of the message.
    bytes: u64,
}

impl Packets {
    /// Returns the packets that carry the data of a message.
    #[inline]
    fn of(send: &SendWqe, mtu: u8) -> Self {
        Self { count: packets(send.length, mtu), bytes: send.length }
    }
}

/// Counts an executed request between a requester `here` and a responder `there`. `mtu` is that of
/// the path.
#[inline]
pub(crate) fn executed<H: Host>(
    here: &TurnContext<'_, H>,
    there: &TurnContext<'_, H>,
    send: &SendWqe,
    mtu: u8,
) {
    let data = Packets::of(send, mtu);
    let info = send.opcode.info();
    // A request that concerns only local keys involves no peer.
    let Some(counter) = info.executed else { return };
    there.step(counter);
    if info.has_response() {
        leave(here, Packets { count: 1, bytes: 0 });
        arrive(there, Packets { count: 1, bytes: 0 });
        leave(there, data);
        arrive(here, data);
    } else {
        leave(here, data);
        arrive(there, data);
        if info.has_answer() {
            leave(there, Packets { count: 1, bytes: 0 });
            arrive(here, Packets { count: 1, bytes: 0 });
        }
    }
}

/// Counts a datagram, or a message of an unreliable connection that no QP received, as sent.
#[inline]
pub(crate) fn sent<H: Host>(here: &TurnContext<'_, H>, send: &SendWqe, mtu: u8) {
    leave(here, Packets::of(send, mtu));
}

/// Counts a datagram that a queue pair has received.
#[inline]
pub(crate) fn taken<H: Host>(there: &TurnContext<'_, H>, send: &SendWqe) {
    there.step(Counter::RxSendReq);
    arrive(there, Packets { count: 1, bytes: send.length });
}

#[inline]
fn leave<H: Host>(turn: &TurnContext<'_, H>, packets: Packets) {
    turn.add(Counter::TxPkts, packets.count);
    turn.add(Counter::TxBytes, packets.bytes);
}

#[inline]
fn arrive<H: Host>(turn: &TurnContext<'_, H>, packets: Packets) {
    turn.add(Counter::RxPkts, packets.count);
    turn.add(Counter::RxBytes, packets.bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_of_the_path_mtu() {
        for (length, mtu, count) in [
            (0, 3, 1),
            (1, 3, 1),
            (1024, 3, 1),
            (1025, 3, 2),
            (1 << 30, 5, 1 << 18),
            (257, 1, 2),
            (u64::MAX, 5, u64::MAX >> 12),
        ] {
            assert_eq!(packets(length, mtu), count, "{length} bytes by {mtu}");
        }
    }
}
