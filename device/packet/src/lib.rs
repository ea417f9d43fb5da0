//! Frames, headers below the transports, fields, checksums and points in time. The transports
//! (`vrnic-roce`, `vrnic-iwarp`, `vrnic-tcp`), the adapter and the daemon's switch use them.
//!
//! The crate depends on no other crate of the workspace. All input is untrusted: a read beyond the
//! end is an error ([`Short`]).
//!
//! | module | contents |
//! | --- | --- |
//! | [`reader`] | consecutive fields, read and written |
//! | [`checksum`] | the Internet checksum |
//! | [`ethernet`] | Ethernet headers with a VLAN tag |
//! | [`mac`] | Ethernet addresses |
//! | [`mtu`] | path MTUs of RDMA |
//! | [`ip`] | IPv4 and IPv6 headers |
//! | [`headers`] | the places of both in a frame, which is parsed once |
//! | [`frame`] | a frame on its way |
//! | [`discards`] | counters of dropped packets |
//! | [`offload`] | the checksums of a frame |
//! | [`segments`] | frames that are joined to one, and cut again |
//! | [`pool`] | the memory of frames |
//! | [`transport`] | the headers of UDP and TCP |
//! | [`toeplitz`] | the hash by which frames are spread over receive queues |
//! | [`time`] | points in time |
//! | [`rate`] | rates in bits per second, the pacing of frames |
//! | [`service`] | the fields of frames that say which class of service they have |
#![forbid(unsafe_code)]

pub mod checksum;
pub mod discards;
pub mod ethernet;
pub mod frame;
pub mod headers;
pub mod ip;
pub mod mac;
pub mod mtu;
pub mod offload;
pub mod pool;
pub mod rate;
pub mod reader;
pub mod segments;
pub mod service;
pub mod time;
pub mod toeplitz;
pub mod transport;

pub use ethernet::{EtherType, Ethernet, VlanMac};
pub use headers::Headers;
pub use mac::MacAddr;
pub use mtu::Mtu;
pub use rate::{Pacer, Rate};
pub use reader::{NoRoom, Reader, Short, Writer};
pub use service::ServiceFields;
pub use time::Nanos;
