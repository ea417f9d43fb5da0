//! What the program has made and posted, and whether that is right. Nothing here touches memory of
//! the program but [`bytes`](crate::bytes).
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`objects`] | devices, domains, queues |
//! | [`regions`] | memory regions |
//! | [`requests`] | requests between post and completion |
//! | [`tables`] | all objects of the process |
//! | [`order`] | requests that must not overtake each other |
//! | [`posts`] | checks of requests that are posted |
//! | [`completions`] | what completions show |
//! | [`ends`] | objects that are destroyed or left |
//! | [`events`] | events and their acknowledgement |
//! | [`manager`] | identifiers of the connection manager |

pub(crate) mod completions;
pub(crate) mod ends;
pub(crate) mod events;
pub(crate) mod manager;
pub(crate) mod objects;
pub(crate) mod order;
pub(crate) mod posts;
pub(crate) mod regions;
pub(crate) mod requests;
pub(crate) mod tables;
