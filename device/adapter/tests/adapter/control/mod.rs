//! Admin commands, limits and ceilings.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `admin` | admin commands: statuses, ownership, limits, creation and destruction of objects |
//! | `inspect` | INSPECT |
//! | `assigned` | an adapter's own maximum of each resource, and the number that it uses |
//! | `limits` | the limits of QUERY_DEVICE |
//! | `slices` | how long a poll of an adapter takes |

pub(crate) mod admin;
pub(crate) mod assigned;
pub(crate) mod inspect;
pub(crate) mod limits;
pub(crate) mod slices;
