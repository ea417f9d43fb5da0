//! Workers: the threads that run the adapters.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`engine`] | what a worker runs |
//! | [`idle`] | when to spin, nap or sleep |
//! | [`sleep`] | how a worker goes to sleep |
//! | [`waker`], [`event`] | how it is woken |
//! | `sync` | the atomics that models replace |
//! | [`pool`] | the threads |

pub mod engine;
pub mod event;
pub mod idle;
pub mod pool;
pub mod sleep;
mod sync;
pub mod waker;
