//! Workers: the threads that run the adapters.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`engine`] | what a worker runs |
//! | [`gear`] | when to spin, nap or sleep |
//! | [`bell`] | how a worker sleeps and is woken |
//! | [`pool`] | the threads |

pub mod bell;
pub mod engine;
pub mod gear;
pub mod pool;
