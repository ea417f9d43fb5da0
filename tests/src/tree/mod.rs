//! The files of the repository, and what their tests show.
//!
//! | module | what |
//! | --- | --- |
//! | [`files`] | the files |
//! | [`shows`] | the tags in doc comments that say what a test shows |

pub mod files;
pub mod shows;
