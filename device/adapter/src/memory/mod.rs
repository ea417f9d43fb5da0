//! Memory that the guest describes, and the access rights to it.
//!
//! | module | contents |
//! | --- | --- |
//! | [`pages`] | page lists, and rings in such pages |
//! | [`tpt`] | regions and windows, and the checks of all accesses |
//! | [`mtt`], `word_arena` | the page tables of regions, and their storage |
//! | [`device_sq`] | the part of BAR2 that holds send queues |

pub mod device_sq;
pub mod mtt;
pub mod pages;
pub mod tpt;
mod word_arena;
