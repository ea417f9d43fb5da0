//! Frames of equal length that are joined to one, and cut again: RoCE packets as a long UDP
//! datagram, segments of TCP as a long segment. Whoever cuts it writes the lengths, the checksums,
//! the identifications of IPv4, which count up, and the numbers of TCP.
//!
//! Formats: RFC 791, RFC 8200, RFC 768, RFC 9293.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`headers`] | finds and changes the headers of a frame |
//! | [`join`] | prepares a long segment of TCP |
//! | [`cut`] | cuts one frame into several |

pub mod cut;
pub mod headers;
pub mod join;
