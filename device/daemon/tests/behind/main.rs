//! Memory without a mapping, which the daemon reads and writes by messages to the VMM.
//!
//! | module | contents |
//! | --- | --- |
//! | [`common`] | the parts that all tests of the daemon share |
//! | [`device`] | the device with such memory, and the functions of a daemon |
//! | [`messages`] | such memory as source and sink of messages |
//! | [`packets`] | messages that travel in packets |
//! | [`faults`] | a VMM that lies or is silent, and memory that goes away |

#[path = "../common/mod.rs"]
mod common;
mod device;
mod faults;
mod messages;
mod packets;
