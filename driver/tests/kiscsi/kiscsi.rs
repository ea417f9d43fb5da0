// SPDX-License-Identifier: GPL-2.0
//! An iSCSI initiator whose data the adapter moves: a kernel client that logs in to a target by an
//! ordinary socket, gives the connection to the adapter (`direct.h`), and shows the target's disks
//! as disks of the SCSI layer. No processor of this machine copies their data.
//!
//! ```text
//! insmod vrnic_kiscsi.ko portal=10.10.10.2:3260 target=iqn.2026-11.org.vrnic:disk
//! ```
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`initiator`] | the connection that there is now, and how a lost one is made again |
//! | [`login`] | the login |
//! | [`connection`] | commands and PDUs after the login |
//! | [`link`] | the queue pair of a connection, and the memory that the adapter uses |
//! | [`cq`] | the completion queue of a connection |
//! | [`event`] | completions |
//! | [`pdu`] | headers of PDUs |
//! | [`scsi`] | the host and its commands |
//! | [`socket`] | sockets of the kernel |
//! | [`waker`] | the work item that handles completions |
//! | [`settings`] | the parameters |
//! | [`bindings`] | the C functions of `helpers.c` |
//!
//! `unsafe` is confined to [`link`], [`cq`], [`event`], [`scsi`], [`socket`], [`settings`], and the
//! calls of [`link`] and [`scsi`] in [`connection`] and [`initiator`].

use kclient;
use kernel::{
    prelude::*,
    str::CStr,
    sync::{
        Arc,
        atomic::{Atomic, Relaxed},
    },
};

#[path = "../kclient/client_bindings.rs"]
mod bindings;
mod connection;
mod cq;
mod event;
mod initiator;
mod link;
mod login;
mod pdu;
mod scsi;
mod settings;
mod socket;
mod waker;

use crate::{
    initiator::Running,
    kclient::{
        attached::Attached,
        client::{Client, Registration, User},
    },
    settings::Settings,
};

/// The owner of the core's objects.
const NAME: &CStr = c"vrnic_kiscsi";

/// True if there is a session.
static IS_RUNNING: Atomic<bool> = Atomic::new(false);

/// The session, as a user of devices: of the first one by which the target is reached.
struct Initiators;

static CLIENT: Client<Initiators> = Client::new();

impl User for Initiators {
    type Held = Running;
    const NAME: &'static CStr = crate::NAME;

    fn client() -> &'static Client<Self> {
        &CLIENT
    }

    /// Makes the session by this device, if there is none and the target is reached by it.
    fn come(device: Arc<Attached>) -> Result<Option<Running>> {
        if IS_RUNNING.load(Relaxed) {
            return Ok(None);
        }
        let name = device.name();
        let running = Running::start(device.clone(), Settings::of_module()?);
        let running = running.inspect_err(|error| pr_err!("{name}: no session: {error:?}\n"))?;
        IS_RUNNING.store(true, Relaxed);
        Ok(Some(running))
    }

    fn go(_device: Arc<Attached>, running: Running) {
        drop(running);
        IS_RUNNING.store(false, Relaxed);
    }
}

/// The module: a client, registered until it goes.
struct Module {
    _client: Registration<Initiators>,
}

impl kernel::Module for Module {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Settings::of_module()?;
        Ok(Self { _client: Registration::new()? })
    }
}

module! {
    type: Module,
    name: "vrnic_kiscsi",
    authors: ["vrnic"],
    description: "iSCSI initiator whose data a vrnic adapter moves",
    license: "GPL v2",
    params: {
        header_digest: bool {
            default: false,
            description: "Ask for digests of headers",
        },
        data_digest: bool {
            default: false,
            description: "Ask for digests of data",
        },
        recovery_s: u32 {
            default: 30,
            description: "Seconds in which a lost connection must be made again",
        },
    },
}
