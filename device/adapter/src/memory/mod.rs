//! Memory that the guest describes, and who may use it.
//!
//! | module | contents |
//! | --- | --- |
//! | [`pages`] | page lists, and the rings that lie in them |
//! | [`tpt`] | regions and windows, and the one check of access |
//! | [`mtt`], `word_arena` | the pages of regions; where these tables stand |
//! | [`device_sq`] | the part of BAR2 that holds send queues |

pub mod device_sq;
pub mod mtt;
pub mod pages;
pub mod tpt;
mod word_arena;
