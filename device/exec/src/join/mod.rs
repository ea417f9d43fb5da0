//! Networks that runs share with each other, and with the guests of a daemon.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`resolution`] | the formats of address resolution: ARP and neighbour discovery |
//! | [`neighbors`] | the MACs of addresses |
//! | [`station`] | an adapter at its port of the switch |
//! | [`folder`] | the folder in which runs find each other, and agree on addresses |
//! | [`membership`] | a run as a member of a network |

pub mod folder;
pub mod membership;
pub mod neighbors;
pub mod resolution;
pub mod station;
