//! Two connection managers, and a network in virtual time that loses, repeats and delays messages.
//!
//! | module | contents |
//! | --- | --- |
//! | [`world`] | the managers and the network |
//! | [`pair`] | connections |
//! | [`datagrams`] | resolution of service IDs |
//! | [`hostile`] | hostile peers |
#![forbid(unsafe_code)]

mod datagrams;
mod hostile;
mod pair;
mod world;
