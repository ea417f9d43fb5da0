//! Memory that the daemon shares with guests and other daemons.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`mapping`] | a mapping and every access to one; the only unsafe code on shared memory |
//! | [`copy`] | the copy loop for pages |
//! | [`stall`] | the memory of VMMs that are gone when this process was stopped |
//! | [`range`], [`rules`] | a range as a VMM maps it, and the limits |
//! | [`files`] | the mappings of a VMM's files, which its ranges share |
//! | [`ranges`] | guest addresses: the ranges that a VMM maps, as a tree |
//! | [`dma`] | the table of an adapter's ranges, and every change to it |
//! | [`view`] | the ranges during a turn, and every access by guest address |
//! | [`external`] | memory without a mapping, which the VMM reads and writes for the adapter |
//! | `transfer` | the bytes that the VMM reads or writes at once |
//! | [`messages`] | the interface to the VMM for this |
//! | [`fault`] | errors of mappings and accesses |
//! | [`uar`] | BAR2: doorbells and device-resident queues |

mod copy;
pub mod dma;
pub mod external;
pub mod fault;
mod files;
pub mod mapping;
pub mod messages;
pub mod range;
mod ranges;
pub mod rules;
pub mod stall;
mod transfer;
pub mod uar;
pub mod view;
