//! Formats. Octets are parsed into enums that have no wrong values, and made out of them.
//!
//! | module | contents |
//! | --- | --- |
//! | [`cursor`] | fields, one after the other |
//! | [`start`] | MPA's start frames |
//! | [`fpdu`] | sizes of FPDUs |
//! | [`ddp`] | headers of DDP segments |
//! | [`rdmap`] | messages of RDMAP |
//! | [`cause`] | causes of Terminates |
//! | [`terminate`] | the Terminate message |

pub mod cause;
pub mod cursor;
pub mod ddp;
pub mod fpdu;
pub mod rdmap;
pub mod start;
pub mod terminate;
