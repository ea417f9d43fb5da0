//! Places in guests from which programs connect: network namespaces with a macvlan device, and
//! addresses of bridges and bonds.

use anyhow::{Context, Result, ensure};
use vrnic_qemu::adapter::Transport;
use vrnic_qemu::guest::Guest;
use vrnic_qemu::modules;
use vrnic_qemu::pair::Pair;

use crate::commands::{
    Ends, LISTENING, LONG_TIMEOUT, SHORT_TIMEOUT, netdev_up, said, settles, stop_all,
};

/// The modules of macvlan devices, bridges and bonds, and those that they need.
pub const MODULES: [&str; 6] = ["llc", "stp", "bridge", "tls", "bonding", "macvlan"];
/// Number of pods of each guest.
const PODS: u8 = 4;

/// A network namespace of a guest, or its first one.
pub struct Place<'a> {
    guest: &'a Guest,
    namespace: Option<String>,
    /// The IPv4 address of the place.
    pub ip: String,
}

impl<'a> Place<'a> {
    /// Returns the first namespace of a guest.
    #[must_use]
    pub fn host(guest: &'a Guest) -> Self {
        Self { guest, namespace: None, ip: guest.ip().to_owned() }
    }

    /// Returns the guest of the place.
    #[must_use]
    pub fn guest(&self) -> &'a Guest {
        self.guest
    }

    /// Deletes the namespace and its network devices.
    ///
    /// # Errors
    /// If the guest does not.
    pub fn delete(&self) -> Result<()> {
        let name = self.namespace.as_deref().context("the first namespace cannot be deleted")?;
        self.guest.check(&format!("ip netns del {name}"), SHORT_TIMEOUT).map(drop)
    }

    /// Returns a command that runs in the namespace.
    #[must_use]
    pub fn inside(&self, command: &str) -> String {
        match &self.namespace {
            None => format!("exec {command}"),
            Some(name) => format!("exec ip netns exec {name} {command}"),
        }
    }
}

/// Runs rping and `ib_write_bw` with a server in one place and a client in another one, and rping
/// also with `ipv6`, another address of the server, if there is one.
///
/// # Errors
/// If one of them fails.
pub fn talk(server: &Place<'_>, client: &Place<'_>, ipv6: Option<&str>) -> Result<()> {
    let ip = &server.ip;
    let pings =
        |ip: &str| (format!("rping -V -C 10 -s -a {ip}"), format!("rping -V -C 10 -c -a {ip}"));
    let writes = ("ib_write_bw -F -R -n 200".into(), format!("ib_write_bw -F -R -n 200 {ip}"));
    for (serve, call) in [pings(ip), writes].into_iter().chain(ipv6.map(pings)) {
        let serving = server.guest.agent().start(&server.inside(&serve))?;
        let ids = server.inside("rdma res show cm_id");
        settles(server.guest, &format!("({ids}) | {LISTENING} | grep -q ."), 30)?;
        let there = client.guest.agent().run(&client.inside(&call), LONG_TIMEOUT)?;
        Ends::of(serving, there)?
            .succeed(&serve)
            .with_context(|| format!("from {} to {ip}", client.ip))?;
    }
    Ok(())
}

/// Waits until programs can use the addresses of a network device on top of the network card. With
/// iWARP it gets an RDMA device of its own. `inside` runs a command in its network namespace.
///
/// # Errors
/// If they cannot.
pub fn usable(guest: &Guest, netdev: &str, inside: &str) -> Result<()> {
    match guest.setup().adapter.personality {
        Transport::Roce => Ok(()),
        Transport::Iwarp => {
            let link = format!("{inside} rdma link show | grep -q 'ACTIVE.* netdev {netdev} '");
            settles(guest, &link, 30).with_context(|| format!("the RDMA device of {netdev}"))
        }
    }
}

