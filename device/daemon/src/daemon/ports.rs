//! The ports of the switch as the settings describe them.

use std::sync::Arc;

use anyhow::Context;
use vrnic_control_api::port_view::Kind;
use vrnic_control_api::uplink::{TlsWay, Way};
use vrnic_control_api::{FunctionConfig, PortConfig, UplinkConfig};

use crate::hosted::adapter::HostedAdapter;
use crate::net::line::Line;
use crate::net::netdev::Netdev;
use crate::net::port::setup::PortSetup;
use crate::net::uplinks::packet::Packet;
use crate::net::uplinks::tap::Tap;
use crate::net::uplinks::trunk::{End, Trunk};
use vrnic_control::socket::SocketFile;
use vrnic_control::socket::access::Access;

/// Returns the port of a function.
pub(super) fn function(
    settings: &FunctionConfig,
    access: &Access,
    hosted: &Arc<HostedAdapter>,
) -> anyhow::Result<PortSetup> {
    let line = settings.net.as_ref().map(|path| netdev(path, access)).transpose()?;
    let target = Arc::clone(hosted);
    Ok(PortSetup {
        mac: Some(settings.mac),
        line,
        addresses: settings.addresses.clone(),
        source: settings.source,
        storm: settings.storm,
        vlans: settings.vlans.clone().into(),
        link: Box::new(move |up| target.set_link(up)),
        sink: Some(Box::new(Arc::clone(hosted))),
        ..PortSetup::new(&settings.name, Kind::Function)
    })
}

/// Returns a port without a function.
pub(super) fn guest(settings: &PortConfig, access: &Access) -> anyhow::Result<PortSetup> {
    Ok(PortSetup {
        line: Some(netdev(&settings.net, access)?),
        storm: settings.storm,
        vlans: settings.vlans.clone().into(),
        ..PortSetup::new(&settings.name, Kind::Guest)
    })
}

/// Returns the port of an uplink.
pub(super) fn uplink(settings: &UplinkConfig, access: &Access) -> anyhow::Result<PortSetup> {
    let (kind, line) = line(&settings.way, access)
        .with_context(|| format!("cannot create uplink {}", settings.name))?;
    Ok(PortSetup {
        line: Some(line),
        transit: settings.transit,
        followed: settings.follow,
        ..PortSetup::new(&settings.name, kind)
    })
}

/// Returns the line of an uplink.
fn line(way: &Way, access: &Access) -> anyhow::Result<(Kind, Box<dyn Line>)> {
    Ok(match way {
        Way::Listen(path) => {
            let socket = SocketFile::bind_messages(path, access);
            let socket = socket.context("cannot listen for another daemon")?;
            (Kind::Trunk, Box::new(Trunk::new(End::Listen(socket))))
        }
        Way::Connect(path) => (Kind::Trunk, Box::new(Trunk::new(End::Connect(path.clone())))),
        Way::Tls(way) => (Kind::Trunk, Box::new(tls(way)?)),
        Way::Tap(name) => {
            let tap = Tap::named(name).with_context(|| {
                format!("cannot use TAP device {name} (ip tuntap add {name} mode tap user USER)")
            })?;
            (Kind::Tap, Box::new(tap))
        }
        Way::Descriptor(number) => {
            let tap = Tap::inherited(*number)
                .with_context(|| format!("cannot use descriptor {number} as a TAP device"))?;
            (Kind::Tap, Box::new(tap))
        }
        Way::Packet(name) => {
            let packet = Packet::new(name).with_context(|| {
                format!("cannot open a packet socket on interface {name}, which needs CAP_NET_RAW")
            })?;
            (Kind::Packet, Box::new(packet))
        }
    })
}

#[cfg(feature = "tls")]
fn tls(way: &TlsWay) -> anyhow::Result<crate::net::uplinks::tls::TlsTrunk> {
    use crate::net::uplinks::tls::key::SharedKey;
    use crate::net::uplinks::tls::{self, TlsTrunk};

    let TlsWay { listens, address, key } = way;
    let read = SharedKey::read(key);
    let read = read.with_context(|| format!("cannot use key {}", key.display()))?;
    let end = if *listens {
        tls::End::listen(*address).with_context(|| format!("cannot listen at {address}"))?
    } else {
        tls::End::Connect(*address)
    };
    Ok(TlsTrunk::new(end, read))
}

#[cfg(not(feature = "tls"))]
fn tls(_: &TlsWay) -> anyhow::Result<Trunk> {
    anyhow::bail!(
        "this vrnicd was built without TLS, as scripts/run does at first; scripts/lab builds one with it"
    )
}

fn netdev(path: &std::path::Path, access: &Access) -> anyhow::Result<Box<dyn Line>> {
    let socket = SocketFile::bind(path, access).context("cannot listen for a netdev")?;
    Ok(Box::new(Netdev::new(socket)))
}
