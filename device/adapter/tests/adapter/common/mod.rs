//! Shared by the adapter's tests: a host without a daemon, and a software driver on top of it.

pub(crate) mod driver;
pub(crate) mod host;
pub(crate) mod memory;
pub(crate) mod pair;
