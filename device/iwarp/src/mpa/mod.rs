//! MPA (RFC 5044, RFC 6581): start frames, FPDUs in a byte stream, markers.
//!
//! | module | contents |
//! | --- | --- |
//! | [`start`] | the negotiation of the two ends |
//! | [`markers`] | positions with and without markers |
//! | [`framer`] | FPDUs that are sent |
//! | [`deframer`] | FPDUs that arrive |

pub mod deframer;
pub mod framer;
pub mod markers;
pub mod start;
