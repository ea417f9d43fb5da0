//! Formats. Octets are parsed to enums that can hold only valid values, and the enums are converted
//! to octets.
//!
//! | module | contents |
//! | --- | --- |
//! | [`fields`] | fields to write |
//! | [`start`] | MPA's start frames |
//! | [`fpdu`] | sizes of FPDUs |
//! | [`ddp`] | headers of DDP segments |
//! | [`rdmap`] | messages of RDMAP |
//! | [`cause`] | causes of Terminates |
//! | [`terminate`] | the Terminate message |

pub mod cause;
pub mod ddp;
pub mod fields;
pub mod fpdu;
pub mod rdmap;
pub mod start;
pub mod terminate;
