//! Boots guests with a stock Debian kernel and a vrnic adapter, and runs commands in them.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`paths`] | the paths of the cached roots and of what was built |
//! | [`accel`] | KVM where it boots a stock kernel, TCG elsewhere |
//! | [`process`] | child processes that end with this process in any case |
//! | [`rundir`] | the folder of a run, which is removed in any case |
//! | [`signals`] | signals that end this process, and what is saved before that |
//! | [`overlay`] | files on top of the guests' base image |
//! | [`archive`] | unpacks such files in a guest |
//! | [`options`] | the settings of guests and daemons |
//! | [`restore`] | the start of a guest from a snapshot |
//! | [`snapshot`] | the state of a booted machine, from which guests start |
//! | [`protocol`] | messages between a guest's agent and the harness |
//! | [`agent`] | the harness's side of the agent: runs commands, copies files |
//! | [`clock`] | the time that the steps of a start take |
//! | [`command`] | a command as the user of the lab wrote it |
//! | [`console`] | the log of a guest's console |
//! | [`adapter`] | an adapter of a guest: names, addresses, sockets |
//! | [`hosts`] | the names of guests, as programs look them up |
//! | [`root`] | the kernel and the disk from which a guest boots |
//! | [`system`] | guests that are ordinary Debian systems |
//! | [`disk`] | a disk of the user with a whole system, as the root of guests |
//! | [`iommu`] | the IOMMU of a guest |
//! | [`memory`] | memory that is plugged into a running guest, and returned |
//! | [`setup`] | the parameters of a guest, and QEMU's arguments for them |
//! | [`guest`] | a QEMU: its console, its agent, its start and end |
//! | [`daemon`] | a running `vrnicd` |
//! | [`fleet`] | a daemon and guests of any number |
//! | [`pair`] | daemons and guests, ready for RDMA |
//! | [`kernel`] | releases of kernels, and modules that fit them |
//! | [`stock`] | all modules of the stock kernel |
//! | [`container`] | the root of a container, in which commands run |
//! | [`terminal`] | a person's terminal, connected with a guest |
//! | [`modules`] | kernel modules that the guests' root does not contain |
//! | [`perftest`] | the perftest set and its table |
//! | [`mesh`] | traffic between all pairs of guests |
//! | [`transfers`] | transfers between a disk of one guest and the memory of another, and their table |
//! | [`lab`] | a command in a guest and servers in its peers, for programs from outside of this project |
//! | [`timing`] | the time that such a command took, and the bytes that its adapter moved |
//! | [`tsc`] | the frequency of the counter that guests take as their clock |
//! | [`room`] | the memory and the room on the disk that guests need and that this machine has |
//! | [`qmp`] | commands for a running QEMU |
//! | [`help`] | the help of programs that scripts start, which tests compare with the scripts' copies |
//! | [`progress`] | progress lines as the scripts write them |
//!
//! `unsafe` is confined to [`process`] and [`tsc`].

pub mod accel;
pub mod adapter;
pub mod agent;
pub mod archive;
pub mod clock;
pub mod command;
pub mod console;
pub mod container;
pub mod daemon;
pub mod disk;
pub mod fleet;
pub mod guest;
pub mod help;
pub mod hosts;
pub mod iommu;
pub mod kernel;
pub mod lab;
pub mod memory;
pub mod mesh;
pub mod modules;
pub mod options;
pub mod overlay;
pub mod pair;
pub mod paths;
pub mod perftest;
pub mod process;
pub mod progress;
pub mod protocol;
pub mod qmp;
pub mod restore;
pub mod room;
pub mod root;
pub mod rundir;
pub mod setup;
pub mod signals;
pub mod snapshot;
pub mod stock;
pub mod system;
pub mod terminal;
pub mod timing;
pub mod transfers;
mod tsc;
