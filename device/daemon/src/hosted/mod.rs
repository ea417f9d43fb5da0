//! The adapters of this process.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`adapter`] | an adapter, and its PCI interface for the VMM |
//! | `sink` | the adapter behind its port of the switch |
//! | [`roster`] | the list of all adapters |

pub mod adapter;
pub mod roster;
mod sink;
