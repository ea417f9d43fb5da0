//! Network devices with other MACs than the adapter's: addresses that were changed, pods with a
//! macvlan device each, and bridges.

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::modules;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::{
    Ends, LONG_TIMEOUT, SHORT_TIMEOUT, netdev_up, said, settles, stop_all, works,
};
use vrnic_tests::harness::{self, Case};

/// The modules of macvlan devices and bridges, and those that they need.
const MODULES: [&str; 4] = ["llc", "stp", "bridge", "macvlan"];
/// Number of pods of each guest.
const PODS: u8 = 4;

fn main() -> ExitCode {
    let cases = vec![
        Case::new("the_mac_of_a_network_device_changes", changed),
        Case::new("an_address_on_a_bridge", bridged),
        Case::new("pods_with_macvlan_devices", pods),
        Case::new("beside_the_first_address", |pair| works(pair)),
    ];
    harness::main_with_modules(&MODULES, Options::default(), cases)
}

/// A network namespace of a guest, or its first one.
struct Place<'a> {
    guest: &'a Guest,
    namespace: Option<String>,
    ip: String,
}

impl<'a> Place<'a> {
    /// The first namespace of a guest.
    fn host(guest: &'a Guest) -> Self {
        Self { guest, namespace: None, ip: guest.ip().to_owned() }
    }

    /// Returns a command that runs in the namespace.
    fn inside(&self, command: &str) -> String {
        match &self.namespace {
            None => format!("exec {command}"),
            Some(name) => format!("exec ip netns exec {name} {command}"),
        }
    }
}

/// Runs rping and `ib_write_bw` with a server in one place and a client in another one.
fn talk(server: &Place<'_>, client: &Place<'_>) -> Result<()> {
    let ip = &server.ip;
    for (serve, call) in [
        (format!("rping -V -C 10 -s -a {ip}"), format!("rping -V -C 10 -c -a {ip}")),
        ("ib_write_bw -F -R -n 200".into(), format!("ib_write_bw -F -R -n 200 {ip}")),
    ] {
        let serving = server.guest.agent().start(&server.inside(&serve))?;
        let listens = server.inside("rdma res show cm_id");
        settles(server.guest, &format!("({listens}) | grep -q LISTEN"), 30)?;
        let there = client.guest.agent().run(&client.inside(&call), LONG_TIMEOUT)?;
        Ends::of(serving, there)?
            .succeed(&serve)
            .with_context(|| format!("from {} to {ip}", client.ip))?;
    }
    Ok(())
}

/// Loads the modules, unless they are loaded.
fn prepare(guest: &Guest) -> Result<()> {
    match guest.check("[ -d /sys/module/macvlan ]", SHORT_TIMEOUT) {
        Ok(_) => Ok(()),
        Err(_) => modules::load(guest, &MODULES),
    }
}

/// Changes the MACs of the network devices of both guests, one after the other, and back.
fn changed(pair: &mut Pair) -> Result<()> {
    let modprobe = "modprobe rdma_ucm";
    pair.a.check(modprobe, SHORT_TIMEOUT)?;
    pair.b.check(modprobe, SHORT_TIMEOUT)?;
    let show = "cat /sys/class/net/eth0/address";
    let before = [pair.a.check(show, SHORT_TIMEOUT)?, pair.b.check(show, SHORT_TIMEOUT)?];
    let (a, b) = (Place::host(&pair.a), Place::host(&pair.b));
    let steps = [
        (&pair.a, "52:54:00:00:aa:01"),
        (&pair.b, "52:54:00:00:bb:01"),
        (&pair.a, before[0].trim()),
        (&pair.b, before[1].trim()),
    ];
    for (guest, mac) in steps {
        guest.check(&format!("ip link set eth0 address {mac}"), SHORT_TIMEOUT)?;
        for guest in [&pair.a, &pair.b] {
            guest.check("ip neigh flush all", SHORT_TIMEOUT)?;
        }
        pair.a.check(&format!("ping -c 2 -W 5 {}", b.ip), SHORT_TIMEOUT)?;
        let (server, client) =
            if std::ptr::eq(guest, &raw const pair.a) { (&a, &b) } else { (&b, &a) };
        talk(server, client).with_context(|| format!("after the change to {mac}"))?;
    }
    Ok(())
}

