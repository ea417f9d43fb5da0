//! Memory that the daemon shares with guests.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`mapping`] | a mapping and every access to one; the only unsafe code on guest memory |
//! | [`copy`] | the copy loop of long messages |
//! | [`sigbus`] | what becomes of a mapping whose file is cut short |
//! | [`dma`] | guest addresses: what the VMM mapped for device access |
//! | [`view`] | the same for the length of a turn, and every access by guest address |
//! | [`fault`] | why memory cannot be mapped or accessed |
//! | [`uar`] | BAR2: doorbells and device-resident queues |

mod copy;
pub mod dma;
pub mod fault;
pub mod mapping;
pub mod sigbus;
pub mod uar;
pub mod view;
