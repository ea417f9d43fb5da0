//! RDMAP and DDP: messages above FPDUs (RFC 5040, RFC 5041, RFC 7306).
//!
//! | module | contents |
//! | --- | --- |
//! | [`memory`] | the interface to the memory of the two ends |
//! | [`work`] | work requests and their outcomes |
//! | [`log`] | the log of sent messages |
//! | `pool` | private copies of short messages |
//! | [`completion`] | the two rules of completion |
//! | [`requester`] | work requests that are not completed |
//! | `answers` | outstanding READs and atomics |
//! | [`responder`] | READs and atomics of the peer |
//! | [`receive`] | received messages |
//! | [`early_segments`] | segments that were placed out of order |
//! | [`terminate`] | the causes of refusals, and the outcomes of causes |

mod answers;
pub mod completion;
pub mod early_segments;
pub mod log;
pub mod memory;
mod pool;
pub mod receive;
pub mod requester;
pub mod responder;
pub mod terminate;
pub mod work;
