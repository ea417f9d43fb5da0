//! The atomics of what the models run; there they are loom's (docs/testing.md).

pub(super) use std::sync::atomic::{AtomicBool, AtomicUsize, fence};
