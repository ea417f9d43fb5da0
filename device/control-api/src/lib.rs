//! The messages between vrnicd and its clients, such as the command `vrnic`: requests and replies
//! of the control socket, the settings of objects in them, and the views of the monitor.
//!
//! | module | contents |
//! | --- | --- |
//! | [`request`] | requests and replies |
//! | [`function`], [`port`], [`uplink`] | the settings of one object |
//! | [`source`], [`storm`], [`vlans`] | settings of ports |
//! | [`lanes`] | the settings of the lanes of a port |
//! | [`per_second`] | amounts per second |
//! | [`share`] | shares of the workers' time |
//! | [`assignment`] | amounts of resources |
//! | `fields` | texts of the form `key=value` |
//! | [`error`] | errors in settings |
//! | [`address`] | the address of the monitor |
//! | [`adapter_view`], [`port_view`], [`resource_view`], [`faults`] | views of the monitor |
//! | [`trace`] | the timeline of a queue pair |
#![forbid(unsafe_code)]

pub mod adapter_view;
pub mod address;
pub mod assignment;
pub mod error;
pub mod faults;
mod fields;
pub mod function;
pub mod lanes;
pub mod per_second;
pub mod port;
pub mod port_view;
pub mod request;
pub mod resource_view;
pub mod share;
pub mod source;
pub mod storm;
pub mod trace;
pub mod uplink;
pub mod vlans;

pub use adapter_view::AdapterView;
pub use address::Address;
pub use function::{FunctionCeilings, FunctionConfig};
pub use lanes::LanesConfig;
pub use port::PortConfig;
pub use port_view::PortView;
pub use resource_view::ResourceRow;
pub use uplink::UplinkConfig;
