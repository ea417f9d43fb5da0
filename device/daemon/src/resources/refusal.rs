//! Why a function, or a change of its resources, is refused.

use thiserror::Error;

/// The reason of a refusal. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The table has no free row.
    #[error(
        "out of entries: there is room for {0} functions, as many as the daemon was started with, or 16"
    )]
    Entries(usize),
    /// Less of a resource is left than was requested.
    #[error(
        "out of resources: {requested} of {resource} were requested, and {left} of {maximum} are left"
    )]
    Resources {
        /// The name of the resource.
        resource: &'static str,
        /// The amount requested.
        requested: u64,
        /// The amount left.
        left: u64,
        /// The maximum of the adapter.
        maximum: u64,
    },
    /// More of a resource is assigned than the adapter would have.
    #[error("{assigned} of {resource} are assigned to functions, more than {maximum}")]
    Assigned {
        /// The name of the resource.
        resource: &'static str,
        /// The amount assigned.
        assigned: u64,
        /// The new maximum of the adapter.
        maximum: u64,
    },
    /// There is no such function.
    #[error("there is no function '{0}'")]
    Absent(String),
}
