//! Files of the repository: its crates, its scripts, its suites and their record.
//!
//! | module | what |
//! | --- | --- |
//! | [`forge`] | the runner of a forge, which runs the steps of our action |
//! | [`changed`] | the crates that changed files belong to, and those that depend on them |
//! | [`record`] | the record of whole runs of suites |
//! | [`rows`] | the rows of `tests/suites.toml` |
//! | [`script`] | the scripts of the repository |

pub mod changed;
pub mod forge;
pub mod record;
pub mod rows;
pub mod script;
