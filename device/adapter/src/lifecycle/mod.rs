//! The reset of an adapter, and its end.
//!
//! | module | contents |
//! | --- | --- |
//! | `reset` | the end of QPs, and the reset of an adapter |
//! | `closing` | the end of an adapter whose daemon ends |

pub(crate) mod closing;
pub(crate) mod reset;
