//! Building blocks of cases.
//!
//! | module | what |
//! | --- | --- |
//! | [`env`] | the two agents of a case, and more of them |
//! | [`region`] | registered memory with known contents |
//! | [`side`] | one end of a connection: PD, CQs, QP |
//! | [`window`] | a window over a part of a region |
//! | [`expect`] | completions and errors that must come |

pub(super) mod env;
pub(super) mod expect;
pub(super) mod region;
pub(super) mod side;
pub(super) mod window;

pub(super) use env::{End, Env};
pub(super) use expect::{expect_errno, expect_error, one_of};
pub(super) use region::Region;
pub(super) use side::{Link, Options, Side};
