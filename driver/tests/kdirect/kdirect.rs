// SPDX-License-Identifier: GPL-2.0
//! A kernel client whose server gives a peer blocks of a disk, and takes blocks from it, by direct
//! transfers (`direct.h`): the disk's controller moves them to and from the adapter's memory, and
//! the adapter from there to the peer. They are never in the server's RAM.
//!
//! With the number of a disk it serves until it is removed. With the IPv4 address of a server (as a
//! number, first byte highest) it asks for blocks; loading fails if anything goes wrong, and the
//! kernel log says what, or the CRC-32 of the data.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`client`], [`server`] | the two sides |
//! | [`message`] | their messages |
//! | [`desk`] | what a connection of the server has: its ranges, packet memory and requests |
//! | [`ranges`] | the address ranges of a connection, or the marks in their place |
//! | [`through`] | transfers through the window |
//! | [`disk`] | the disk, or two of them |
//! | [`bindings`] | the C functions that reach the disk |
//!
//! `unsafe` is confined to [`disk`], [`ranges`] and [`kclient`].

use kclient;
use kernel::{prelude::*, str::CStr};

#[path = "../kclient/client_bindings.rs"]
mod bindings;
mod client;
mod desk;
mod disk;
mod message;
mod ranges;
mod server;
mod through;

use crate::{disk::Disks, kclient::server::Running};

/// The owner of the core's objects.
const NAME: &CStr = c"vrnic_kdirect";
/// Address ranges of a connection.
const RANGES: usize = 8;
/// Bytes of the blocks of a request, at most.
const MAX_LENGTH: usize = RANGES * ranges::LENGTH;
/// Requests outstanding on either queue: TRANSFER and WRITE of each range, the answer, one more.
const DEPTH: u32 = 2 * RANGES as u32 + 2;

/// The module: a server, if it is one.
struct Module(#[expect(dead_code, reason = "dropped")] Option<Running<Disks>>);

impl kernel::Module for Module {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let port = u16::try_from(module_parameters::port.value()).map_err(|_| EINVAL)?;
        match module_parameters::disk.value() {
            0 => client::run(port).map(|()| Self(None)),
            disk => {
                let disks = Disks::open(disk, module_parameters::disk2.value())?;
                Ok(Self(Some(Running::start(disks, port, NAME)?)))
            }
        }
    }
}

module! {
    type: Module,
    name: "vrnic_kdirect",
    authors: ["vrnic"],
    description: "Kernel client that moves blocks between a disk and a peer by direct transfers",
    license: "GPL v2",
    params: {
        disk: u32 {
            default: 0,
            description: "Number of the server's disk, its major number times 2^20 plus its minor number; 0 to be a client",
        },
        disk2: u32 {
            default: 0,
            description: "Number of a second disk, which has every other range of a transfer by way 2; 0 for none",
        },
        peer: u32 {
            default: 0,
            description: "IPv4 address of the client's server, as a number",
        },
        port: u32 {
            default: 7475,
            description: "Port of the server",
        },
        write: u32 {
            default: 0,
            description: "1 for a client that gives random blocks to the server, 0 for one that takes blocks",
        },
        sector: u64 {
            default: 0,
            description: "First sector of the blocks",
        },
        bytes: u32 {
            default: 32768,
            description: "Bytes of all blocks",
        },
        chunk: u32 {
            default: 32768,
            description: "Bytes of a request, at most 32768",
        },
        silent: u32 {
            default: 0,
            description: "1 to have the server not use its disk, so that its transfers are never done",
        },
        way: u32 {
            default: 0,
            description: "How the server learns that the disk is done: 0 by the end of its request, 1 by that and AWAIT, 2 by the window, 3 by one range of it for all that a client gives",
        },
        limit_ms: u32 {
            default: 20000,
            description: "Time limit of the transfers in milliseconds",
        },
        timeout_ms: u32 {
            default: 30000,
            description: "Milliseconds after which the client ends a connection without an answer",
        },
    },
}
