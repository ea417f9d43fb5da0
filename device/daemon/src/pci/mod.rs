//! The PCI interface of a function.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`config`] | the configuration space: bytes, write masks, capabilities |
//! | [`capability`] | the capabilities' layouts |

pub mod capability;
pub mod config;
