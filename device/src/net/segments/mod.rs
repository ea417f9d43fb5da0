//! RoCE packets of equal length that pass to and from the host's kernel as one long UDP datagram
//! (UDP segmentation offload, Linux 6.2). The kernel cuts it where a card cannot, and the one who
//! cuts writes the lengths, the checksums and, counting up, the identifications of IPv4.
//!
//! Formats: RFC 791, RFC 8200, RFC 768; `struct virtio_net_hdr` (linux/virtio_net.h).
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`headers`] | where the headers of a datagram are |
//! | [`join`] | several frames become one |
//! | [`cut`] | one becomes several |
//! | [`arrival`] | what has been read from the kernel becomes frames |

pub mod arrival;
pub mod cut;
pub mod headers;
pub mod join;

#[cfg(test)]
mod tests;
