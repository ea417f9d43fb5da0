//! What ends or disturbs objects while they are in use.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `ends` | objects that end while workers use them |
//! | `resets` | fatal errors and resets |
//! | `faults` | panics in a turn of two adapters |
//! | `injection` | faults by rules |
//! | `threads` | two adapters with a worker thread each |

pub(crate) mod ends;
pub(crate) mod faults;
pub(crate) mod injection;
pub(crate) mod resets;
pub(crate) mod threads;