/// Moves the addresses of a guest to `master`, a bridge or bond that `make` creates on top of the
/// network card, connects both ways, also within the guest, and moves them back.
fn moved(pair: &Pair, master: &str, make: &str) -> Result<()> {
    modules::load(&pair.a, &MODULES)?;
    let address = &pair.a.setup().adapter.address;
    let script = format!(
        "{make} && ip addr flush dev eth0 && ip link set eth0 down && \
         ip link set eth0 master {master} && ip link set eth0 up && ip link set {master} up && \
         ip addr add {address} dev {master} && ip addr add fd21::1/64 dev {master} nodad"
    );
    pair.a.check(&script, SHORT_TIMEOUT)?;
    pair.b.check("ip addr add fd21::2/64 dev eth0 nodad; ip neigh flush all", SHORT_TIMEOUT)?;
    let (a, b) = (Place::host(&pair.a), Place::host(&pair.b));
    pair.a.check(&format!("ping -c 2 -W 5 {}", b.ip), LONG_TIMEOUT)?;
    usable(&pair.a, master, "")?;
    talk(&a, &b, Some("fd21::1"))?;
    talk(&b, &a, Some("fd21::2"))?;
    talk(&a, &a, None)?;
    pair.a.check(&format!("ip link del {master}"), SHORT_TIMEOUT)?;
    pair.b.check("ip addr del fd21::2/64 dev eth0; ip neigh flush all", SHORT_TIMEOUT)?;
    netdev_up(&pair.a)?;
    talk(&a, &b, None)
}

/// Moves the address of a guest to a bridge that has another MAC than the network card.
///
/// # Errors
/// If programs do not connect with it.
pub fn bridged(pair: &mut Pair) -> Result<()> {
    moved(pair, "br0", "ip link add br0 address 52:54:00:00:cc:01 type bridge")
}

/// Moves the address of a guest to a bond with the network card.
///
/// # Errors
/// If programs do not connect with it.
pub fn bonded(pair: &mut Pair) -> Result<()> {
    moved(pair, "bond8", "ip link add bond8 type bond mode active-backup miimon 100")
}

/// Adds a namespace with a macvlan device to a guest, or the device alone to a namespace that has
/// lost it. Their names and addresses end with `last`.
///
/// # Errors
/// If programs cannot use its addresses.
pub fn pod(guest: &Guest, last: u8) -> Result<Place<'_>> {
    modules::load(guest, &MODULES)?;
    let (name, ip) = (format!("pod{last}"), format!("10.9.20.{last}"));
    let inside = format!("ip -n {name}");
    let script = format!(
        "ip netns add {name}; ip link add link eth0 name mv{last} \
         address 52:54:00:00:dd:{last:02} type macvlan mode bridge && \
         ip link set mv{last} netns {name} && {inside} link set lo up && \
         {inside} addr add {ip}/24 dev mv{last} && {inside} link set mv{last} up && \
         {inside} addr add fd20::{last}/64 dev mv{last} nodad"
    );
    guest.check(&script, SHORT_TIMEOUT)?;
    usable(guest, &format!("mv{last}"), &format!("ip netns exec {name}"))?;
    Ok(Place { guest, namespace: Some(name), ip })
}

/// Waits until this many identifiers of the connection manager listen in a guest, or as many times
/// the value of a command: programs without an address listen on each RDMA device.
fn listen(guest: &Guest, count: usize, each: &str) -> Result<()> {
    let listening = format!("$(rdma res show cm_id | {LISTENING} | wc -l)");
    settles(guest, &format!("[ {listening} -ge $(({count} * {each})) ]"), 60)
}

/// Runs rping from each pod to each pod before it in the list.
fn pings(pods: &[Place<'_>]) -> Result<()> {
    let mut servers = Vec::new();
    for pod in pods {
        let serve = pod.inside(&format!("rping -s -P -a {}", pod.ip));
        servers.push(pod.guest.agent().start(&serve)?);
    }
    for guest in [pods.first(), pods.last()].into_iter().flatten().map(|pod| pod.guest) {
        listen(guest, PODS.into(), "1")?;
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
        listen(pod.guest, (first..=nth).sum(), "$(rdma dev show | wc -l)")?;
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
///
/// # Errors
/// If two of them do not.
pub fn pods(pair: &mut Pair) -> Result<()> {
    let mut pods = Vec::new();
    for (guest, first) in [(&pair.a, 1), (&pair.b, 1 + PODS)] {
        for last in first..first + PODS {
            pods.push(pod(guest, last)?);
        }
    }
    pings(&pods)?;
    writes(&pods)?;
    for nth in [1, pods.len() - 1] {
        talk(&pods[0], &pods[nth], Some("fd20::1"))?;
    }
    pods.iter().try_for_each(Place::delete)
}
