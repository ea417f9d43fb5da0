//! The machine that runs the guests: its files, its processes, what it tells the user.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`paths`] | the paths of the cached roots and of what was built |
//! | [`accel`] | KVM where it boots a stock kernel, TCG elsewhere |
//! | [`process`] | child processes that end with this process in any case |
//! | [`rundir`] | the folder of a run, which is removed in any case |
//! | [`signals`] | signals that end this process, and what is saved before that |
//! | [`clock`] | the time that the steps of a start take |
//! | [`terminal`] | a person's terminal, connected with a guest |
//! | [`tsc`] | the frequency of the counter that guests take as their clock |
//! | [`room`] | the memory and the room on the disk that guests need and that this machine has |
//! | [`progress`] | progress lines as the scripts write them |

pub mod accel;
pub mod clock;
pub mod paths;
pub mod process;
pub mod progress;
pub mod room;
pub mod rundir;
pub mod signals;
pub mod terminal;
pub(crate) mod tsc;
