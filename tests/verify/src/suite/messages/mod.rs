//! Operations and their order, datagrams, raw packets.
//!
//! | module | cases |
//! | --- | --- |
//! | [`data`] | every operation with many sizes and alignments, in both directions |
//! | [`segments`] | scatter/gather lists, inline data |
//! | [`order`] | fences, order of placement, windows of READs |
//! | [`atomics`] | values, contention, atomicity against the processor |
//! | [`flush`] | FLUSH: ranges, regions, refusals |
//! | [`datagrams`] | UD: headers, queue keys, address handles; multicast groups |
//! | [`raw`], [`raw_flows`] | raw packets: frames, checksums, large segments; which frames a QP gets |
//! | [`rss`] | work queues, over which raw packets are spread |
//! | [`stress`] | random operations, sizes and places, many at a time |
//! | [`extended`] | completions with timestamps, requests that are built call by call |
//! | [`loopback`] | both ends in one process |

pub(crate) mod atomics;
pub(crate) mod data;
pub(crate) mod datagrams;
pub(crate) mod extended;
pub(crate) mod flush;
pub(crate) mod loopback;
pub(crate) mod order;
pub(crate) mod raw;
pub(crate) mod raw_flows;
pub(crate) mod rss;
pub(crate) mod segments;
pub(crate) mod stress;
