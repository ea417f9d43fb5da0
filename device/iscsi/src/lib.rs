//! iSCSI in its full feature phase, as an initiator, without input and output (RFC 7143).
//!
//! The bytes of a TCP stream are parameters, and plain data is returned. The crate uses no sockets,
//! no clock and no guest memory, does not allocate for a peer, and does not depend on the adapter.
//! It knows nothing of login, text keys and sessions: a consumer does these, and passes the
//! [`Config`] that it has negotiated. All input is untrusted: a PDU that is longer than agreed, or
//! whose digest is wrong, ends the stream with a counted reason ([`Malformed`]).
//!
//! | module | contents |
//! | --- | --- |
//! | [`config`] | the properties that both ends have agreed on |
//! | [`header`] | the basic header segment, its fields and opcodes |
//! | [`digest`] | CRC-32C, padding |
//! | [`deframer`] | finds the PDUs in the bytes that arrive |
//! | [`command`] | checks of a SCSI command before it is sent |
//! | [`data_out`] | the answer to an R2T |
#![forbid(unsafe_code)]

pub mod command;
pub mod config;
pub mod data_out;
pub mod deframer;
pub mod digest;
pub mod header;

pub use command::{Device, Direction};
pub use config::Config;
pub use data_out::{DataOut, Solicited};
pub use deframer::{Deframer, Malformed, Part};
pub use digest::Digest;
pub use header::{BHS_LEN, Bhs, Opcode};
