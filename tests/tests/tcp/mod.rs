//! Adapters whose queue pairs use TCP.

pub(crate) mod iscsi;
pub(crate) mod iwarp;
pub(crate) mod iwarp_gateway;
pub(crate) mod iwarp_nfs;
pub(crate) mod iwarp_numbers;
pub(crate) mod iwarp_plain;
pub(crate) mod iwarp_races;
pub(crate) mod siw;
pub(crate) mod storage;
pub(crate) mod toe;
