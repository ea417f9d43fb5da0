//! RDMAP and DDP: messages above FPDUs (RFC 5040, RFC 5041, RFC 7306).
//!
//! | module | contents |
//! | --- | --- |
//! | [`memory`] | the memory of the two ends, as the caller reaches it |
//! | [`work`] | work requests and their outcomes |
//! | [`log`] | messages in the stream that is sent |
//! | `pool` | private copies of short messages |
//! | [`completion`] | the two rules of completion |
//! | [`requester`] | work requests that are not completed |
//! | `answers` | answers that are missing |
//! | [`responder`] | READs and atomics of the peer |
//! | [`receive`] | messages that arrive |
//! | [`ahead`] | segments that were placed ahead of their turn |
//! | [`terminate`] | from refusals to causes, and from causes to outcomes |

pub mod ahead;
mod answers;
pub mod completion;
pub mod log;
pub mod memory;
mod pool;
pub mod receive;
pub mod requester;
pub mod responder;
pub mod terminate;
pub mod work;
