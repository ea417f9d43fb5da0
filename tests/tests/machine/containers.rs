//! Containers: network namespaces, shared and exclusive, and limits of a control group.
//!
//! Shows: programs

use anyhow::{Context, Result, ensure};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::{Options, Pair, load_module};
use vrnic_tests::commands::{
    Ends, LONG_TIMEOUT, SHORT_TIMEOUT, hears_fatal, held, netdev_up, said, settles, stop, stop_all,
    watch, works,
};
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::object_counts::ObjectCounts;

/// Runs a command in the namespace of the tests.
const INSIDE: &str = "ip netns exec red";
/// The folder of control groups, and the control group of the tests.
const GROUPS: &str = "/sys/fs/cgroup";
const GROUP: &str = "/sys/fs/cgroup/crowd";

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let cases = vec![
        Case::new("cgroup_limits_open_devices", handles),
        Case::new("cgroup_limits_objects", objects),
        Case::new("shared_mode", shared),
        Case::new("exclusive_mode", exclusive),
        Case::new("namespace_moves_under_open_programs", moves_in_use),
        Case::new("namespace_goes_with_the_device_in_it", namespace_goes),
        Case::new("rmmod_in_a_namespace", unloaded),
        Case::new("back_to_shared_mode", back),
    ];
    Ok(Suite::new(Options::default(), cases))
}

/// Creates a control group with this limit.
fn group(guest: &Guest, limit: &str) -> Result<()> {
    let script = format!(
        "mountpoint -q {GROUPS} || mount -t cgroup2 none {GROUPS}; \
         echo +rdma >{GROUPS}/cgroup.subtree_control && mkdir -p {GROUP} && \
         echo 'vrnic0 {limit}' >{GROUP}/rdma.max"
    );
    guest.check(&script, SHORT_TIMEOUT)?;
    Ok(())
}

/// Returns a command in the control group.
fn grouped(command: &str) -> String {
    format!("echo $$ >{GROUP}/cgroup.procs; exec {command}")
}

/// Returns the RDMA objects that the control group uses.
fn current(guest: &Guest) -> Result<String> {
    Ok(guest.check(&format!("cat {GROUP}/rdma.current"), SHORT_TIMEOUT)?.trim().to_owned())
}

/// A group can open a device as often as its limit allows, and again after a process that had it
/// open is killed.
fn handles(pair: &mut Pair) -> Result<()> {
    let guest = &pair.a;
    group(guest, "hca_handle=2 hca_object=max")?;
    let holders = [0, 1].map(|_| guest.agent().start(&grouped("ibv_asyncwatch")));
    settles(guest, &format!("grep -q hca_handle=2 {GROUP}/rdma.current"), 30)?;
    let refused = guest.agent().run(&grouped("ibv_rc_pingpong -g 1"), SHORT_TIMEOUT)?;
    ensure!(!refused.ok(), "a third one opened the device: {}", said(&refused));
    ensure!(said(&refused).contains("context"), "not for the device: {}", said(&refused));
    stop_all(holders.into_iter().collect::<Result<Vec<_>>>()?)?;
    let now = current(guest)?;
    ensure!(!now.contains("hca_handle=1") && !now.contains("hca_handle=2"), "left behind: {now}");
    guest.check(&grouped("ibv_devinfo"), SHORT_TIMEOUT)?;
    Ok(())
}

/// Objects are counted and limited. After their owner is killed, the count is 0.
///
/// Shows: programs: limits of control groups
fn objects(pair: &mut Pair) -> Result<()> {
    let guest = &pair.a;
    group(guest, "hca_handle=max hca_object=300")?;
    let before = ObjectCounts::take(pair, guest)?;
    let hoard = guest.agent().start(&grouped("vrnic-stress hold --objects 200 >/tmp/hold"))?;
    held(guest, 200, 30)?;
    let now = current(guest)?;
    println!("a process with objects: {now}");
    let counted = now.split("hca_object=").nth(1).and_then(|n| n.trim().parse::<u32>().ok());
    ensure!(counted.is_some_and(|n| (150..=300).contains(&n)), "{now}");
    let more = guest.agent().run(&grouped("vrnic-stress hold --objects 1000"), LONG_TIMEOUT)?;
    let text = said(&more);
    ensure!(!more.ok() && text.contains("temporarily unavailable"), "beyond the limit: {text}");
    stop(hoard)?;
    before.unchanged(pair, guest)?;
    let now = current(guest)?;
    let even = now.is_empty() || now.ends_with("hca_handle=0 hca_object=0");
    ensure!(even, "left behind: {now}");
    guest.check(&format!("rmdir {GROUP}"), SHORT_TIMEOUT)?;
    Ok(())
}

/// Sets the mode of the RDMA system. No other namespace may exist then.
fn mode(guest: &Guest, mode: &str) -> Result<()> {
    let script = format!(
        "rdma system set netns {mode} && rdma system show | grep -q 'netns {mode}' || \
         {{ rdma system show; exit 1; }}"
    );
    guest.check(&script, SHORT_TIMEOUT)?;
    Ok(())
}

/// Moves the network device into the namespace, and gives it its address there.
fn netdev_inside(guest: &Guest) -> Result<()> {
    let address = &guest.setup().adapter.address;
    let script = format!(
        "ip link set eth0 netns red && ip -n red link set lo up && ip -n red link set eth0 up && \
         ip -n red addr add {address} dev eth0"
    );
    guest.check(&script, SHORT_TIMEOUT)?;
    Ok(())
}

