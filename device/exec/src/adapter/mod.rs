//! An adapter model, and what a kernel driver does for it.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`bar`] | BAR2, whose pages are those of the programs' device files |
//! | [`host`] | the model's access to memory, doorbells and time |
//! | [`ring`] | the driver's rings |
//! | [`driver`] | bring-up and commands |
//! | [`gsi`] | queue pair 1, for messages between connection managers |
//! | [`bell`] | what wakes the supervisor's thread |
//! | [`traffic`] | rules for deliberate faults, and captures |
//! | [`switch`] | the Ethernet switch between runs, as a run needs it |
//! | [`worker`] | the thread that runs the adapters |
//! | [`pause`] | what it does when it has no work |
//! | [`waker`] | its sleep, and what ends it |

pub mod bar;
pub mod bell;
pub mod driver;
pub mod gsi;
pub mod host;
pub mod pause;
pub mod ring;
pub mod switch;
pub mod traffic;
pub mod waker;
pub mod worker;
