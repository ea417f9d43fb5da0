//! vrnic-verify, and what objects show, and what faults and limits do.

pub(crate) mod faults;
pub(crate) mod injected;
pub(crate) mod injected_packets;
pub(crate) mod inspect;
pub(crate) mod limits;
pub(crate) mod processes;
pub(crate) mod verify;
