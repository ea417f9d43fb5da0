//! Memory without a mapping, which the daemon reads and writes by messages to the VMM.
//!
//! | module | contents |
//! | --- | --- |
//! | [`device`] | the device with such memory, and the functions of a daemon |
//! | [`messages`] | such memory as source and sink of messages |
//! | [`packets`] | messages that travel in packets |
//! | [`faults`] | a VMM that lies or is silent, and memory that goes away |

mod device;
mod faults;
mod messages;
mod packets;