/// Gives the network device its address again, after it has returned to the first namespace.
fn netdev_outside(guest: &Guest) -> Result<()> {
    settles(guest, "[ -e /sys/class/net/eth0 ]", 10)?;
    netdev_up(guest)?;
    active(guest, "")
}

/// Waits until the port is up and has the network device's IPv4 address.
fn active(guest: &Guest, inside: &str) -> Result<()> {
    let has_address = format!("{inside} ibv_devinfo -v | grep -q '::ffff:10.9.0'");
    settles(guest, &format!("{has_address} && {inside} rdma link | grep -q 'state ACTIVE'"), 30)
}

/// Moves both devices into a new namespace.
fn enter(guest: &Guest) -> Result<()> {
    guest.check("ip netns add red && rdma dev set vrnic0 netns red", SHORT_TIMEOUT)?;
    netdev_inside(guest)?;
    active(guest, INSIDE)
}

/// Runs programs in a namespace of each guest: with the connection manager, and without it.
fn talk_inside(pair: &Pair) -> Result<()> {
    let ip = pair.b.ip();
    for (server, client, listening) in [
        ("rping -V -C 20 -s", format!("rping -V -C 20 -c -a {ip}"), "rdma res show cm_id"),
        (
            "ib_write_bw -F -R -n 500",
            format!("ib_write_bw -F -R -n 500 {ip}"),
            "rdma res show cm_id",
        ),
        ("ibv_rc_pingpong -g 1 -c", format!("ibv_rc_pingpong -g 1 -c {ip}"), "ss -ltn"),
    ] {
        let serving =
            pair.b.agent().start(&format!("modprobe rdma_ucm; exec {INSIDE} {server}"))?;
        settles(&pair.b, &format!("{INSIDE} {listening} | grep -q LISTEN"), 30).context(server)?;
        let there = pair
            .a
            .agent()
            .run(&format!("modprobe rdma_ucm; exec {INSIDE} {client}"), LONG_TIMEOUT)?;
        Ends::of(serving, there)?.succeed(server)?;
    }
    Ok(())
}

/// In shared mode all namespaces see the device. It has the addresses of the namespace of its
/// network device.
fn shared(pair: &mut Pair) -> Result<()> {
    for guest in [&pair.a, &pair.b] {
        mode(guest, "shared")?;
        guest.check("ip netns add red", SHORT_TIMEOUT)?;
        netdev_inside(guest)?;
        active(guest, INSIDE)?;
        guest.check("rdma dev | grep -q vrnic0", SHORT_TIMEOUT).context("seen from outside")?;
    }
    talk_inside(pair)?;
    for guest in [&pair.a, &pair.b] {
        guest.check("ip -n red link set eth0 netns 1 && ip netns del red", SHORT_TIMEOUT)?;
        netdev_outside(guest)?;
    }
    works(pair)
}

/// In exclusive mode only the namespace of the device sees and uses it.
///
/// Shows: programs: network namespaces, shared and exclusive
fn exclusive(pair: &mut Pair) -> Result<()> {
    for guest in [&pair.a, &pair.b] {
        mode(guest, "exclusive")?;
        enter(guest)?;
        guest
            .check("! rdma dev | grep vrnic0 && ! ibv_devinfo", SHORT_TIMEOUT)
            .context("outside")?;
        let outside = guest.agent().run("ibv_rc_pingpong -g 1", SHORT_TIMEOUT)?;
        ensure!(!outside.ok(), "the device can be used from outside: {}", said(&outside));
    }
    talk_inside(pair)?;
    for guest in [&pair.a, &pair.b] {
        let leave = "ip netns exec red rdma dev set vrnic0 netns 1 || \
                     { touch /run/netns/init; mount --bind /proc/1/ns/net /run/netns/init; \
                       ip netns exec red rdma dev set vrnic0 netns init; }";
        guest.check(
            &format!("{leave}; ip -n red link set eth0 netns 1 && ip netns del red"),
            SHORT_TIMEOUT,
        )?;
        netdev_outside(guest)?;
    }
    works(pair)
}

/// If the device leaves their namespace while programs use it, they get the fatal event. They can
/// end, and no objects are left.
fn moves_in_use(pair: &mut Pair) -> Result<()> {
    let guest = &pair.a;
    let watcher = watch(guest)?;
    let hoard = guest.agent().start("exec vrnic-stress hold --objects 300 >/tmp/hold")?;
    held(guest, 300, 30)?;
    enter(guest)?;
    hears_fatal(watcher)?;
    stop(hoard)?;
    let left = guest.check(&format!("{INSIDE} rdma res show qp"), SHORT_TIMEOUT)?;
    ensure!(left.lines().all(|line| line.contains("GSI")), "objects of programs are left: {left}");
    Ok(())
}

/// When a namespace is deleted, its devices return to the first namespace.
fn namespace_goes(pair: &mut Pair) -> Result<()> {
    let guest = &pair.a;
    guest.check("ip netns del red", SHORT_TIMEOUT)?;
    settles(guest, "rdma dev | grep -q vrnic0", 10)?;
    netdev_outside(guest)?;
    works(pair)
}

/// The module can be unloaded while the device is in a namespace.
fn unloaded(pair: &mut Pair) -> Result<()> {
    let guest = &pair.a;
    enter(guest)?;
    guest.check(
        "rmmod vrnic && ip -n red link set eth0 netns 1 && ip netns del red",
        SHORT_TIMEOUT,
    )?;
    netdev_up(guest)?;
    load_module(guest)?;
    works(pair)
}

fn back(pair: &mut Pair) -> Result<()> {
    for guest in [&pair.a, &pair.b] {
        mode(guest, "shared")?;
    }
    works(pair)
}
