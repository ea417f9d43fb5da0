//! `vrnic exec`: runs programs with vrnic adapters, without a virtual machine and a kernel module.
//!
//! The adapters are the daemon's model, in this process. Programs use them by the stock libibverbs
//! and the plugin, as in a guest. What the kernel does in a guest, this process does: it answers
//! the system calls that concern RDMA devices (`trap`), executes the requests of libibverbs
//! (`uverbs`), and lets the adapters access the memory of the programs (`memory`).
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`run`] | the command |
//! | [`control`] | what clients see of a run, and what they can change |
//! | [`environment`] | checks whether this host can run programs with adapters |
//! | [`join`] | networks that runs share |
//! | [`trap`] | the system calls that are answered, and how they get here |
//! | [`uverbs`] | the interface of device files to programs |
//! | [`formats`] | formats of the kernel's interfaces |
//! | [`rdma_cm`] | the connection manager for programs |
//! | [`supervisor`] | the thread that answers, and the program's processes |
//! | [`adapter`] | an adapter model, and what a kernel driver does for it |
//! | [`descriptors`] | the descriptors of the supervisor |
//! | [`memory`] | the memory that the adapter reaches |
//! | [`signals`] | the signals that the supervisor's threads block |
//!
//! Everything that a program passes is hostile: it is copied once and then checked. The threat
//! model is in docs/exec.md.
//!
//! `unsafe` is confined to [`adapter::bar`], [`memory::guarded`], [`trap::launch`] and
//! [`trap::listener`].

pub mod adapter;
pub mod control;
pub mod descriptors;
pub mod environment;
pub mod formats;
pub mod join;
pub mod memory;
pub mod rdma_cm;
pub mod run;
pub mod signals;
pub mod supervisor;
pub mod trap;
pub mod uverbs;
