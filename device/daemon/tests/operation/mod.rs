//! The daemon as its operator sees it: start, end, settings, log, monitor.
//!
//! | module | what it tests |
//! | --- | --- |
//! | `drain` | the end of a daemon whose guests have outstanding work requests |
//! | `exec` | `vrnic exec`, shown and changed by the command `vrnic` |
//! | `logs` | repeated actions, which do not fill the log |
//! | `monitor` | the monitor, by the command `vrnic` and over HTTP |
//! | `process` | the daemon as a process: its arguments, its sockets, its end |
//! | `reconfig` | changes to a running daemon through its control socket |
//! | `resources` | the table of resources |
//! | `service` | the files that the packages install |
//! | `stopped` | a daemon that is stopped while its guests end |
//! | `systemd` | the daemon as a service of systemd |
//! | `timeline` | the timeline of a queue pair |
//! | `top` | `vrnic top` on a terminal |

pub(crate) mod drain;
pub(crate) mod exec;
pub(crate) mod logs;
pub(crate) mod monitor;
pub(crate) mod process;
pub(crate) mod reconfig;
pub(crate) mod resources;
pub(crate) mod service;
pub(crate) mod stopped;
pub(crate) mod systemd;
pub(crate) mod timeline;
pub(crate) mod top;
