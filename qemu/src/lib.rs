//! Boots guests with a stock Debian kernel and our adapter, and commands them.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`paths`] | where the cached roots and the built parts are |
//! | [`accel`] | KVM where it really boots a stock kernel, TCG elsewhere |
//! | [`process`] | child processes that die with us, whatever happens |
//! | [`rundir`] | the folder of a run, removed whatever happens |
//! | [`overlay`] | what is put over the guests' base image |
//! | [`protocol`] | messages between a guest's agent and the harness |
//! | [`agent`] | the harness's end of them: run commands, move files |
//! | [`console`] | what the log of a guest's console says |
//! | [`adapter`] | an adapter of a guest: names, addresses, sockets |
//! | [`root`] | what a guest boots from |
//! | [`system`] | guests that are ordinary Debian systems |
//! | [`iommu`] | the IOMMU of a guest |
//! | [`memory`] | memory that a running machine gets, and gives back |
//! | [`guest`] | one QEMU: its arguments, console, life |
//! | [`daemon`] | a running `vrnicd` |
//! | [`pair`] | daemons and guests, ready for RDMA |
//! | [`modules`] | modules of the kernel that the guests' root lacks |
//! | [`perftest`] | the perftest set and its table |
//! | [`mesh`] | traffic between each two guests |
//! | [`lab`] | a command in a guest and servers in its peers, for programs that are not ours |
//! | [`timing`] | how long such a command took, and what its adapter moved |
//! | [`room`] | the memory that guests need and this machine has |
//! | [`qmp`] | commands for a running QEMU |
//! | [`help`] | the help of programs that scripts start, which tests compare with the scripts' |
//! | [`progress`] | progress lines as the scripts write them |
//!
//! `unsafe` is confined to [`process`].

pub mod accel;
pub mod adapter;
pub mod agent;
pub mod console;
pub mod daemon;
pub mod guest;
pub mod help;
pub mod iommu;
pub mod lab;
pub mod memory;
pub mod mesh;
pub mod modules;
pub mod overlay;
pub mod pair;
pub mod paths;
pub mod perftest;
pub mod process;
pub mod progress;
pub mod protocol;
pub mod qmp;
pub mod room;
pub mod root;
pub mod rundir;
pub mod system;
pub mod timing;
