//! Boots guests with a stock Debian kernel and a vrnic adapter, and runs commands in them.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`machine`] | the machine that runs the guests: files, processes, progress |
//! | [`roots`] | kernels and disks, from which guests boot |
//! | [`options`] | the settings of guests and daemons |
//! | [`restore`] | the start of a guest from a snapshot |
//! | [`snapshot`] | the state of a booted machine, from which guests start |
//! | [`protocol`] | messages between a guest's agent and the harness |
//! | [`agent`] | the harness's side of the agent: runs commands, copies files |
//! | [`command`] | a command as the user of the lab wrote it |
//! | [`console`] | the log of a guest's console |
//! | [`adapter`] | an adapter of a guest: names, addresses, sockets |
//! | [`iommu`] | the IOMMU of a guest |
//! | [`memory`] | memory that is plugged into a running guest, and returned |
//! | [`setup`] | the parameters of a guest, and QEMU's arguments for them |
//! | [`guest`] | a QEMU: its console, its agent, its start and end |
//! | [`daemon`] | a running `vrnicd` |
//! | [`fleet`] | a daemon and guests of any number |
//! | [`pair`] | daemons and guests, ready for RDMA |
//! | [`container`] | the root of a container, in which commands run |
//! | [`modules`] | kernel modules that the guests' root does not contain |
//! | [`traffic`] | traffic between guests, and its tables |
//! | [`lab`] | a command in a guest and servers in its peers, for programs from outside of this project |
//! | [`qmp`] | commands for a running QEMU |
//! | [`help`] | the help of programs that scripts start, which tests compare with the scripts' copies |
//!
//! `unsafe` is confined to [`machine::process`] and [`machine::tsc`].

pub mod adapter;
pub mod agent;
pub mod command;
pub mod console;
pub mod container;
pub mod daemon;
pub mod fleet;
pub mod guest;
pub mod help;
pub mod iommu;
pub mod lab;
pub mod machine;
pub mod memory;
pub mod modules;
pub mod options;
pub mod pair;
pub mod protocol;
pub mod qmp;
pub mod restore;
pub mod roots;
pub mod setup;
pub mod snapshot;
pub mod traffic;