/// Moves the address of a guest to a bridge that has another MAC than the network card.
fn bridged(pair: &mut Pair) -> Result<()> {
    prepare(&pair.a)?;
    let address = &pair.a.setup().adapter.address;
    let script = format!(
        "ip link add br0 address 52:54:00:00:cc:01 type bridge && ip link set br0 up && \
         ip addr flush dev eth0 && ip link set eth0 master br0 && ip link set eth0 up && \
         ip addr add {address} dev br0"
    );
    pair.a.check(&script, SHORT_TIMEOUT)?;
    pair.b.check("ip neigh flush all", SHORT_TIMEOUT)?;
    let (a, b) = (Place::host(&pair.a), Place::host(&pair.b));
    pair.a.check(&format!("ping -c 2 -W 5 {}", b.ip), LONG_TIMEOUT)?;
    talk(&a, &b)?;
    talk(&b, &a)?;
    pair.a.check("ip link del br0", SHORT_TIMEOUT)?;
    pair.b.check("ip neigh flush all", SHORT_TIMEOUT)?;
    netdev_up(&pair.a)
}

/// Adds a namespace with a macvlan device to a guest.
fn pod(guest: &Guest, last: u8) -> Result<Place<'_>> {
    let (name, ip) = (format!("pod{last}"), format!("10.9.20.{last}"));
    let inside = format!("ip -n {name}");
    let script = format!(
        "ip netns add {name} && ip link add link eth0 name mv{last} type macvlan mode bridge && \
         ip link set mv{last} netns {name} && {inside} link set lo up && \
         {inside} addr add {ip}/24 dev mv{last} && {inside} link set mv{last} up"
    );
    guest.check(&script, SHORT_TIMEOUT)?;
    Ok(Place { guest, namespace: Some(name), ip })
}

/// Waits until this many identifiers of the connection manager listen in a guest.
fn listen(guest: &Guest, count: usize) -> Result<()> {
    let listening = "$(rdma res show cm_id | grep -c 'state LISTEN')";
    settles(guest, &format!("[ {listening} -ge {count} ]"), 60)
}

/// Runs rping from each pod to each pod before it in the list.
fn pings(pods: &[Place<'_>]) -> Result<()> {
    let mut servers = Vec::new();
    for pod in pods {
        let serve = pod.inside(&format!("rping -s -P -a {}", pod.ip));
        servers.push(pod.guest.agent().start(&serve)?);
    }
    for guest in [pods.first(), pods.last()].into_iter().flatten().map(|pod| pod.guest) {
        listen(guest, PODS.into())?;
    }
    for (nth, pod) in pods.iter().enumerate() {
        let others: Vec<_> = pods.iter().take(nth).map(|other| other.ip.as_str()).collect();
        let pings =
            format!("for ip in {}; do rping -c -V -C 10 -a $ip || exit; done", others.join(" "));
        pod.guest
            .check(&pod.inside(&format!("sh -c '{pings}'")), LONG_TIMEOUT)
            .with_context(|| format!("from {}", pod.ip))?;
    }
    stop_all(servers)
}

/// Runs `ib_write_bw` from each pod to each pod behind it in the list. Each pair has a port.
fn writes(pods: &[Place<'_>]) -> Result<()> {
    let mut servers = Vec::new();
    let program = "ib_write_bw -F -R -n 200 -p";
    for (nth, pod) in pods.iter().enumerate() {
        for client in 0..nth {
            let serve = pod.inside(&format!("{program} {}", 18_000 + client));
            servers.push(pod.guest.agent().start(&serve)?);
        }
        // The servers of the pods of this guest so far.
        let first = nth - nth % usize::from(PODS);
        listen(pod.guest, (first..=nth).sum())?;
    }
    for (nth, pod) in pods.iter().enumerate() {
        let others: Vec<_> = pods.iter().skip(nth + 1).map(|other| other.ip.as_str()).collect();
        let calls = format!(
            "for ip in {}; do {program} {} $ip || exit; done",
            others.join(" "),
            18_000 + nth
        );
        pod.guest
            .check(&pod.inside(&format!("sh -c '{calls}'")), LONG_TIMEOUT)
            .with_context(|| format!("from {}", pod.ip))?;
    }
    for server in servers {
        let output = server.wait(SHORT_TIMEOUT)?;
        ensure!(output.ok(), "a server: {}", said(&output));
    }
    Ok(())
}

/// Any two pods reach each other, of one guest and of both.
fn pods(pair: &mut Pair) -> Result<()> {
    let mut pods = Vec::new();
    for (guest, first) in [(&pair.a, 1), (&pair.b, 1 + PODS)] {
        prepare(guest)?;
        for last in first..first + PODS {
            pods.push(pod(guest, last)?);
        }
    }
    pings(&pods)?;
    writes(&pods)?;
    for pod in &pods {
        let name = pod.namespace.as_deref().unwrap_or_default();
        pod.guest.check(&format!("ip netns del {name}"), SHORT_TIMEOUT)?;
    }
    Ok(())
}
