//! The memory that the adapter reaches: that of the programs, and that of its driver.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`space`] | the memory of one process |
//! | [`spaces`] | the processes whose memory the adapter reaches, by number |
//! | [`guarded`] | mappings of device files, whose pages may go |
//! | [`words`] | copies to and from shared words |

pub mod guarded;
pub mod space;
pub mod spaces;
pub mod words;

/// log2 of the length of a page.
pub const PAGE_SHIFT: u8 = 12;
/// Length of a page in bytes.
pub const PAGE: u64 = 1 << PAGE_SHIFT;
