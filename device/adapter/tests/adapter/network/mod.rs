//! Packets and TCP connections over cables with faults, ports and addresses.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `addresses` | adapters with several MACs |
//! | `port` | a port that the driver has closed |
//! | `transports` | what an iWARP adapter refuses |
//! | `packets` | messages as packets, over cables with faults |
//! | `connections` | the identity of connections: QP numbers, ports, PSNs |
//! | `records` | the records of connections by INSPECT |
//! | `streams` | messages in TCP connections, over cables with faults |
//! | `toe` | bytes in TCP connections, over cables with faults |
//! | `iscsi` | iSCSI PDUs in TCP connections |
//! | `key_options` | requests about keys and their options on each path between two QPs |
//! | `raw` | QPs of raw packets: sends, receives, flow rules |
//! | `classes` | classes of service that the network pauses |
//! | `pace` | the ceilings of a function |

pub(crate) mod addresses;
pub(crate) mod classes;
pub(crate) mod connections;
pub(crate) mod iscsi;
pub(crate) mod key_options;
pub(crate) mod pace;
pub(crate) mod packets;
pub(crate) mod port;
pub(crate) mod raw;
pub(crate) mod records;
pub(crate) mod streams;
pub(crate) mod toe;
pub(crate) mod transports;
