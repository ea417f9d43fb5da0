//! Lines to other daemons, and to networks of the host.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`trunk`] | the line to another daemon |
//! | `tls` | the line to a daemon on another host |
//! | [`interface`] | network interfaces of the host: the system calls |
//! | [`tap`] | the line to a TAP device |
//! | [`packet`] | the line to the network of an interface |
//! | [`offload`] | checksums and VLAN tags that the kernel leaves to network cards |
//! | [`segments`] | RoCE packets that pass to and from the kernel as one datagram |

pub mod interface;
pub mod offload;
pub mod packet;
pub mod segments;
pub mod tap;
#[cfg(feature = "tls")]
pub mod tls;
pub mod trunk;
