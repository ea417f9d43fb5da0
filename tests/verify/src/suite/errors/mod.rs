//! Errors on both sides, and the peers that cause them.
//!
//! | module | cases |
//! | --- | --- |
//! | [`retry`] | receivers that are not ready, peers that are absent or late |
//! | [`local_errors`], [`remote_errors`] | the completions of each fault, on both sides |
//! | [`isolation`] | other processes, other peers |
//! | [`hostile`] | garbage in the shared memory (only vrnic) |

#[cfg(feature = "vrnic")]
pub(crate) mod hostile;
pub(crate) mod isolation;
pub(crate) mod local_errors;
pub(crate) mod remote_errors;
pub(crate) mod retry;
