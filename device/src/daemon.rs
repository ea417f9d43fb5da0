//! Start and end of the daemon's parts.

use std::sync::Arc;

use anyhow::Context;

use crate::config::{Config, FunctionConfig};
use crate::function::{Function, FunctionDevice};
use crate::housekeeping::Housekeeping;
use crate::net::switch::{PortSetup, SwitchThread};
use crate::socket::SocketFile;
use crate::vfio::server::{Doorman, ServerThread};

/// A running daemon; dropping it ends all threads that do not serve a VMM and removes the sockets.
#[derive(Debug)]
pub struct Daemon {
    // In this order: no new VMM, no Ethernet, then the rest.
    servers: Vec<ServerThread>,
    _switch: SwitchThread,
    _housekeeping: Housekeeping,
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
        let mut functions = Vec::new();
        for settings in &config.functions {
            let name = &settings.name;
            let function = Function::new(settings.name.clone(), settings.mac)
                .with_context(|| format!("function {name}"))?;
            let function = Arc::new(function);
            ports.extend(port(settings, &function)?);
            let (server, doorman) = serve(settings, &function)?;
            servers.push(server);
            doormen.push(doorman);
            functions.push(function);
        }
        let switch = SwitchThread::start(ports).context("Ethernet switch")?;
        let housekeeping = Housekeeping::start(functions, doormen).context("housekeeping")?;
        for (server, function) in servers.iter().zip(&config.functions) {
            let socket = server.path().display();
            tracing::info!(function = function.name, mac = %function.mac, %socket, "serving");
        }
        Ok(Self { servers, _switch: switch, _housekeeping: housekeeping })
    }

    /// Number of functions.
    #[must_use]
    pub fn functions(&self) -> usize {
        self.servers.len()
    }
}

/// The Ethernet port of a function, if it has one; else its link is up for ever.
fn port(settings: &FunctionConfig, function: &Arc<Function>) -> anyhow::Result<Option<PortSetup>> {
    let Some(path) = &settings.net else {
        function.set_link(true);
        return Ok(None);
    };
    let socket = SocketFile::bind(path).context("Ethernet socket")?;
    let target = Arc::clone(function);
    let link = Box::new(move |up| target.set_link(up));
    Ok(Some(PortSetup { name: settings.name.clone(), mac: settings.mac, socket, link }))
}

fn serve(
    settings: &FunctionConfig,
    function: &Arc<Function>,
) -> anyhow::Result<(ServerThread, Doorman)> {
    let socket = SocketFile::bind(&settings.socket).context("vfio-user socket")?;
    let device = Box::new(FunctionDevice::new(Arc::clone(function)));
    ServerThread::start(&settings.name, socket, function.uar().file(), device)
        .with_context(|| format!("server of function {}", settings.name))
}
