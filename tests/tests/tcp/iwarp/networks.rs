//! IPv6, VLANs and network namespaces.
//!
//! Shows: iwarp: IPv6, VLANs, network namespaces, macvlan devices, bridges and bonds under
//! connections

use anyhow::{Result, ensure};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::modules;
use vrnic_qemu::pair::Pair;
use vrnic_tests::commands::{
    Ends, LONG_TIMEOUT, SHORT_TIMEOUT, connect, netdev_up, registration, said, serve_pings,
    settles, stop,
};
use vrnic_tests::harness::Case;
use vrnic_tests::places;

/// 8021q and the modules that it needs.
pub(crate) const MODULES: [&str; 5] = ["llc", "stp", "garp", "mrp", "8021q"];
/// The module of the dummy device.
pub(crate) const DUMMY: [&str; 1] = ["dummy"];
/// Runs a command in the namespace of the tests.
const INSIDE: &str = "ip netns exec red";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("network_ipv6", ipv6),
        Case::new("network_vlan", vlan),
        Case::new("network_mac_changed", mac_changed),
        Case::new("network_bridge", places::bridged),
        Case::new("network_other_port_of_a_bridge", other_port),
        Case::new("network_bond", places::bonded),
        Case::new("network_pods", places::pods),
        Case::new("network_devices_of_one_namespace", crowd),
        Case::new("network_namespace_shared", shared),
        Case::new("network_namespace_exclusive", exclusive),
    ]
}

/// Runs rping with the server at an address, or at a wildcard, and a client that connects to
/// `address`.
fn talk(pair: &Pair, listen: &str, address: &str) -> Result<()> {
    let serve = format!("rping -V -C 10 -s -a {listen}");
    let call = format!("rping -V -C 10 -c -a {address}");
    connect((&pair.b, &serve), (&pair.a, &call)).map(drop)
}

/// Connections over IPv6, to global and link-local addresses.
fn ipv6(pair: &mut Pair) -> Result<()> {
    for (guest, last) in [(&pair.a, 1), (&pair.b, 2)] {
        guest.check(&format!("ip addr add fd09::{last}/64 dev eth0 nodad"), SHORT_TIMEOUT)?;
    }
    talk(pair, "fd09::2", "fd09::2")?;
    talk(pair, "::", "fd09::2")?;
    let shown = "ip -6 -o addr show dev eth0 scope link | sed 's/.*inet6 //; s/[/].*//'";
    let link = format!("{}%eth0", pair.b.check(shown, SHORT_TIMEOUT)?.trim());
    talk(pair, &link, &link)?;
    let measured = "ib_write_bw -R -F --ipv6-addr -n 200 -s 65536";
    connect((&pair.b, measured), (&pair.a, &format!("{measured} fd09::2")))?;
    for (guest, last) in [(&pair.a, 1), (&pair.b, 2)] {
        guest.check(&format!("ip addr del fd09::{last}/64 dev eth0"), SHORT_TIMEOUT)?;
    }
    Ok(())
}

/// Adds VLAN 5 to the network card of a guest, with addresses that end with `last`.
fn add_vlan(guest: &Guest, last: u8) -> Result<()> {
    let link = format!(
        "ip link add link eth0 name eth0.5 type vlan id 5 && ip link set eth0.5 up && \
         ip addr add 10.9.5.{last}/24 dev eth0.5 && ip addr add fd05::{last}/64 dev eth0.5 nodad"
    );
    guest.check(&link, SHORT_TIMEOUT).map(drop)
}

