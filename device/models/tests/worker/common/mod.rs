//! The driver of the adapter's own tests, on a host whose doorbells are loom's.

#[path = "../../../../adapter/tests/adapter/common/driver.rs"]
pub(crate) mod driver;
pub(crate) mod host;
#[path = "../../../../adapter/tests/adapter/common/memory.rs"]
pub(crate) mod memory;
#[path = "../../../../adapter/tests/adapter/common/pair.rs"]
pub(crate) mod pair;
