//! The table of resources: what the adapter of this daemon has, and what each function may use.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`table`] | the table, and the admission of functions |
//! | [`refusal`] | why a function or a change is refused |

pub mod refusal;
pub mod table;
