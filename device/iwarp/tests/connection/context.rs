//! A TCP connection that has just been made.

use vrnic_tcp::{Context, SeqNum};

/// Returns the state of a connection, whose next bytes have these numbers, as a kernel hands it
/// over.
pub(crate) fn context(send_next: SeqNum, receive_next: SeqNum) -> Context {
    Context {
        send_next,
        receive_next,
        send_window: 60_000,
        max_send_window: 60_000,
        receive_window: 60_000,
        send_scale: 7,
        receive_scale: 7,
        peer_closed: false,
        mss: 1460,
        sack: true,
        timestamps: None,
        round_trip: None,
    }
}
