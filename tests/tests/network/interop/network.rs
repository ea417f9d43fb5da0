//! The network between the ends.

use anyhow::{Context, Result, ensure};
use vrnic_qemu::modules;
use vrnic_qemu::pair::Pair;
use vrnic_tests::commands::{SHORT_TIMEOUT, settles};

/// Modules for VLANs and macvlan devices, and modules that drop packets to simulate losses.
pub(crate) const MODULES: [&str; 10] = [
    "llc",
    "stp",
    "garp",
    "mrp",
    "8021q",
    "macvlan",
    "sch_netem",
    "sch_ingress",
    "cls_matchall",
    "act_gact",
];
const VLAN: [&str; 5] = ["llc", "stp", "garp", "mrp", "8021q"];
const LOSS: [&str; 4] = ["sch_netem", "sch_ingress", "cls_matchall", "act_gact"];

/// Sets the MTU of both network cards, and waits until both ports have the matching path MTU.
pub(crate) fn set_mtu(pair: &Pair, mtu: u32) -> Result<()> {
    let path = if mtu < 4200 { 1024 } else { 4096 };
    for guest in [&pair.a, &pair.b] {
        guest.check(&format!("ip link set eth0 mtu {mtu}"), SHORT_TIMEOUT)?;
        settles(guest, &format!("ibv_devinfo | grep -q 'active_mtu:.*{path}'"), 10)?;
    }
    Ok(())
}

/// Gives both ends IPv6 addresses, fd09::1 and fd09::2, and addresses on VLAN 5, 10.9.5.1 and
/// 10.9.5.2, unless they have them.
pub(crate) fn more_addresses(pair: &Pair) -> Result<()> {
    if pair.a.agent().run("ip link show eth0.5", SHORT_TIMEOUT)?.ok() {
        return Ok(());
    }
    for (guest, last) in [(&pair.a, 1), (&pair.b, 2)] {
        modules::load(guest, &VLAN)?;
        let add = format!(
            "ip addr add fd09::{last}/64 dev eth0 nodad && \
             ip link add link eth0 name eth0.5 type vlan id 5 && ip link set eth0.5 up && \
             ip addr add 10.9.5.{last}/24 dev eth0.5"
        );
        guest.check(&add, SHORT_TIMEOUT)?;
        let gids = "/sys/class/infiniband/*/ports/1/gids";
        for gid in ["fd09:0000", "ffff:0a09:05"] {
            settles(guest, &format!("grep -qs {gid} {gids}/*"), 10)
                .with_context(|| format!("no GID {gid}"))?;
        }
    }
    pair.a.check("ping -c 1 -W 5 10.9.5.2 && ping -c 1 -W 5 fd09::2", SHORT_TIMEOUT).map(drop)
}

/// Gives guest a a macvlan device with the address 10.9.20.1, and guest b the address 10.9.20.2,
/// unless they have them.
pub(crate) fn macvlan(pair: &Pair) -> Result<()> {
    if pair.a.agent().run("ip link show mv0", SHORT_TIMEOUT)?.ok() {
        return Ok(());
    }
    modules::load(&pair.a, &["macvlan"])?;
    let add = "ip link add link eth0 name mv0 type macvlan mode bridge && ip link set mv0 up && \
               ip addr add 10.9.20.1/24 dev mv0";
    pair.a.check(add, SHORT_TIMEOUT)?;
    settles(&pair.a, "grep -qs ffff:0a09:14 /sys/class/infiniband/*/ports/1/gids/*", 10)
        .context("no GID of the macvlan device")?;
    pair.b.check("ip addr add 10.9.20.2/24 dev eth0", SHORT_TIMEOUT)?;
    pair.a.check("ping -c 1 -W 5 10.9.20.2", SHORT_TIMEOUT).map(drop)
}

/// Calls `run` while guest b loses 1 % of the packets that it sends, and 1 % of the packets that it
/// receives. Fails if fewer than `least` packets were lost.
pub(crate) fn with_losses(pair: &Pair, least: u32, run: impl FnOnce() -> Result<()>) -> Result<()> {
    if !pair.b.agent().run("grep -q sch_netem /proc/modules", SHORT_TIMEOUT)?.ok() {
        modules::load(&pair.b, &LOSS)?;
    }
    pair.b.check(
        "set -e; tc qdisc replace dev eth0 root netem loss random 1% limit 10000
        tc qdisc add dev eth0 ingress
        tc filter add dev eth0 ingress matchall action pass random netrand drop 100",
        SHORT_TIMEOUT,
    )?;
    let result = run();
    let shown = pair.b.check(
        "tc -s qdisc show dev eth0 root; tc -s filter show dev eth0 ingress
        tc qdisc del dev eth0 ingress; tc qdisc del dev eth0 root",
        SHORT_TIMEOUT,
    )?;
    result?;
    let lost: Vec<u32> = shown
        .split("(dropped ")
        .skip(1)
        .filter_map(|rest| rest.split(',').next()?.parse().ok())
        .collect();
    ensure!(lost.len() == 2 && lost.iter().sum::<u32>() >= least, "too few were lost: {shown}");
    Ok(())
}
