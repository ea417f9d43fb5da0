//! Workers: the threads that run the adapters.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`engine`], [`engines`] | what a worker runs, and the list of it |
//! | [`idle`] | when to spin, nap or sleep |
//! | [`sleep`] | how a worker goes to sleep |
//! | [`waker`], [`event`] | how it is woken |
//! | `sync` | the atomics that models replace |
//! | [`attendance`] | whether a worker or its own thread runs the switch |
//! | [`pool`] | the threads |

pub mod attendance;
pub mod engine;
pub mod engines;
pub mod event;
pub mod idle;
pub mod pool;
pub mod sleep;
mod sync;
pub mod waker;
