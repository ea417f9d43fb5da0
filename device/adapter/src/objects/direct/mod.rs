//! Address ranges of direct transfers, and the marks in them.
//!
//! | module | contents |
//! | --- | --- |
//! | [`mark_wait`] | AWAITs that wait for a mark |
//! | [`ranges`], [`range`] | address ranges of direct transfers |

pub mod mark_wait;
pub mod range;
pub mod ranges;
