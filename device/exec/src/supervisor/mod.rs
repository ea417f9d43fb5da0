//! The supervisor: it answers the system calls of programs, and ends with them.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`answers`] | the thread that answers system calls |
//! | [`opened`] | the device files that programs have opened |
//! | [`connections`] | system calls on files of the connection manager |
//! | [`deferred`] | requests that wait for the address of a peer |
//! | [`caller`] | the process that makes a request |
//! | [`closing`] | the end of device files |
//! | [`program`] | the program's processes: signals, exit status, what it leaves behind |
//! | [`plugin`] | the plugin of libibverbs |

pub mod answers;
pub mod caller;
pub mod closing;
pub mod connections;
pub mod deferred;
pub mod opened;
pub mod plugin;
pub mod program;
