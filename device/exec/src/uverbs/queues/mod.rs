//! Queues: their creation, changes and attributes.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`cq`] | completion queues |
//! | [`qp`], [`qp_attr`] | queue pairs, and their attributes |
//! | [`srq`] | shared receive queues |

pub mod cq;
pub mod qp;
pub mod qp_attr;
pub mod srq;
