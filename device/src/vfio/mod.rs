//! The vfio-user edge: one Unix socket a function, served by the `vfio_user` crate.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`device`] | the trait through which the edge talks to a function |
//! | [`regions`] | regions and interrupts as the VMM is told of them |
//! | [`server`] | the thread that serves one VMM after another |

pub mod device;
pub mod regions;
pub mod server;
