//! Two guests whose iWARP connections go through a gateway, while MACs on the way change. The
//! gateway is a network namespace with a TAP device for each guest's daemon. Skipped where
//! namespaces cannot be made.
//!
//! Shows: iwarp

use std::sync::Arc;

use anyhow::{Context, Result};
use vrnic_qemu::adapter::Transport;
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::{Host, Options, Pair};
use vrnic_testdriver::namespace::Namespace;
use vrnic_tests::commands::{LONG_TIMEOUT, SHORT_TIMEOUT, listens, settles, stop};
use vrnic_tests::harness::{Case, Suite};

/// The addresses of a guest and of the gateway in its network, by the number of the guest.
fn addresses(guest: u8) -> (String, String) {
    (format!("10.8.{guest}.1"), format!("10.8.{guest}.254"))
}

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let Some(gateway) = gateway() else {
        return Ok(Suite::skipped("connections_go_on_when_macs_change"));
    };
    let gateway = Arc::new(gateway);
    let hosts = (0..2).map(|number| Host {
        namespace: gateway.name().to_owned(),
        uplink: format!("tap=t{number}"),
    });
    let hosts = hosts.collect();
    let case = |name: &str, change: fn(&Pair, &Namespace) -> Result<()>| {
        let gateway = Arc::clone(&gateway);
        Case::new(name, move |pair: &mut Pair| under_traffic(pair, || change(pair, &gateway)))
    };
    let cases = vec![
        case("the_gateway_announces_another_mac", announced),
        case("the_neighbour_of_a_guest_is_replaced", replaced),
        case("the_next_hop_is_another_gateway", rerouted),
        case("the_mac_of_a_guest_changes", moved),
    ];
    let options = Options { personality: Transport::Iwarp, hosts, ..Options::default() };
    Ok(Suite::new(options, cases).keeping(gateway))
}

/// Makes the network namespace that is the gateway, or returns none where that is not possible.
fn gateway() -> Option<Namespace> {
    let gateway = Namespace::new()?;
    for number in 0..2 {
        let (_, address) = addresses(number);
        gateway.run(&format!(
            "ip tuntap add t{number} mode tap && ip addr add {address}/24 dev t{number} && \
             ip link set t{number} address 52:54:00:00:ee:0{number} up && \
             sysctl -qw net.ipv4.conf.t{number}.arp_notify=1 net.ipv4.conf.t{number}.rp_filter=0"
        ));
    }
    gateway.run("sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0");
    Some(gateway)
}

/// Gives a guest an address in its network, and the route to the other one.
fn enter(guest: &Guest, number: u8) -> Result<()> {
    let (own, gateway) = addresses(number);
    let script = format!(
        "modprobe rdma_ucm; ip addr replace {own}/24 dev eth0 && \
         ip route replace 10.8.{}.0/24 via {gateway} && ping -c 2 -W 5 {gateway}",
        1 - number
    );
    guest.check(&script, LONG_TIMEOUT).map(drop)
}

/// Waits until messages are exchanged.
fn transfers(pair: &Pair) -> Result<()> {
    [&pair.a, &pair.b].into_iter().try_for_each(|guest| {
        let count = "rdma statistic show | grep -o 'rx_send_req [0-9]*'";
        let grows = format!("n=$({count}); sleep 0.2; [ \"$n\" != \"$({count})\" ]");
        settles(guest, &grows, 20)
    })
}

/// Makes a change while a connection between the guests carries messages. It goes on after it.
fn under_traffic(pair: &Pair, change: impl Fn() -> Result<()>) -> Result<()> {
    for (guest, number) in [(&pair.a, 0), (&pair.b, 1)] {
        enter(guest, number)?;
    }
    let server = pair.b.agent().start("exec rping -s -P")?;
    listens(&pair.b)?;
    let (address, _) = addresses(1);
    let call = format!("exec rping -c -a {address} -C 1000000");
    let client = pair.a.agent().start(&call)?;
    transfers(pair)?;
    change()?;
    transfers(pair).context("after the change")?;
    stop(client)?;
    stop(server)?;
    settles(&pair.b, "[ -z \"$(rdma res show cm_id)$(rdma res show qp)\" ]", 20)
}

/// The gateway gets another MAC on both sides, and tells the guests by gratuitous ARP.
fn announced(pair: &Pair, gateway: &Namespace) -> Result<()> {
    for number in 0..2 {
        gateway.run(&format!("ip link set t{number} address 52:54:00:00:ee:1{number}"));
        transfers(pair).with_context(|| format!("in the network of guest {number}"))?;
    }
    Ok(())
}

/// The gateway does not tell the guest that it has another MAC, but somebody else does.
fn replaced(pair: &Pair, gateway: &Namespace) -> Result<()> {
    const MAC: &str = "52:54:00:00:ee:20";
    gateway.run("sysctl -qw net.ipv4.conf.t0.arp_notify=0");
    gateway.run(&format!("ip link set t0 address {MAC}"));
    gateway.run("sysctl -qw net.ipv4.conf.t0.arp_notify=1");
    let (_, address) = addresses(0);
    let replace = format!("ip neigh replace {address} lladdr {MAC} dev eth0 nud reachable");
    pair.a.check(&replace, SHORT_TIMEOUT).map(drop)
}

/// The gateway leaves its address, and another one takes its place by another address.
fn rerouted(pair: &Pair, gateway: &Namespace) -> Result<()> {
    gateway.run(
        "ip link add link t0 name second address 52:54:00:00:ee:30 type macvlan mode bridge && \
         sysctl -qw net.ipv4.conf.all.arp_ignore=1 && \
         ip addr add 10.8.0.253/24 dev second && ip link set second up && \
         sysctl -qw net.ipv4.conf.second.rp_filter=0",
    );
    let route = "ip route replace 10.8.1.0/24 via 10.8.0.253 && ping -c 2 -W 5 10.8.0.253";
    pair.a.check(route, SHORT_TIMEOUT)?;
    // From now on, the first one takes nothing of the guest.
    gateway.run("ip link set t0 address 52:54:00:00:ee:31");
    transfers(pair)?;
    let (_, address) = addresses(0);
    pair.a.check(&format!("ip route replace 10.8.1.0/24 via {address}"), SHORT_TIMEOUT)?;
    pair.a.check(&format!("ping -c 2 -W 5 {address}"), SHORT_TIMEOUT)?;
    gateway.run("ip link del second");
    Ok(())
}

/// The network cards of both guests get other MACs, which the gateway learns.
fn moved(pair: &Pair, _gateway: &Namespace) -> Result<()> {
    for (guest, number) in [(&pair.a, 0), (&pair.b, 1)] {
        let (_, gateway) = addresses(number);
        let change = format!(
            "ip link set eth0 address 52:54:00:00:aa:1{number} && ping -c 2 -W 5 {gateway}"
        );
        guest.check(&change, SHORT_TIMEOUT)?;
        transfers(pair).with_context(|| format!("guest {number} has moved"))?;
    }
    Ok(())
}
