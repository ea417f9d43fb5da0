//! Memory that the daemon shares with guests and other daemons.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`mapping`] | a mapping and every access to one; the only unsafe code on shared memory |
//! | [`copy`] | the copy loop for pages |
//! | [`sigbus`] | the handler for mappings whose file was truncated |
//! | [`stall`] | the memory of VMMs that are gone when this process was stopped |
//! | [`range`], [`rules`] | a range as a VMM maps it, and the limits |
//! | [`files`] | the mappings of a VMM's files, which its ranges share |
//! | [`ranges`] | guest addresses: the ranges that a VMM maps, as a tree |
//! | [`dma`] | the table of an adapter's ranges, and every change to it |
//! | [`view`] | the ranges during a turn, and every access by guest address |
//! | [`fault`] | errors of mappings and accesses |
//! | [`uar`] | BAR2: doorbells and device-resident queues |

mod copy;
pub mod dma;
pub mod fault;
mod files;
pub mod mapping;
pub mod range;
mod ranges;
pub mod rules;
pub mod sigbus;
pub mod stall;
pub mod uar;
pub mod view;
