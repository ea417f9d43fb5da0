//! Whole-system tests: a daemon, two guests with a stock kernel, and what users run in them.
//!
//! The tests need everything that `scripts/setup` and a build make, and print what is missing;
//! `scripts/test` provides it. A suite boots one pair of guests for all its cases. After a failure
//! it boots a new pair.
//!
//! | module | what |
//! | --- | --- |
//! | [`burst`] | many completion events at once |
//! | [`object_counts`] | counts of objects in use: equal counts before and after show that nothing is left |
//! | [`harness`] | the pair of guests that all cases use, and the code that runs and reports cases |
//! | [`repository`] | files of the repository: its scripts, suites and record |
//! | [`conformance`] | running vrnic-verify |
//! | [`commands`] | commands in guests: a server in one guest and a client in the other, and the results of both |
//! | [`events`] | the handlers of completion events in a guest |
//! | [`kverbs`] | the driver's own kernel client, which tests the devices of its guest |
//! | [`shell`] | the shell on a guest's serial line, which still works after a sleep |
//! | [`nfs`] | files of one guest that another guest mounts, by NFS over RDMA |
//! | [`siw`] | the kernel's software iWARP in place of a guest's adapter |
//! | [`places`] | network namespaces with macvlan devices, bridges and bonds, and programs that connect there |
//! | [`rails`] | one of several devices of a guest |
//! | [`rules`] | rules of the daemon for fault injection |
//! | [`storage`] | a disk of one guest that the other uses |
//! | [`tree`] | the files of the repository, and what their tests show |
//!
//! `tests/suites.toml` lists the suites.
#![forbid(unsafe_code)]

pub mod burst;
pub mod commands;
pub mod conformance;
pub mod events;
pub mod harness;
pub mod kverbs;
pub mod nfs;
pub mod object_counts;
pub mod places;
pub mod rails;
pub mod repository;
pub mod rules;
pub mod shell;
pub mod siw;
pub mod storage;
pub mod tree;
