//! Traffic between guests, and its tables.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`perftest`] | the perftest set and its table |
//! | [`mesh`] | traffic between all pairs of guests |
//! | [`transfers`] | transfers between a disk of one guest and the memory of another, and their table |
//! | [`timing`] | the time that such a command took, and the bytes that its adapter moved |

pub mod mesh;
pub mod perftest;
pub mod timing;
pub mod transfers;