/// Connections over a VLAN: to its addresses, and to a server at a wildcard address, which also
/// accepts connections over a VLAN that is added later.
fn vlan(pair: &mut Pair) -> Result<()> {
    for guest in [&pair.a, &pair.b] {
        modules::load(guest, &MODULES)?;
    }
    add_vlan(&pair.a, 1)?;
    let server = serve_pings(&pair.b)?;
    add_vlan(&pair.b, 2)?;
    pair.a.check("ping -c 2 -W 5 10.9.5.2 && rping -c -a 10.9.5.2 -V -C 10", LONG_TIMEOUT)?;
    stop(server)?;
    for address in ["10.9.5.2", "fd05::2"] {
        talk(pair, address, address)?;
    }
    for (listen, address) in [("0.0.0.0", "10.9.5.2"), ("::", "fd05::2"), ("::", "10.9.5.2")] {
        talk(pair, listen, address)?;
    }
    for guest in [&pair.a, &pair.b] {
        guest.check("ip link del eth0.5", SHORT_TIMEOUT)?;
    }
    talk(pair, "0.0.0.0", pair.b.ip())
}

/// Connections to and from a guest whose network card has another MAC than before.
fn mac_changed(pair: &mut Pair) -> Result<()> {
    let before = pair.a.check("cat /sys/class/net/eth0/address", SHORT_TIMEOUT)?;
    for mac in ["52:54:00:00:aa:01", before.trim()] {
        pair.a.check(&format!("ip link set eth0 address {mac}"), SHORT_TIMEOUT)?;
        pair.b.check("ip neigh flush all", SHORT_TIMEOUT)?;
        talk(pair, pair.b.ip(), pair.b.ip())?;
        let ip = pair.a.ip();
        let serve = format!("rping -V -C 10 -s -a {ip}");
        connect((&pair.a, &serve), (&pair.b, &format!("rping -V -C 10 -c -a {ip}")))?;
    }
    Ok(())
}

/// The adapter does not reach peers at other ports of a bridge than the network card, so
/// connections to them are refused.
fn other_port(pair: &mut Pair) -> Result<()> {
    const NEAR: &str = "52:54:00:00:cc:09";
    let guest = &pair.a;
    modules::load(guest, &places::MODULES)?;
    modules::load(guest, &DUMMY)?;
    // The bridge has the MAC of its second port, a macvlan device, so that the other macvlan device
    // of the dummy device reaches it.
    let script = format!(
        "ip link add dummy9 type dummy && ip link set dummy9 up && \
         ip link add link dummy9 name near0 address {NEAR} type macvlan mode bridge && \
         ip link add link dummy9 name far0 type macvlan mode bridge && \
         ip link add br0 address {NEAR} type bridge && ip link set near0 master br0 && \
         ip link set eth0 master br0 && ip link set near0 up && ip link set br0 up && \
         ip addr add 10.9.22.1/24 dev br0 && \
         ip netns add far && ip link set far0 netns far && ip -n far link set far0 up && \
         ip -n far addr add 10.9.22.2/24 dev far0 && ping -c 2 -W 5 10.9.22.2"
    );
    guest.check(&script, SHORT_TIMEOUT)?;
    places::usable(guest, "br0", "")?;
    let serve = "exec ip netns exec far vrnic-verify serve --listen 10.9.22.2:7174";
    let server = guest.agent().start(serve)?;
    settles(guest, "ip netns exec far ss -Hlnt | grep -q 7174", 20)?;
    let output = guest.agent().run("exec rping -c -a 10.9.22.2", SHORT_TIMEOUT)?;
    ensure!(!output.ok() && said(&output).contains("REJECTED"), "rping: {}", said(&output));
    stop(server)?;
    let undo = "ip link del br0; ip netns del far; ip link del near0; ip link del dummy9";
    guest.check(undo, SHORT_TIMEOUT)?;
    netdev_up(guest)?;
    talk(pair, "0.0.0.0", pair.b.ip())
}

/// Moves the network device into the namespace, and waits until the RDMA device has followed.
fn enter(guest: &Guest) -> Result<()> {
    let address = &guest.setup().adapter.address;
    let script = format!(
        "ip netns add red; ip link set eth0 netns red && ip -n red link set lo up && \
         ip -n red link set eth0 up && ip -n red addr add {address} dev eth0"
    );
    let before = registration(guest)?;
    guest.check(&script, SHORT_TIMEOUT)?;
    let number = "$(rdma dev show | cut -d : -f 1)";
    settles(guest, &format!("[ \"{number}\" -gt {before} ] 2>/dev/null"), 30)
}

