//! Programs that connect by the RDMA connection manager.

use anyhow::{Context, Result, ensure};
use vrnic_qemu::pair::Pair;
use vrnic_tests::commands::{LONG_TIMEOUT, SHORT_TIMEOUT, connect, said, settles};
use vrnic_tests::harness::Case;

use super::both_ways;
use super::ends::Way;
use super::network::{macvlan, more_addresses, set_mtu, with_losses};

/// Name, network, server and client. ADDRESS is replaced by the server's address in the network.
/// The first four programs check what they receive.
const PROGRAMS: &[(&str, Network, &str, &str)] = &[
    ("rping", Network::Plain, "rping -V -C 20 -s -a ADDRESS", "rping -V -C 20 -c -a ADDRESS"),
    ("rping, IPv6", Network::Ipv6, "rping -V -C 20 -s -a ADDRESS", "rping -V -C 20 -c -a ADDRESS"),
    ("rping, VLAN", Network::Vlan, "rping -V -C 20 -s -a ADDRESS", "rping -V -C 20 -c -a ADDRESS"),
    (
        "rping, losses",
        Network::Lossy,
        "rping -V -S 20000 -C 30 -s -a ADDRESS",
        "rping -V -S 20000 -C 30 -c -a ADDRESS",
    ),
    ("ucmatose", Network::Plain, "ucmatose -c 2 -C 20", "ucmatose -c 2 -C 20 -s ADDRESS"),
    ("udaddy", Network::Plain, "udaddy -c 2 -C 20", "udaddy -c 2 -C 20 -s ADDRESS"),
    ("udaddy, VLAN", Network::Vlan, "udaddy -c 2 -C 20 -b ADDRESS", "udaddy -c 2 -C 20 -s ADDRESS"),
    (
        "rping, macvlan",
        Network::Macvlan,
        "rping -V -C 20 -s -a ADDRESS",
        "rping -V -C 20 -c -a ADDRESS",
    ),
    (
        "udaddy, macvlan",
        Network::Macvlan,
        "udaddy -c 2 -C 20 -b ADDRESS",
        "udaddy -c 2 -C 20 -s ADDRESS",
    ),
    (
        "ib_write_bw, VLAN",
        Network::Vlan,
        "ib_write_bw -F -R -s 65536 -n 30",
        "ib_write_bw -F -R -s 65536 -n 30 ADDRESS",
    ),
];

/// The network of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    Plain,
    Ipv6,
    Vlan,
    /// The adapter's end has a macvlan device.
    Macvlan,
    Lossy,
}

impl Network {
    /// Returns the address of the end whose number is `last`.
    fn address(self, last: u8) -> String {
        match self {
            Self::Plain | Self::Lossy => format!("10.9.0.{last}"),
            Self::Ipv6 => format!("fd09::{last}"),
            Self::Vlan => format!("10.9.5.{last}"),
            Self::Macvlan => format!("10.9.20.{last}"),
        }
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, network, serve, call) in PROGRAMS {
        cases.extend(both_ways(name, move |pair, way| meet(pair, way, *network, serve, call)));
    }
    // The sender destroys its QP without waiting for its messages, so rxe would not send them any
    // more.
    for network in [Network::Plain, Network::Vlan] {
        let name = format!("mckey, {network:?} to rxe");
        cases.push(Case::new(name, move |pair: &mut Pair| group(pair, network)));
    }
    cases
}

/// Runs a server and its client.
fn meet(pair: &Pair, way: Way, network: Network, serve: &str, call: &str) -> Result<()> {
    let (server, client) = way.ends(pair)?;
    set_mtu(pair, 1500)?;
    if matches!(network, Network::Ipv6 | Network::Vlan) {
        more_addresses(pair)?;
    }
    if network == Network::Macvlan {
        macvlan(pair)?;
    }
    let address = network.address(if way == Way::ToRxe { 2 } else { 1 });
    let (serve, call) = (serve.replace("ADDRESS", &address), call.replace("ADDRESS", &address));
    let run = || connect((server, &serve), (client, &call)).map(drop);
    if network != Network::Lossy {
        return run();
    }
    // If the last acknowledgement is lost, the sender fails, as with any adapter, because the
    // receiver has ended and does not send it again. This is rare, so a second run must succeed.
    with_losses(pair, 3, || {
        run().or_else(|error| {
            eprintln!("this is tried once more: {error:#}");
            run()
        })
    })
}

/// Runs a member of a multicast group on rxe, and a sender on the adapter.
fn group(pair: &Pair, network: Network) -> Result<()> {
    let (server, client) = Way::ToRxe.ends(pair)?;
    set_mtu(pair, 1500)?;
    more_addresses(pair)?;
    let mckey =
        |own: u8| format!("exec timeout 20 mckey -m 239.5.5.5 -b {} -C 20", network.address(own));
    let member = server.agent().start(&mckey(2))?;
    settles(server, "rdma res show qp | grep -q mckey", 10)?;
    let sender = client.agent().run(&format!("sleep 1; {} -s", mckey(1)), LONG_TIMEOUT)?;
    ensure!(sender.ok(), "the sender: {}", said(&sender));
    let member = member.wait(SHORT_TIMEOUT).context("the member")?;
    ensure!(member.ok(), "nothing arrived: {}", said(&member));
    Ok(())
}
