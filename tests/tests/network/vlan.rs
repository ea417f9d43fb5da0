//! RDMA on VLANs: the port has the addresses of the network device's VLANs, and uses them for
//! connections, datagrams and groups, as it uses its own.
//!
//! Shows: network

use anyhow::{Context, Result, ensure};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::modules;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::{LONG_TIMEOUT, SHORT_TIMEOUT, connect, said, settles, works};
use vrnic_tests::harness::{Case, Suite};

/// 8021q and the modules that it needs.
const MODULES: [&str; 5] = ["llc", "stp", "garp", "mrp", "8021q"];
/// The VLANs, each with the network 10.9.N.0/24 and fdN::/64.
const VLANS: [u16; 2] = [5, 6];

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let cases = vec![
        Case::new("addresses_appear", appear),
        Case::new("connections", |pair| {
            VLANS.iter().try_for_each(|vlan| connected(pair, &format!("10.9.{vlan}.2")))
        }),
        Case::new("connections_ipv6", |pair| connected(pair, "fd05::2")),
        Case::new("datagrams", |pair| called(pair, "udaddy -c 2 -C 50", "-s 10.9.5.2 -b 10.9.5.1")),
        Case::new("perftest", |pair| called(pair, "ib_send_bw -F -R -c UD -n 500", "10.9.6.2")),
        Case::new("groups", groups),
        Case::new("beside_the_untagged_network", |pair| works(pair)),
        Case::new("addresses_go", go),
    ];
    Ok(Suite::with_modules(&MODULES, Options::default(), cases)?.changing_guests())
}

/// Waits until the number of GIDs of a VLAN's network device meets a condition.
fn gids(guest: &Guest, vlan: u16, condition: &str) -> Result<()> {
    let count =
        format!("grep -sx eth0.{vlan} /sys/class/infiniband/*/ports/1/gid_attrs/ndevs/* | wc -l");
    settles(guest, &format!("[ $({count}) {condition} ]"), 10)
        .with_context(|| format!("GIDs of eth0.{vlan} {condition}"))?;
    Ok(())
}

fn appear(pair: &mut Pair) -> Result<()> {
    for (guest, last) in [(&pair.a, 1), (&pair.b, 2)] {
        modules::load(guest, &MODULES)?;
        for vlan in VLANS {
            let link = format!(
                "ip link add link eth0 name eth0.{vlan} type vlan id {vlan} && \
                 ip link set eth0.{vlan} up && ip addr add 10.9.{vlan}.{last}/24 dev eth0.{vlan} && \
                 ip addr add fd{vlan:02}::{last}/64 dev eth0.{vlan} nodad"
            );
            guest.check(&link, SHORT_TIMEOUT)?;
            // IPv4, IPv6 and link-local.
            gids(guest, vlan, "-ge 3")?;
        }
    }
    pair.a.check("ping -c 2 -W 5 10.9.5.2", SHORT_TIMEOUT)?;
    Ok(())
}

/// Connects with a program that checks the content.
fn connected(pair: &Pair, address: &str) -> Result<()> {
    let serve = format!("rping -V -C 20 -s -a {address}");
    let call = format!("rping -V -C 20 -c -a {address}");
    connect((&pair.b, &serve), (&pair.a, &call)).map(drop)
}

/// Runs a server in guest b, and the same command with more options in guest a.
fn called(pair: &Pair, command: &str, options: &str) -> Result<()> {
    connect((&pair.b, command), (&pair.a, &format!("{command} {options}"))).map(drop)
}

/// Runs a member in b and a sender in a, each at its address. Returns whether the messages arrive.
fn reaches(pair: &Pair, sender: &str, member: &str) -> Result<bool> {
    let mckey = |own: &str| format!("exec timeout 20 mckey -m 239.5.5.5 -b {own} -C 20");
    let member = pair.b.agent().start(&mckey(member))?;
    settles(&pair.b, "rdma res show qp | grep -q mckey", 10)?;
    let sender = pair.a.agent().run(&format!("sleep 1; {} -s", mckey(sender)), LONG_TIMEOUT)?;
    ensure!(sender.ok(), "the sender: {}", said(&sender));
    Ok(member.wait(SHORT_TIMEOUT)?.ok())
}

fn groups(pair: &mut Pair) -> Result<()> {
    ensure!(reaches(pair, "10.9.5.1", "10.9.5.2")?, "nothing arrived");
    Ok(())
}

/// When a VLAN is removed, its addresses are removed, and nothing else. Messages to its groups are
/// not received any more.
fn go(pair: &mut Pair) -> Result<()> {
    leave(&pair.b)?;
    ensure!(!reaches(pair, "10.9.5.1", "10.9.6.2")?, "a message from a VLAN that b has left");
    leave(&pair.a)?;
    connected(pair, "10.9.6.2")?;
    works(pair)
}

fn leave(guest: &Guest) -> Result<()> {
    guest.check("ip link del eth0.5", SHORT_TIMEOUT)?;
    gids(guest, 5, "-eq 0")?;
    gids(guest, 6, "-ge 3")
}