/// Moves the network device back.
fn leave(guest: &Guest) -> Result<()> {
    guest.check("ip -n red link set eth0 netns 1 && ip netns del red", SHORT_TIMEOUT)?;
    settles(guest, "[ -e /sys/class/net/eth0 ]", 10)?;
    netdev_up(guest)?;
    settles(guest, "rdma link show | grep -q ACTIVE", 30)
}

/// Waits until programs in the namespace see an active port.
fn active(guest: &Guest) -> Result<()> {
    settles(guest, &format!("{INSIDE} rdma link show | grep -q ACTIVE"), 30)
}

/// Runs programs in the namespaces of both guests.
fn talk_inside(pair: &Pair) -> Result<()> {
    let ip = pair.b.ip();
    for (server, client) in [
        ("rping -V -C 20 -s", format!("rping -V -C 20 -c -a {ip}")),
        ("ib_write_bw -F -R -n 200", format!("ib_write_bw -F -R -n 200 {ip}")),
    ] {
        let serving =
            pair.b.agent().start(&format!("modprobe rdma_ucm; exec {INSIDE} {server}"))?;
        settles(&pair.b, &format!("{INSIDE} rdma res show cm_id | grep -q LISTEN"), 30)?;
        let there = pair
            .a
            .agent()
            .run(&format!("modprobe rdma_ucm; exec {INSIDE} {client}"), LONG_TIMEOUT)?;
        Ends::of(serving, there)?.succeed(server)?;
    }
    Ok(())
}

/// In shared mode all namespaces see the RDMA device. Its connections belong to the namespace of
/// the network device.
fn shared(pair: &mut Pair) -> Result<()> {
    for guest in [&pair.a, &pair.b] {
        enter(guest)?;
        active(guest)?;
    }
    talk_inside(pair)?;
    for guest in [&pair.a, &pair.b] {
        leave(guest)?;
    }
    talk(pair, "0.0.0.0", pair.b.ip())
}

/// In exclusive mode the RDMA device is used in the namespace to which it was moved.
fn exclusive(pair: &mut Pair) -> Result<()> {
    for guest in [&pair.a, &pair.b] {
        guest.check("rdma system set netns exclusive", SHORT_TIMEOUT)?;
        enter(guest)?;
        let inside = "name=$(rdma dev | cut -d ' ' -f 2 | tr -d :); rdma dev set $name netns red";
        guest.check(inside, SHORT_TIMEOUT)?;
        active(guest)?;
        guest.check("! rdma dev | grep vrnic && ! ibv_devinfo", SHORT_TIMEOUT)?;
    }
    talk_inside(pair)?;
    for guest in [&pair.a, &pair.b] {
        leave(guest)?;
        guest.check("rdma system set netns shared", SHORT_TIMEOUT)?;
    }
    ensure!(pair.a.check("rdma system", SHORT_TIMEOUT)?.contains("shared"), "not shared");
    talk(pair, "0.0.0.0", pair.b.ip())
}

/// A network namespace with many macvlan devices gets RDMA devices for eight of them, and leaves
/// room for those of others.
fn crowd(pair: &mut Pair) -> Result<()> {
    modules::load(&pair.a, &places::MODULES)?;
    let devices =
        |count: u32| settles(&pair.a, &format!("[ $(rdma dev show | wc -l) = {count} ]"), 60);
    let script = "ip netns add crowd && for n in $(seq 12); do \
                  ip link add link eth0 name c$n type macvlan mode bridge && \
                  ip link set c$n netns crowd && ip -n crowd link set c$n up || exit; done";
    pair.a.check(script, SHORT_TIMEOUT)?;
    devices(1 + 8)?;
    let pod = places::pod(&pair.a, 1)?;
    devices(1 + 8 + 1)?;
    pair.a.check("ip netns del crowd", SHORT_TIMEOUT)?;
    devices(1 + 1)?;
    pod.delete()?;
    devices(1)
}
