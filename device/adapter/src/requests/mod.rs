//! Work requests as a guest wrote them.
//!
//! | module | contents |
//! | --- | --- |
//! | [`wqe`] | parsing and checking the copy of an entry |
//! | [`command_tag`] | where messages carry the keys of commands |

pub mod command_tag;
pub mod wqe;
