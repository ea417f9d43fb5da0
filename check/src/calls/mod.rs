//! The calls of the program: functions of libibverbs and librdmacm that this library exports
//! instead, and those that a program calls by pointers in the objects.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`real`] | the functions of the library itself |
//! | [`pointers`] | pointers in devices that were replaced |
//! | [`opening`] | devices that are opened and closed |
//! | [`domains`] | protection domains |
//! | [`memory`] | memory regions |
//! | [`queues`] | completion queues and their events |
//! | [`pairs`] | queue pairs |
//! | [`shared`] | shared receive queues |
//! | [`data`] | posts and polls |
//! | [`writes`] | posts of the extended interface |
//! | [`polls`] | polls of the extended interface |
//! | [`manager`] | the connection manager |
//! | [`handlers`] | handlers and masks of signals |

mod data;
mod domains;
pub(crate) mod handlers;
mod manager;
mod memory;
mod opening;
mod pairs;
mod pointers;
mod polls;
mod queues;
mod real;
mod shared;
mod writes;

/// Keeps all pointers as they are until [`let_go`], while the process forks.
pub(crate) fn hold() {
    polls::hold();
    writes::hold();
}

/// Ends [`hold`], in this process or in the forked one.
pub(crate) fn let_go() {
    writes::let_go();
    polls::let_go();
}
