//! Guests on three hosts. The hosts are network namespaces, whose bridges are joined by VXLAN. Two
//! daemons use a TAP device, the third one a packet socket. Skipped where namespaces cannot be
//! made.
//!
//! Shows: network

use std::sync::Arc;

use anyhow::{Result, ensure};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::{Host, Options, Pair};
use vrnic_testdriver::vxlan::Vxlan;
use vrnic_tests::commands::{SHORT_TIMEOUT, both, connect};
use vrnic_tests::harness::{Case, Suite};

const HOSTS: u8 = 3;
/// Number of messages of a run of perftest.
const MESSAGES: u64 = 100;
/// Port of perftest's control connection.
const PORT: u16 = 18515;

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let Some(vxlan) = Vxlan::new(HOSTS.into()) else {
        return Ok(Suite::skipped("guests_on_three_hosts"));
    };
    let vxlan = Arc::new(vxlan);
    let case = |name: &str, mtu: u32, command: &'static str| {
        let vxlan = Arc::clone(&vxlan);
        Case::new(name, move |pair| perftest(pair, &vxlan, mtu, command))
    };
    let cases = vec![
        Case::new("rping", rping),
        case("ib_send_bw_with_an_mtu_of_1500", 1500, "ib_send_bw -s 65536"),
        case("ib_send_bw", 4200, "ib_send_bw -s 65536"),
        case("ib_write_bw", 4200, "ib_write_bw -s 65536"),
        case("ib_read_bw", 4200, "ib_read_bw -s 65536"),
    ];
    let host = |(number, host): (usize, &vrnic_testdriver::namespace::Namespace)| Host {
        namespace: host.name().to_owned(),
        uplink: vxlan.uplink(number).to_owned(),
    };
    let hosts = vxlan.hosts.iter().enumerate().map(host).collect();
    Ok(Suite::new(Options { guests: HOSTS, hosts, ..Options::default() }, cases).keeping(vxlan))
}

/// Runs `work` for each pair of guests, client and server, in one direction.
fn each_two(pair: &Pair, work: impl Fn(&Guest, &Guest) -> Result<()>) -> Result<()> {
    let guests: Vec<&Guest> = pair.guests().collect();
    let next = guests.iter().cycle().skip(1);
    guests.iter().zip(next).try_for_each(|(client, server)| work(client, server))
}

/// Datagrams of the connection manager, and a connection whose data the program checks.
fn rping(pair: &mut Pair) -> Result<()> {
    each_two(pair, |client, server| {
        let command = |end| format!("rping -V -C 20 {end} -a {}", server.ip());
        connect((server, &command("-s")), (client, &command("-c"))).map(drop)
    })
}

/// Runs a tool of perftest. The packets are as long as the MTU of the guests' network cards allows,
/// and leave the hosts.
fn perftest(pair: &mut Pair, vxlan: &Vxlan, mtu: u32, command: &str) -> Result<()> {
    let path_mtu = if mtu < 4200 { "1024[B]" } else { "4096[B]" };
    for guest in pair.guests() {
        guest.check(&format!("ip link set eth0 mtu {mtu}"), SHORT_TIMEOUT)?;
    }
    let sent = || vxlan.hosts.iter().map(|host| host.sent("net")).sum::<u64>();
    let before = sent();
    each_two(pair, |client, server| {
        let text = both(server, client, &format!("{command} -n {MESSAGES}"), PORT)?;
        let shown = text.lines().find(|line| line.contains("Mtu"));
        ensure!(shown.is_some_and(|line| line.contains(path_mtu)), "other packets in\n{text}");
        Ok(())
    })?;
    // A frame of joined packets is not longer than a message.
    let (sent, least) = (sent() - before, MESSAGES * u64::from(HOSTS));
    ensure!(sent >= least, "the hosts have sent {sent} packets, and not {least}");
    Ok(())
}
