//! The control path: what the driver asks for by registers and admin commands.
//!
//! | module | contents |
//! | --- | --- |
//! | [`registers`] | the register file of BAR0 |
//! | [`admin`] | admin commands |
//! | `port` | link, MTU, and whether the port carries traffic |

pub mod admin;
pub(crate) mod port;
pub mod registers;
