//! A driver for the vrnic adapter that needs no guest: it plays the VMM on a real vfio-user socket,
//! a memory file is its guest memory, and it drives the adapter as a kernel and a user library
//! would. Tests and benchmarks of the daemon use it.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`daemon`] | a daemon process in a temporary folder |
//! | [`ram`] | guest memory and its allocator |
//! | [`guest`] | a connection to a function: registers, doorbells, interrupts, bring-up |
//! | [`admin`] | admin commands |
//! | [`cq`], [`eq`], [`qp`] | the queues |
//! | [`endpoint`] | a PD, a region, CQs and a QP, ready to be connected |
//! | [`arming`] | completion queues armed at random |
//! | [`raw`] | vfio-user messages byte by byte, for hostile ones |
//! | [`wait`] | waiting with a time limit |
//!
//! Everything returns [`anyhow::Result`]: a test has nothing to do with an error but to show it.

pub mod admin;
pub mod arming;
pub mod cq;
pub mod daemon;
pub mod endpoint;
pub mod eq;
pub mod guest;
pub mod qp;
pub mod ram;
pub mod raw;
pub mod wait;
