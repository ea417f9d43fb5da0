// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The data path of a user context: it writes work requests to rings, reads completions from rings,
//! and rings doorbells. It enters the kernel only to set up mappings, and does not depend on
//! libibverbs: the plugin (crate `vrnic-provider`) translates between the two.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`heap`] | allocations that may fail |
//! | [`mapping`] | memory shared with the adapter |
//! | [`allocator`], [`source`] | a program's allocator; where the memory of rings comes from |
//! | [`device_memory`] | memory of the adapter |
//! | [`lock`] | a spin lock |
//! | [`ring`] | a ring of entries and its shape |
//! | [`doorbell`] | UARs, doorbell slots, the kick |
//! | [`handover`] | queues that another poster uses |
//! | [`layout`] | the rings that each kind of queue needs |
//! | [`policy`] | settings from environment variables |
//! | [`request`] | work requests and their encoding |
//! | `posted` | the outstanding requests of a queue |
//! | [`send`], [`recv`] | the two queues of a QP |
//! | [`srq`] | receive queues that QPs share |
//! | [`completion`] | decoded completions |
//! | [`cq`] | the completion queue |
//! | [`clock`] | the adapter's clock |
//! | [`qp`] | the queue pair: both queues, their credits and doorbell |
//!
//! Locks: each queue has its own. A completion queue's lock is taken with no other held.
//!
//! `unsafe` is confined to [`allocator`], [`heap`], [`lock`] and [`mapping`].

#[cfg(not(target_endian = "little"))]
compile_error!("rings are little-endian and not byte-swapped here");

pub mod allocator;
pub mod clock;
pub mod completion;
pub mod cq;
pub mod device_memory;
pub mod doorbell;
pub mod handover;
pub mod heap;
pub mod layout;
pub mod lock;
pub mod mapping;
pub mod policy;
mod posted;
pub mod qp;
pub mod recv;
pub mod request;
pub mod ring;
pub mod send;
pub mod source;
pub mod srq;
#[cfg(test)]
mod stress;
