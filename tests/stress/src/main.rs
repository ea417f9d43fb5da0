//! Uses an RDMA device in ways that end badly: by processes that are killed, that fork, that have
//! many threads, that run out of memory, or whose device fails. Afterwards the callers of these
//! programs count the objects that are left in the kernel and the adapter.
//!
//! | module | what |
//! | --- | --- |
//! | [`kill`] | processes that are killed with all of their objects |
//! | [`workload`] | a process with objects of all kinds |
//! | [`fork`] | processes that fork |
//! | [`threads`] | many threads on one context |
//! | [`outlive`] | a process that goes on when its device fails |
//! | [`idle`] | TCP clients that send nothing |
//! | [`removal`] | a process that posts requests after its device was removed |
//! | [`owner`] | processes that connect a QP: its owner, and a process of another user |
//! | [`starve`] | a process that runs out of memory |
//! | [`connect`] | connections that are begun and ended at random |
//! | [`answer`] | the server of these connections |
//! | [`common`] | the objects that their QPs need |
//! | [`listen`] | a listener that ends while requests arrive |
//! | [`renumber`] | QPs whose numbers are used again |
//! | [`unknown`] | operations that the peer does not support |
//! | [`loopback`] | a QP that is connected to itself |
//! | [`child`] | child processes |
//! | [`heap`] | a heap that runs out of memory |
//!
//! `unsafe` is confined to [`child`] and [`heap`].

mod answer;
mod child;
mod common;
mod connect;
mod fork;
mod heap;
mod idle;
mod kill;
mod listen;
mod loopback;
mod outlive;
mod owner;
mod removal;
mod renumber;
mod starve;
mod threads;
mod unknown;
mod workload;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use answer::Serve;
use connect::{Connect, Reject};
use idle::Idle;
use kill::Kill;
use listen::Listen;
use owner::{Own, Seize};
use removal::Late;
use renumber::Renumber;
use starve::Starve;
use unknown::Unknown;
use workload::Hold;

/// Uses an RDMA device in ways that end badly.
#[derive(Debug, Parser)]
#[command(version)]
enum Command {
    /// Start processes with objects of all kinds and kill them at random times. Prints their
    /// number.
    Kill(Kill),
    /// Fork in several ways, while the device is used.
    Fork,
    /// Use one context in many threads: with separate queues, with shared queues, and with objects
    /// that are created and destroyed.
    Threads,
    /// Create objects of all kinds, and use them, until killed. Prints a line once they exist.
    Hold(Hold),
    /// Use the device until it fails, which must be caused from outside, and check that all
    /// outstanding requests are flushed then. Prints a line once the device is in use.
    Outlive,
    /// Post requests after the device was removed, which must be done from outside, before polling
    /// for the first time. All must be flushed. Prints a line once the queue pairs exist.
    Late(Late),
    /// Create a queue pair of iWARP, print its number, and connect it with `answer` when a file
    /// exists.
    Own(Own),
    /// Connect to a listener by TCP, many times, and send nothing. Prints a line once the
    /// connections are open.
    Idle(Idle),
    /// Try to connect the queue pair of `own`, as another user, which must fail.
    Seize(Seize),
    /// Make every call that allocates memory with too little of it, and keep the objects that are
    /// left then until killed. Prints `done` once all calls are made.
    Starve(Starve),
    /// Connect queue pairs of iWARP by several identifiers at the same time, and end the
    /// connections in any order. Prints what happened.
    Connect(Connect),
    /// Be rejected by `answer`, with private data of several lengths, on any device of iWARP.
    Reject(Reject),
    /// Use operations that the device of `answer` does not support. Each fails, and ends its
    /// connection.
    Unknown(Unknown),
    /// Answer the connections of `connect` and similar commands, as these choose, until killed.
    Answer(Serve),
    /// Listen, connect from the same process, and end the listener while requests arrive. The
    /// accepted connections must stay. Prints their number.
    Listen(Listen),
    /// Create, connect and destroy queue pairs in more threads than the adapter has queue pairs.
    /// Prints their number.
    Renumber(Renumber),
}

fn main() -> ExitCode {
    match execute(&Command::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("vrnic-stress: {e:#}");
            ExitCode::from(2)
        }
    }
}

fn execute(command: &Command) -> Result<()> {
    match command {
        Command::Kill(options) => kill::run(options).map(|fate| println!("{fate}")),
        Command::Fork => fork::run(),
        Command::Threads => threads::run(),
        Command::Hold(options) => workload::hold(options),
        Command::Outlive => outlive::run(),
        Command::Late(options) => removal::run(options),
        Command::Own(options) => owner::own(options),
        Command::Idle(options) => idle::run(options),
        Command::Seize(options) => owner::seize(options),
        Command::Starve(starve) => starve.run(),
        Command::Connect(options) => connect::run(options),
        Command::Reject(options) => connect::rejected(options),
        Command::Unknown(options) => unknown::run(options),
        Command::Answer(options) => answer::run(options),
        Command::Listen(options) => listen::run(options),
        Command::Renumber(options) => renumber::run(options),
    }
}
