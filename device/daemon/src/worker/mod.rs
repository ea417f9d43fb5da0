//! Workers: the threads that execute the adapters' work.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`engine`], [`engines`] | what a worker polls, and the list of these objects |
//! | [`idle`] | the choice between spinning, napping and sleeping |
//! | [`sleep`] | the order of steps before a worker sleeps |
//! | [`waker`] | wake-ups |
//! | `sync` | the atomics that the models replace |
//! | [`attendance`] | the choice of the thread that runs the switch |
//! | [`pool`] | the worker threads |
//! | [`turns`] | the shares of engines in a worker's time |
//! | [`pulse`] | pings of workers and of other threads |

pub mod attendance;
pub mod engine;
pub mod engines;
pub mod idle;
pub mod pool;
pub mod pulse;
pub mod sleep;
mod sync;
pub mod turns;
pub mod waker;

pub use vrnic_control::event;
