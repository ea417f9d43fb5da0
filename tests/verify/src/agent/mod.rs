//! The agent: a process that owns verbs objects and does with them what it is told. The suite runs
//! one or more on each side; each is a process of its own, with its own context.
//!
//! | module | what |
//! | --- | --- |
//! | [`process`] | starting agents, serving them to the other guest, the watchdog |
//! | [`dispatch`] | from a request to the method that does it |
//! | [`objects`] | tables of objects by handle; creation and destruction |
//! | [`address`] | address handles, multicast groups |
//! | [`counters`] | what the kernel shows of the port's counters |
//! | [`memory`] | buffers: filling, comparing |
//! | [`windows`] | windows and other operations on memory |
//! | [`srq`], [`xrc`] | shared receive queues; XRC domains and targets |
//! | [`work`] | posting, polling, events |
//! | [`streams`] | work that must keep the device busy without a round trip for each step |

mod address;
mod counters;
mod dispatch;
mod memory;
mod objects;
pub(crate) mod process;
mod srq;
mod streams;
mod windows;
mod work;
mod xrc;
