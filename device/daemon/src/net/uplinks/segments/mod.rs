//! Frames of equal length that pass to and from the host's kernel as one: RoCE packets as a long
//! UDP datagram (UDP segmentation offload, Linux 6.2), segments of TCP as a long segment. The
//! kernel cuts it where a card cannot. The kernel or card that cuts it writes the lengths, the
//! checksums, the identifications of IPv4, which count up, and the numbers of TCP.
//!
//! Segments of TCP may also pass the switch joined ([`vrnic_adapter::ethernet::Joint`]): from an
//! adapter to the kernel, and the other way.
//!
//! Formats: RFC 791, RFC 8200, RFC 768, RFC 9293; `struct virtio_net_hdr` (linux/virtio_net.h).
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`join`] | joins several frames to one |
//! | [`cut`] | cuts one frame into several |
//! | [`arrival`] | converts data from the kernel to frames |

pub mod arrival;
pub mod cut;
pub mod join;

#[cfg(test)]
mod tests;
