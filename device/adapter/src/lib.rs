//! The vrnic adapter as a model: what the device does, without sockets, threads, clocks or `unsafe`.
//!
//! The daemon supplies the surroundings ([`host::Host`]) and calls in; guests are on the other side of
//! registers, rings and doorbells (docs/adapter.md). Everything that a guest wrote is copied once, then
//! checked.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`host`] | what the adapter asks of its surroundings |
//! | [`function`], `poll` | one adapter: entry points; the workers' side |
//! | [`registers`], `port` | the register file; whether the port carries anything |
//! | [`admin`] | admin commands |
//! | [`objects`], [`table`], [`limits`] | numbered objects, who uses whom, how many |
//! | [`slots`], [`sqmem`] | doorbell slots; memory for device-resident send queues |
//! | [`memory`] | page tables, and the rings that lie in them |
//! | [`tpt`], [`att`], `arena` | regions and the one check of access; their pages; where these stand |
//! | [`eq`], [`cq`], [`completion`], `moderation` | event and completion queues; what an entry tells; events that wait for more |
//! | [`qp`], [`transitions`] | queue pairs and their states |
//! | [`srq`] | receive queues that QPs share |
//! | `shard`, `schedule`, `hot` | a worker's part of a function; whose turn it is; whose may come next |
//! | [`site`] | what a turn holds |
//! | [`wqe`], [`batch`], [`requester`], `exchange`, [`responder`], [`transfer`] | the datapath |
//! | `xrc` | what is different of XRC targets |
//! | `datagram`, [`network`] | the datapath of datagram QPs; the network header that receives begin with |
//! | `memops`, [`tags`] | work requests about keys; where messages carry them |
//! | [`fabric`] | finding the peer |
//! | [`inspect`] | views for whoever watches |
//! | `sync` | the locks and atomics that models replace |
//! | [`stats`], `traffic`, [`limiter`] | counters; what counts as a packet; warnings at a bounded rate |
#![forbid(unsafe_code)]

pub mod admin;
mod arena;
pub mod att;
pub mod batch;
pub mod completion;
pub mod cq;
pub(crate) mod datagram;
pub mod eq;
pub(crate) mod exchange;
pub mod fabric;
pub mod function;
pub mod host;
pub(crate) mod hot;
pub mod inspect;
pub mod limiter;
pub mod limits;
pub(crate) mod memops;
pub mod memory;
pub(crate) mod moderation;
pub mod multicast;
pub mod network;
pub mod objects;
pub mod poll;
pub(crate) mod port;
pub mod qp;
pub mod registers;
pub mod requester;
pub mod responder;
pub(crate) mod schedule;
pub(crate) mod shard;
pub mod site;
pub mod slots;
pub mod sqmem;
pub mod srq;
pub mod stats;
mod sync;
pub mod table;
pub mod tags;
pub mod tpt;
pub(crate) mod traffic;
pub mod transfer;
pub mod transitions;
pub mod wqe;
pub(crate) mod xrc;
