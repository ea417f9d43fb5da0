//! Creation and removal of functions, at the daemon's start and later.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use parking_lot::Mutex;
use vrnic_adapter::datapath::transport::peers::Fabric;
use vrnic_adapter::limits::Limits;
use vrnic_control_api::FunctionConfig;
use vrnic_packet::Rate;

use super::ports;
use crate::config::ethernet::MpaCrc;
use crate::config::row;
use crate::faults::Faults;
use crate::host::control::{self, ControlThread};
use crate::host::vfio_host::VfioHost;
use crate::hosted::adapter::{AdapterDevice, HostedAdapter};
use crate::hosted::roster::Roster;
use crate::memory::rules::MapRules;
use crate::net::handle::SwitchHandle;
use crate::resources::table::ResourceTable;
use crate::vfio::busy_socket::BusySocket;
use crate::vfio::server::ServerThread;
use crate::worker::engine::Engine;
use crate::worker::engines::Engines;
use vrnic_control::socket::SocketFile;
use vrnic_control::socket::access::Access;

/// A function of the running daemon.
pub(super) struct Function {
    settings: FunctionConfig,
    hosted: Arc<HostedAdapter>,
    server: ServerThread,
    parts: Vec<Arc<dyn Engine>>,
    _control: ControlThread,
}

/// Creates functions, and registers them with all other parts of the daemon.
pub(super) struct Maker {
    pub(super) access: Access,
    /// The maximum of a function that has no resources of its own.
    pub(super) limits: Limits,
    /// The table of resources.
    pub(super) resources: Arc<Mutex<ResourceTable>>,
    pub(super) rules: MapRules,
    pub(super) vectors: u16,
    /// When messages of iWARP have CRCs.
    pub(super) mpa_crc: MpaCrc,
    /// Idle time after which connections of iWARP probe their peers, if they do so.
    pub(super) keepalive: Option<Duration>,
    pub(super) fabric: Arc<Fabric<VfioHost>>,
    /// The engines that each worker polls.
    pub(super) engines: Vec<Arc<Engines>>,
    pub(super) switch: SwitchHandle,
    pub(super) roster: Arc<Roster>,
    pub(super) busy_sockets: Arc<Mutex<Vec<BusySocket>>>,
    pub(super) faults: Arc<Faults>,
}

impl Function {
    /// Returns the name of the function.
    pub(super) fn name(&self) -> &str {
        &self.settings.name
    }

    /// Returns the adapter of the function.
    pub(super) fn hosted(&self) -> &HostedAdapter {
        &self.hosted
    }

    /// Returns whether a VMM is connected.
    pub(super) fn is_busy(&self) -> bool {
        self.server.is_busy()
    }

    /// Changes the ceilings of the function.
    pub(super) fn limit(&mut self, settings: &FunctionConfig) {
        self.settings = settings.clone();
        self.hosted.adapter().limit_pace(settings.ceilings());
    }

    /// Logs that a VMM can connect.
    pub(super) fn announce(&self) {
        let FunctionConfig { name, mac, socket, .. } = &self.settings;
        let socket = socket.display();
        tracing::info!(function = name, %mac, %socket, "the function is ready for a VMM");
    }
}

impl Maker {
    /// Creates a function. The caller has checked that no other object has its name, address or
    /// sockets.
    ///
    /// # Errors
    /// Returns an error if the adapter does not have the resources that it requests, if a socket
    /// cannot be used, or if the system lacks a resource.
    pub(super) fn make(&self, settings: &FunctionConfig) -> anyhow::Result<Function> {
        let name = &settings.name;
        let row = row(settings, &self.limits)?;
        let maximum = row.maximum;
        let admitted = self.resources.lock().admit(row);
        admitted.with_context(|| format!("cannot add function {name}"))?;
        let made = self.build(settings, maximum);
        if made.is_err() {
            self.resources.lock().remove(name);
        }
        made
    }

