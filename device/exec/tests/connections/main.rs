//! The connection manager for programs: commands and events, without the system calls.
//!
//! | module | contents |
//! | --- | --- |
//! | [`world`] | the connection manager and a program |
//! | [`lifecycle`] | connections from their request to their end |
//! | [`addresses`] | addresses, ports and options |
//! | [`hostile`] | hostile commands |
#![forbid(unsafe_code)]

mod addresses;
mod hostile;
mod lifecycle;
mod world;
