//! Start and end of the daemon's parts.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`ports`] | the switch's ports as the settings describe them |

mod ports;

use std::sync::Arc;

use anyhow::Context;
use vrnic_adapter::datapath::transport::peers::Fabric;
use vrnic_adapter::ethernet::Uplink;

use crate::access::Access;
use crate::adapter::{AdapterDevice, HostedAdapter};
use crate::config::{self, Config, FunctionConfig};
use crate::control::{self, ControlHandle, ControlRequests, ControlThread};
use crate::housekeeping::Housekeeping;
use crate::monitor::{Monitor, Watched};
use crate::net::thread::SwitchThread;
use crate::socket::SocketFile;
use crate::vfio::doorman::Doorman;
use crate::vfio::server::ServerThread;
use crate::vfio_host::VfioHost;
use crate::worker::engine::Engine;
use crate::worker::pool::{Pool, WorkerSetup};
use crate::worker::waker::Waker;

/// A running daemon; dropping it ends all threads that do not serve a VMM and removes the sockets.
#[derive(Debug)]
pub struct Daemon {
    // In this order: no new VMM, no Ethernet, then the rest.
    servers: Vec<ServerThread>,
    _switch: SwitchThread,
    _monitor: Option<Monitor>,
    _housekeeping: Housekeeping,
    _workers: Pool,
    _control: Vec<ControlThread>,
}

impl Daemon {
    /// Starts what `config` describes.
    ///
    /// # Errors
    /// A socket that cannot be used, or resources that the system does not give.
    pub fn start(config: &Config) -> anyhow::Result<Self> {
        let switch = SwitchThread::start().context("cannot start the Ethernet switch")?;
        let mut servers = Vec::new();
        let mut doormen = Vec::new();
        let mut adapters = Vec::new();
        let mut control = Vec::new();
        let fabric = fabric(config, &switch);
        let mut workers = workers(config).context("cannot create workers")?;
        let wakers = workers.iter().map(|worker| Arc::clone(&worker.waker)).collect();
        for settings in &config.ethernet.functions {
            let name = &settings.name;
            let channel = control::channel();
            let hosted = HostedAdapter::new(
                name,
                settings.mac,
                &wakers,
                &fabric,
                config.limits,
                config.map_rules,
                channel.0.clone(),
            )
            .with_context(|| format!("cannot create function {name}"))?;
            hosted.adapter().limit_vectors(config.vectors);
            let hosted = Arc::new(hosted);
            for (index, worker) in workers.iter_mut().enumerate() {
                worker.engines.push(Arc::new(hosted.part(index)) as Arc<dyn Engine>);
            }
            let thread = control_thread(&hosted, channel)
                .with_context(|| format!("cannot start the control thread of function {name}"))?;
            control.push(thread);
            let port = ports::function(settings, &config.access, &hosted)?;
            switch.handle().add(port).context("cannot add a port")?;
            let (server, doorman) = serve(settings, &config.access, &hosted)?;
            servers.push(server);
            doormen.push(doorman);
            adapters.push(hosted);
        }
        for settings in &config.ethernet.ports {
            let port = ports::guest(settings, &config.access)?;
            switch.handle().add(port).context("cannot add a port")?;
        }
        for settings in &config.ethernet.uplinks {
            let port = ports::uplink(settings, &config.access)?;
            switch.handle().add(port).context("cannot add an uplink")?;
        }
        let monitor = config.monitor.as_ref().map(|at| {
            let watched =
                Watched { adapters: adapters.clone().into(), switch: switch.handle().clone() };
            Monitor::start(at, &config.access, watched)
        });
        let monitor = monitor.transpose().context("cannot start the monitor")?;
        let housekeeping = Housekeeping::start(adapters, doormen)
            .context("cannot start the housekeeping thread")?;
        for (server, hosted) in servers.iter().zip(&config.ethernet.functions) {
            let socket = server.path().display();
            tracing::info!(function = hosted.name, mac = %hosted.mac, %socket, "the function is ready for a VMM");
        }
        let workers = Pool::start(workers, &config.idle).context("cannot start workers")?;
        Ok(Self {
            servers,
            _switch: switch,
            _monitor: monitor,
            _housekeeping: housekeeping,
            _workers: workers,
            _control: control,
        })
    }

    /// Number of adapters.
    #[must_use]
    pub fn adapters(&self) -> usize {
        self.servers.len()
    }
}

/// Returns the adapters' network, still without adapters. Frames for other MACs than theirs go to
/// the switch.
fn fabric(config: &Config, switch: &SwitchThread) -> Arc<Fabric<VfioHost>> {
    let fabric = Fabric::default();
    fabric.attach(Arc::clone(switch.handle().outbox()) as Arc<dyn Uplink>);
    if config.ethernet.fabric == config::ethernet::Fabric::Wire {
        fabric.use_packets_only();
    }
    Arc::new(fabric)
}

/// Starts the control thread of an adapter.
fn control_thread(
    hosted: &Arc<HostedAdapter>,
    channel: (ControlHandle, ControlRequests),
) -> std::io::Result<ControlThread> {
    let target = Arc::clone(hosted);
    ControlThread::start(hosted.adapter().name(), channel, move || target.control())
}

/// Workers without adapters yet.
fn workers(config: &Config) -> std::io::Result<Vec<WorkerSetup>> {
    let setup = |index: usize| {
        let cpu = config.pin.get(index).copied();
        Ok(WorkerSetup { waker: Arc::new(Waker::new()?), engines: Vec::new(), cpu })
    };
    (0..config.workers).map(setup).collect()
}

fn serve(
    settings: &FunctionConfig,
    access: &Access,
    hosted: &Arc<HostedAdapter>,
) -> anyhow::Result<(ServerThread, Doorman)> {
    let socket = SocketFile::bind(&settings.socket, access).context("cannot listen for a VMM")?;
    let device = Box::new(AdapterDevice::new(hosted));
    ServerThread::start(&settings.name, socket, device)
        .with_context(|| format!("cannot start the server of function {}", settings.name))
}
