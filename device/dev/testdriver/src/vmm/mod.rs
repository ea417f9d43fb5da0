//! The part of a VMM: a daemon process, and the messages of vfio-user.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`vfio`] | the bus to a daemon: the VMM's part (memory, interrupts, configuration space) |
//! | [`daemon`] | a daemon process in a temporary folder |
//! | [`arming`] | completion queues armed at random |
//! | [`relay`] | the VMM's answers to requests of the daemon |
//! | [`raw`] | vfio-user messages byte by byte, for hostile messages |

pub mod arming;
pub mod daemon;
pub mod raw;
pub mod relay;
pub mod vfio;
