// SPDX-License-Identifier: GPL-2.0
//! A kernel client that connects two machines by the RDMA connection manager and moves data, which
//! it checks, as storage protocols do: the client registers pages for each request, the server
//! reads and writes them and invalidates the key with its answer.
//!
//! Loaded with `peer=0` it serves until it is removed. With the IPv4 address of a server (as a
//! number, first byte highest) it runs `rounds` requests over each of three connections, whose
//! completions it takes in soft interrupts, in a work queue and by polling; loading fails if
//! anything is wrong, and the kernel log says what.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`client`], [`server`] | the two sides |
//! | [`ends`] | the end of a connection by the adapter's own functions |
//! | [`message`] | their messages |
//! | [`pattern`] | the data |
//!
//! `unsafe` is confined to [`ends`] and [`kclient`].

use kclient;
use kernel::{prelude::*, str::CStr};

mod client;
mod ends;
mod message;
mod pattern;
mod server;

use crate::{
    client::Effort,
    kclient::{cq::Poll, server::Running},
    server::Server,
};

/// The owner of the core's objects.
const NAME: &CStr = c"vrnic_kping";
/// Requests outstanding on either queue.
const DEPTH: u32 = 8;

/// The module: a server, if it is one.
struct Module(#[expect(dead_code, reason = "dropped")] Option<Running<Server>>);

impl kernel::Module for Module {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let port = u16::try_from(module_parameters::port.value()).map_err(|_| EINVAL)?;
        match module_parameters::peer.value() {
            0 => Ok(Self(Some(Running::start(Server(Poll::Softirq), port, NAME)?))),
            peer => {
                let rounds = module_parameters::rounds.value();
                let closes = module_parameters::closes.value() != 0;
                let effort = Effort { rounds, closes };
                for poll in [Poll::Softirq, Poll::Workqueue, Poll::Direct] {
                    client::run(peer, port, effort, poll).inspect_err(|error| {
                        pr_err!("the test with completions by {poll:?} failed: {error:?}\n");
                    })?;
                    pr_info!("the data of {rounds} rounds with completions by {poll:?} is right\n");
                }
                Ok(Self(None))
            }
        }
    }
}

module! {
    type: Module,
    name: "vrnic_kping",
    authors: ["vrnic"],
    description: "Kernel client that tests RDMA between two machines",
    license: "GPL v2",
    params: {
        peer: u32 {
            default: 0,
            description: "IPv4 address of the server, as a number; 0 to be one",
        },
        port: u32 {
            default: 7474,
            description: "Port of the server",
        },
        rounds: u32 {
            default: 50,
            description: "Requests over each connection",
        },
        closes: u32 {
            default: 0,
            description: "1 to have the client close its connections by functions of the adapter, with iWARP",
        },
    },
}
