//! The internet checksum (RFC 1071) of UDP and TCP.

pub use vrnic_tcp::wire::checksum::{fold, sum};

/// Returns the UDP checksum for a sum. Zero would mean "no checksum", and is replaced by 0xffff.
#[must_use]
pub const fn of_udp(sum: u64) -> u16 {
    match !fold(sum) {
        0 => 0xffff,
        checksum => checksum,
    }
}
