//! Connections, addresses, ports and Ethernet frames.

pub(crate) mod addresses;
pub(crate) mod cm;
pub(crate) mod hosts;
pub(crate) mod interop;
pub(crate) mod pairing;
pub(crate) mod port;
pub(crate) mod rails;
pub(crate) mod raw;
pub(crate) mod vlan;
