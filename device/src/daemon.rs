//! Start and end of the daemon's parts.

use std::sync::Arc;

use anyhow::Context;

use crate::access::Access;
use crate::adapter::{AdapterDevice, HostedAdapter};
use crate::config::{Config, FunctionConfig};
use crate::control::{self, ControlHandle, ControlRequests, ControlThread};
use crate::housekeeping::Housekeeping;
use crate::monitor::Monitor;
use crate::net::switch::{PortSetup, SwitchThread};
use crate::socket::SocketFile;
use crate::vfio::doorman::Doorman;
use crate::vfio::server::ServerThread;
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
        let mut ports = Vec::new();
        let mut servers = Vec::new();
        let mut doormen = Vec::new();
        let mut adapters = Vec::new();
        let mut control = Vec::new();
        let fabric = Arc::default();
        let mut workers = workers(config).context("cannot create workers")?;
        let wakers = workers.iter().map(|worker| Arc::clone(&worker.waker)).collect();
        for settings in &config.functions {
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
            ports.extend(port(settings, &config.access, &hosted)?);
            let (server, doorman) = serve(settings, &config.access, &hosted)?;
            servers.push(server);
            doormen.push(doorman);
            adapters.push(hosted);
        }
        let switch = SwitchThread::start(ports).context("cannot start the Ethernet switch")?;
        let monitor =
            config.monitor.as_ref().map(|at| Monitor::start(at, &config.access, adapters.clone()));
        let monitor = monitor.transpose().context("cannot start the monitor")?;
        let housekeeping = Housekeeping::start(adapters, doormen)
            .context("cannot start the housekeeping thread")?;
        for (server, hosted) in servers.iter().zip(&config.functions) {
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

/// Returns the Ethernet port of an adapter, if it has one. Otherwise its link is always up.
fn port(
    settings: &FunctionConfig,
    access: &Access,
    hosted: &Arc<HostedAdapter>,
) -> anyhow::Result<Option<PortSetup>> {
    let Some(path) = &settings.net else {
        hosted.set_link(true);
        return Ok(None);
    };
    let socket = SocketFile::bind(path, access).context("cannot listen for a netdev")?;
    let target = Arc::clone(hosted);
    let link = Box::new(move |up| target.set_link(up));
    Ok(Some(PortSetup { name: settings.name.clone(), mac: settings.mac, socket, link }))
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
