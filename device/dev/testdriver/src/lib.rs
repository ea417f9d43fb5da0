//! A driver for the vrnic adapter that needs no guest: it brings an adapter up, runs commands, and
//! posts and polls as a kernel and a user library do. Tests and benchmarks use it.
//!
//! The driver uses a [`bus::Bus`] to access the adapter. The tests of the adapter crate call the
//! model in their own process. The tests of the daemon act as the VMM on a vfio-user socket
//! (feature `vfio-user`).
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`bus`] | the connection to an adapter |
//! | [`memory`] | memory shared with the adapter: guest memory, with an allocator, and BAR2 |
//! | [`guest`] | the driver of an adapter: registers, bring-up, doorbells |
//! | [`admin`], [`admin_queue`] | admin commands, and their queue |
//! | [`cq`], [`eq`], [`srq`] | queues |
//! | [`wr`] | send work requests |
//! | [`qp`] | parameters and attributes of QPs |
//! | [`endpoint`] | a QP, ready to be connected, with a PD, a region and CQs |
//! | [`flow`] | QPs of raw packets, and flow rules |
//! | [`idle_qps`] | many idle QPs with TCP connections |
//! | [`stream`] | TCP connections for endpoints |
//! | [`namespace`] | network namespaces of the kernel |
//! | [`vxlan`] | hosts, which are namespaces that are joined by VXLAN |
//! | [`wait`] | waiting with a time limit |
//! | [`vmm`] | the part of a VMM: a daemon, and messages of vfio-user |
//!
//! An access to memory or registers that fails panics, because no test can continue after it.
//! Commands return the adapter's result.
#![forbid(unsafe_code)]

pub mod admin;
pub mod admin_queue;
pub mod bus;
pub mod cq;
pub mod endpoint;
pub mod eq;
pub mod flow;
pub mod guest;
pub mod idle_qps;
pub mod memory;
pub mod namespace;
pub mod qp;
pub mod srq;
pub mod stream;
#[cfg(feature = "vfio-user")]
pub mod vmm;
pub mod vxlan;
pub mod wait;
pub mod wr;
