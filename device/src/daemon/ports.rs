//! The ports of the switch as the settings describe them.

use std::sync::Arc;

use anyhow::Context;

use crate::access::Access;
use crate::adapter::HostedAdapter;
use crate::config::uplink::Way;
use crate::config::{FunctionConfig, PortConfig, UplinkConfig};
use crate::net::line::Line;
use crate::net::netdev::Netdev;
use crate::net::port::PortSetup;
use crate::net::status::Kind;
use crate::net::trunk::{End, Trunk};
use crate::socket::SocketFile;

/// Returns the port of a function. Without a netdev its link is always up.
pub(super) fn function(
    settings: &FunctionConfig,
    access: &Access,
    hosted: &Arc<HostedAdapter>,
) -> anyhow::Result<PortSetup> {
    let line = settings.net.as_ref().map(|path| netdev(path, access)).transpose()?;
    if line.is_none() {
        hosted.set_link(true);
    }
    let target = Arc::clone(hosted);
    Ok(PortSetup {
        name: settings.name.clone(),
        kind: Kind::Function,
        mac: Some(settings.mac),
        line,
        transit: false,
        link: Box::new(move |up| target.set_link(up)),
        sink: None,
    })
}

/// Returns a port without a function.
pub(super) fn guest(settings: &PortConfig, access: &Access) -> anyhow::Result<PortSetup> {
    Ok(PortSetup {
        name: settings.name.clone(),
        kind: Kind::Guest,
        mac: None,
        line: Some(netdev(&settings.net, access)?),
        transit: false,
        link: Box::new(|_| ()),
        sink: None,
    })
}

/// Returns the port of an uplink.
pub(super) fn uplink(settings: &UplinkConfig, access: &Access) -> anyhow::Result<PortSetup> {
    let end = match &settings.way {
        Way::Listen(path) => {
            let socket = SocketFile::bind_messages(path, access);
            End::Listen(socket.context("cannot listen for another daemon")?)
        }
        Way::Connect(path) => End::Connect(path.clone()),
    };
    Ok(PortSetup {
        name: settings.name.clone(),
        kind: Kind::Trunk,
        mac: None,
        line: Some(Box::new(Trunk::new(end))),
        transit: settings.transit,
        link: Box::new(|_| ()),
        sink: None,
    })
}

fn netdev(path: &std::path::Path, access: &Access) -> anyhow::Result<Box<dyn Line>> {
    let socket = SocketFile::bind(path, access).context("cannot listen for a netdev")?;
    Ok(Box::new(Netdev::new(socket)))
}
