//! Queues: their creation, changes and attributes.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`cq`] | completion queues |
//! | [`qp`], [`qp_attr`] | queue pairs, and their attributes |
//! | [`srq`] | shared receive queues |
//! | [`xrc`] | XRC domains and targets |
//! | [`multicast`] | members of multicast groups |

pub mod cq;
pub mod multicast;
pub mod qp;
pub mod qp_attr;
pub mod srq;
pub mod xrc;
