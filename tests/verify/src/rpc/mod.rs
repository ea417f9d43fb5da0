//! The protocol between the suite and its agents: one request, one answer, over a stream socket.
//!
//! | module | what |
//! | --- | --- |
//! | [`failure`] | why a call failed |
//! | [`frame`] | messages on a stream |
//! | [`client`] | the suite's handle of an agent |
//! | [`process`] | starting agents |
//! | [`values`] | parameters and results of calls |
//! | [`vrnic`] | parameters and results of calls that only vrnic has |

pub(crate) mod client;
pub(crate) mod failure;
pub(crate) mod frame;
pub(crate) mod process;
pub(crate) mod values;
#[cfg(feature = "vrnic")]
pub(crate) mod vrnic;
