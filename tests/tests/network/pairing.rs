//! The port is paired with the network card that has its MAC, even if other network devices have
//! the same address. No user of the network has to wait for the pairing.
//!
//! Shows: network

use anyhow::{Context, Result, ensure};
use vrnic_qemu::agent::Running;
use vrnic_qemu::guest::Guest;
use vrnic_qemu::modules;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::{
    LONG_TIMEOUT, SHORT_TIMEOUT, counter, link_is, netdev_up, pingpong, receives, reload, said,
    settles, stop, watches, works,
};
use vrnic_tests::harness::{Case, Suite};

/// Kernel modules of devices that inherit addresses, and of a device to make them on.
const MODULES: [&str; 3] = ["dummy", "macvlan", "ipvlan"];

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let cases = vec![
        Case::new("devices_on_top_of_the_card", stacked),
        Case::new("devices_of_an_unprivileged_user", unprivileged),
        Case::new("another_card_takes_over", successor),
        Case::new("nobody_waits_for_the_daemon", stalled),
        Case::new("a_lost_port_is_one_event", died),
    ];
    Suite::with_modules(&MODULES, Options { twins: true, ..Options::default() }, cases)
}

/// A transfer from a to b, whose data the programs check.
struct Traffic([Running; 2]);

impl Traffic {
    fn start(pair: &Pair) -> Result<Self> {
        pingpong(pair, 100_000_000).map(Self)
    }

    /// Ends the transfer.
    fn end(self) -> Result<()> {
        for program in self.0 {
            let text = said(&stop(program)?);
            ensure!(!text.contains("Failed status") && !text.contains("invalid"), "{text}");
        }
        Ok(())
    }
}

/// Checks that the port is paired with its card and open, and has never gone down.
fn untouched(guest: &Guest, downs: u64) -> Result<()> {
    guest.check("rdma link show | grep 'state ACTIVE' | grep -q 'netdev eth0'", SHORT_TIMEOUT)?;
    let now = counter(guest, "link_downed")?;
    ensure!(now == downs, "the port went down {} times", now - downs);
    Ok(())
}

/// Loads the modules at the first use.
fn load(guest: &Guest) -> Result<()> {
    let missing = MODULES.map(|name| {
        let there = guest.agent().run(&format!("test -d /sys/module/{name}"), SHORT_TIMEOUT)?;
        if there.ok() { Ok(()) } else { modules::load(guest, &[name]) }
    });
    missing.into_iter().collect()
}

/// Devices with the card's address are created, go up and down, and are removed, during a transfer.
fn stacked(pair: &mut Pair) -> Result<()> {
    load(&pair.a)?;
    let downs = counter(&pair.a, "link_downed")?;
    let traffic = Traffic::start(pair)?;
    for kind in ["ipvlan", "macvlan mode passthru"] {
        let steps = [
            format!(
                "ip link add link eth0 name upper type {kind} && \
                 [ $(cat /sys/class/net/upper/address) = $(cat /sys/class/net/eth0/address) ]"
            ),
            "ip link set upper up".to_owned(),
            "ip link set upper mtu 1300".to_owned(),
            "ip link set upper down".to_owned(),
            "ip link del upper".to_owned(),
        ];
        for step in steps {
            pair.a.check(&step, SHORT_TIMEOUT)?;
            untouched(&pair.a, downs).with_context(|| step.clone())?;
            receives(&pair.a).with_context(|| step.clone())?;
        }
    }
    traffic.end()?;
    works(pair)
}

/// An unprivileged user creates a device with the port's address in a new network namespace.
fn unprivileged(pair: &mut Pair) -> Result<()> {
    load(&pair.a)?;
    let downs = counter(&pair.a, "link_downed")?;
    let traffic = Traffic::start(pair)?;
    let attack = "set -e; mac=$(cat /sys/class/net/eth0/address); \
        exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all unshare -Urn sh -ec ' \
        ip link add dummy0 type dummy; ip link set dummy0 address '$mac'; ip link set dummy0 up; \
        for n in 1 2 3; do \
        ip link add link dummy0 name x type ipvlan; ip link set x up; ip link set x down; ip link del x; done; \
        ip link add link dummy0 name x type ipvlan'";
    pair.a.check(attack, SHORT_TIMEOUT)?;
    receives(&pair.a)?;
    untouched(&pair.a, downs)?;
    traffic.end()?;
    works(pair)
}

