//! libvrnic_check: names the mistakes that a program makes with verbs, while it runs.
//!
//! The library is loaded into a program with `LD_PRELOAD`. Its functions stand in for those of
//! libibverbs and librdmacm, which they call. It follows all objects and requests, compares them
//! with the rules of [docs/checker.md], and prints what is against one. The program needs no
//! change, and any device will do.
//!
//! A fault of the checker must not change the program: the checker ends its work if it fails.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`rules`] | the rules |
//! | [`options`] | the environment variable with options |
//! | [`ffi`] | bindings of libibverbs and librdmacm |
//! | [`stack`] | stacks of calls |
//! | [`bytes`] | the bytes of buffers |
//! | [`direct`] | copies of memory that may be gone |
//! | [`handler`] | the handler of signals of memory that cannot be used |
//! | [`guard`] | buffers that the program cannot write to |
//! | [`signals`] | writes without signals, and work that is not cancelled |
//! | [`report`] | what is printed |
//! | [`sarif`] | reports for forges |
//! | [`model`] | objects and requests, and the checks |
//! | [`checker`] | the checker of this process |
//! | [`calls`] | functions that stand in for those of libibverbs and librdmacm |
//! | [`start`] | begin and end of the process |
//!
//! `unsafe` is confined to [`stack`], [`bytes`], [`direct`], [`handler`], [`guard`], [`checker`],
//! [`signals`], [`calls`] and [`start`].

mod bytes;
mod calls;
mod checker;
mod direct;
mod ffi;
mod guard;
mod handler;
mod model;
pub mod options;
mod report;
pub mod rules;
mod sarif;
mod signals;
mod stack;
mod start;
