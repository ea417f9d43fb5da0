//! States of queue pairs and other objects, and the attributes that they take.
//!
//! | module | cases |
//! | --- | --- |
//! | [`attributes`] | attributes of the device and the port |
//! | [`connections`] | connections by the connection manager (only with `--cm`) |
//! | [`mistakes`] | attributes that do not match the attributes of the peer |
//! | [`states`] | the state machine of QPs |
//! | [`transitions`] | the state machine: every pair of states with every attribute |
//! | [`lifecycle`] | limits, use after destruction, destruction in use, reuse |

pub(crate) mod attributes;
pub(crate) mod connections;
pub(crate) mod lifecycle;
pub(crate) mod mistakes;
pub(crate) mod states;
pub(crate) mod transitions;