/// When the card is removed, the port is paired with another card that has the same MAC, and gets
/// the IP addresses of that card. Both cards are removed in turn.
fn successor(pair: &mut Pair) -> Result<()> {
    let guest = &pair.a;
    guest.check("ip link set eth1 up; ip addr add 10.77.0.1/24 dev eth1", SHORT_TIMEOUT)?;
    untouched(guest, counter(guest, "link_downed")?)?;
    let driver = |act: &str, device: &str| {
        format!("echo {device} > /sys/bus/virtio/drivers/virtio_net/{act}")
    };
    let card = |name: &str| {
        guest.check(&format!("basename $(readlink /sys/class/net/{name}/device)"), SHORT_TIMEOUT)
    };
    let [first, second] = [card("eth0")?, card("eth1")?];
    for (leaves, stays, gid) in [(&first, "eth1", "0a4d:0001"), (&second, "eth0", "0a09:0001")] {
        guest.check(&driver("unbind", leaves.trim()), SHORT_TIMEOUT)?;
        let paired = format!("rdma link show | grep 'state ACTIVE' | grep -q 'netdev {stays}'");
        settles(guest, &paired, 10)?;
        settles(guest, &format!("grep -q {gid} /sys/class/infiniband/*/ports/1/gids/*"), 10)?;
        guest.check(&driver("bind", leaves.trim()), SHORT_TIMEOUT)?;
        if stays == "eth1" {
            netdev_up(guest)?;
        }
        guest.check(&paired, SHORT_TIMEOUT)?;
    }
    works(pair)
}

/// While the daemon is stopped, the guest's network can be configured, including the card. The
/// commands must end before the driver considers the adapter dead, because they would end then in
/// any case.
fn stalled(pair: &mut Pair) -> Result<()> {
    pair.daemon.pause()?;
    let configured = pair.a.agent().run(
        "ip link set eth0 mtu 1400 && ip link set lo mtu 60000 && cat /sys/kernel/debug/vrnic-*/admin",
        LONG_TIMEOUT,
    );
    pair.daemon.resume()?;
    let configured = said(&configured?);
    ensure!(
        configured.contains("dead 0"),
        "the adapter died before the commands ended: {configured}"
    );
    settles(&pair.a, "grep -q 'outstanding 0' /sys/kernel/debug/vrnic-*/admin", 10)?;
    pair.a.check("ip link set eth0 mtu 1500; ip link set lo mtu 65536", SHORT_TIMEOUT)?;
    link_is(&pair.a, "ACTIVE")?;
    works(pair)
}

/// The adapter dies, and then the card loses its link: programs get one event that the port is
/// down.
fn died(pair: &mut Pair) -> Result<()> {
    let watcher = pair.a.agent().start("exec stdbuf -oL ibv_asyncwatch >/tmp/watch")?;
    watches(&pair.a)?;
    pair.daemon.pause()?;
    let seen = after_death(&pair.a);
    pair.daemon.resume()?;
    stop(watcher)?;
    let text = seen?;
    let count = |kind: &str| text.matches(kind).count();
    ensure!(
        (count("DEVICE_FATAL"), count("PORT_ERR")) == (1, 1),
        "not one event of either kind in\n{text}"
    );
    for guest in [&pair.a, &pair.b] {
        netdev_up(guest)?;
        reload(guest, "")?;
    }
    works(pair)
}

/// Returns the output of the program that watches events, after the adapter has died and the card's
/// link is down.
fn after_death(guest: &Guest) -> Result<String> {
    settles(guest, "! rdma link show | grep -q 'state ACTIVE'", 30)?;
    guest.check("ip link set eth0 down; sleep 1; cat /tmp/watch", SHORT_TIMEOUT)
}
