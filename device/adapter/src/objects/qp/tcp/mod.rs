//! The TCP connections of QPs.

pub mod link;