    /// Creates a function that has a row in the table of resources.
    fn build(&self, settings: &FunctionConfig, maximum: Limits) -> anyhow::Result<Function> {
        let name = &settings.name;
        let hosted = self.adapter(settings, maximum)?;
        let socket = SocketFile::bind(&settings.socket, &self.access);
        let socket = socket.context("cannot listen for a VMM")?;
        let port = ports::function(settings, &self.access, &hosted.0)?;
        let (hosted, control) = hosted;
        self.switch.add(port).context("cannot add a port")?;
        let parts = self.parts(&hosted);
        let device = Box::new(AdapterDevice::new(&hosted));
        let server = ServerThread::start(name, socket, device);
        let (server, busy_socket) = match server {
            Ok(server) => server,
            Err(error) => {
                self.forget(settings, &parts);
                return Err(error)
                    .with_context(|| format!("cannot start the server of function {name}"));
            }
        };
        self.busy_sockets.lock().push(busy_socket);
        self.roster.add(&hosted);
        self.limit_mtu(&hosted);
        Ok(Function { settings: settings.clone(), hosted, server, parts, _control: control })
    }

    /// Creates an adapter and its control thread.
    fn adapter(
        &self,
        settings: &FunctionConfig,
        limits: Limits,
    ) -> anyhow::Result<(Arc<HostedAdapter>, ControlThread)> {
        let name = &settings.name;
        let (control, requests) = control::channel();
        let wakers = self.engines.iter().map(|engines| Arc::clone(engines.waker())).collect();
        let hosted = HostedAdapter::new(
            name,
            settings.mac,
            &wakers,
            &self.fabric,
            limits,
            self.rules,
            control.clone(),
        );
        let hosted = Arc::new(hosted.with_context(|| format!("cannot create function {name}"))?);
        hosted.adapter().limit_vectors(self.vectors);
        hosted.adapter().set_transport(settings.personality);
        hosted.adapter().limit_pace(settings.ceilings());
        hosted.adapter().set_vlans(settings.vlans.clone().into());
        hosted.adapter().demand_crcs(self.mpa_crc == MpaCrc::Always);
        hosted.adapter().set_keepalive(self.keepalive);
        hosted.adapter().set_dcqcn(settings.dcqcn.map(|rate| Rate::nearest(rate.0.get())));
        if settings.guest_faults {
            self.faults.prepare().context("cannot let the guest set faults")?;
            hosted.adapter().permit_faults(true);
        }
        let target = Arc::clone(&hosted);
        let thread = ControlThread::start(name, control, requests, move || target.control())
            .with_context(|| format!("cannot start the control thread of function {name}"))?;
        Ok((hosted, thread))
    }

    /// Limits the MTU of a new adapter of the roster to what the uplinks carry.
    fn limit_mtu(&self, hosted: &HostedAdapter) {
        loop {
            let mtu = self.switch.path_mtu();
            hosted.limit_mtu(mtu);
            // The limit may have changed before the adapter was in the roster.
            if self.switch.path_mtu() == mtu {
                break;
            }
        }
    }

    /// Lets each worker poll its part of an adapter.
    fn parts(&self, hosted: &Arc<HostedAdapter>) -> Vec<Arc<dyn Engine>> {
        let parts = self.engines.iter().enumerate().map(|(worker, engines)| {
            let part: Arc<dyn Engine> = Arc::new(hosted.part(worker));
            engines.add(Arc::clone(&part));
            part
        });
        parts.collect()
    }

    /// Removes a function from the switch and the workers.
    fn forget(&self, settings: &FunctionConfig, parts: &[Arc<dyn Engine>]) {
        if let Err(error) = self.switch.remove(&settings.name) {
            tracing::error!(function = settings.name, %error, "a port cannot be removed");
        }
        for (engines, part) in self.engines.iter().zip(parts) {
            engines.remove(part);
        }
    }

    /// Removes a function. A connected VMM is disconnected, which resets the adapter.
    pub(super) fn end(&self, function: Function) {
        let Function { settings, hosted, server, parts, .. } = function;
        self.busy_sockets.lock().retain(|busy_socket| busy_socket.name() != settings.name);
        server.end();
        self.forget(&settings, &parts);
        self.roster.remove(&hosted);
        self.resources.lock().remove(&settings.name);
        tracing::info!(function = settings.name, "the function was removed");
    }
}
