//! The environment of an adapter model in this process.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`vfio_host`] | guest memory, BAR2, vectors, clock and wakers of an adapter |
//! | [`control`] | the thread that runs an adapter's control work |
//! | [`external_thread`] | the thread that waits for the VMM, which reads and writes memory |
//! | [`failure`] | containment of panics |
//! | [`irq`] | MSI-X vectors, and signals to eventfds of other processes without waiting |

pub mod control;
pub mod external_thread;
pub mod failure;
pub mod irq;
pub mod vfio_host;
