//! The atomics of the code that the models run; in models these are the atomics of loom
//! (docs/testing.md).

pub(super) use std::sync::atomic::{AtomicBool, AtomicUsize, fence};
