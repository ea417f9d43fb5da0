//! The tests of the daemon, as one program: linking a program for each of these modules would take
//! most of the time. `cargo test -p vrnic-device --test daemon MODULE` runs one of them. `hotpath`
//! is a program of its own, because its allocator counts what the whole process allocates.
//!
//! | module | what it tests |
//! | --- | --- |
//! | `network` | frames, uplinks, packets and connections |
//! | `vfio` | VMMs, the memory of their guests, and doorbells |
//! | `common` | the parts that the tests share |
//! | `faults` | faults, injected or not, and whom they affect |
//! | `direct` | direct transfers through the trapped window, BAR4 |
//! | `operation` | the daemon as its operator sees it |
//! | `transfer` | operations between two functions of one daemon |

mod common;
mod direct;
mod faults;
mod network;
mod operation;
mod transfer;
mod vfio;
