//! Programs of others, and what users of this repository run.

pub(crate) mod apps;
pub(crate) mod checker;
pub(crate) mod image;
pub(crate) mod lab;
pub(crate) mod layouts;
pub(crate) mod libraries;
pub(crate) mod nvme;
pub(crate) mod perftest;
pub(crate) mod ports;
pub(crate) mod readme;
pub(crate) mod system;
pub(crate) mod tools;
