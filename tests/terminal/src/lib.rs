//! Recordings of programs on a terminal, and their pictures as SVG, for documents.
//!
//! | module | contents |
//! | --- | --- |
//! | `colours` | the colours of terminals |
//! | [`recording`] | the file of a recording |
//! | [`recorder`] | makes a recording of a program |
//! | [`screens`] | what the terminal shows, and when |
//! | [`svg`] | the picture |

#![forbid(unsafe_code)]

mod colours;
pub mod recorder;
pub mod recording;
pub mod screens;
pub mod svg;
