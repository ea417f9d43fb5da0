//! Two adapters in each guest: each is a separate device with its own network device, and they do
//! not affect each other.
//!
//! Shows: driver

use std::net::Ipv4Addr;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use vrnic_qemu::guest::Guest;
use vrnic_qemu::modules;
use vrnic_qemu::pair::{Options, Pair, load_module};
use vrnic_tests::commands::{
    Ends, LONG_TIMEOUT, SHORT_TIMEOUT, connect, listens, said, settles, stop,
};
use vrnic_tests::conformance::run;
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::kverbs;
use vrnic_tests::rails::{Rail, Session};

/// Adapters of each guest.
const RAILS: u8 = 2;
/// Both choices of a rail, each with the other rail.
const EACH: [(u8, u8); 2] = [(0, 1), (1, 0)];
/// Port of servers; the other rail uses the next one.
const PORT: u16 = 18520;
/// The module of bonds, and the one that it needs.
const BONDING: [&str; 2] = ["tls", "bonding"];
const PINGPONG: &str = "ibv_rc_pingpong -g 1 -c -n 500";

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let cases = vec![
        Case::new("each_has_its_own_netdev_and_addresses", identity),
        Case::new("traffic_stays_on_its_device", apart),
        Case::new("from_one_to_the_other_within_a_guest", across),
        Case::new("both_at_the_same_time", together),
        Case::new("rdma_cm_picks_the_device_by_address", by_address),
        Case::new("a_server_on_both", server_on_both),
        Case::new("kernel_clients", kernel_clients),
        Case::new("kernel_clients_by_address", kernel_clients_by_address),
        Case::new("names_tell_them_apart", names),
        Case::new("debugfs_has_a_folder_for_each", debugfs),
        Case::new("the_monitor_knows_all", monitor),
        Case::new("groups", groups),
        Case::new("the_second_is_as_good_as_the_first", |pair| {
            // The groups with the most mappings, and the groups about what processes share, and
            // about what is left of them.
            let groups = ["data", "queues", "direct", "lifecycle", "isolation", "events"];
            let only: Vec<_> = groups.iter().map(|group| format!("--only {group}/")).collect();
            run(pair, &format!("--device vrnic1 {}", only.join(" ")), "device")
        }),
        Case::new("a_bond_uses_the_adapter_of_its_active_card", bond),
        Case::new("one_port_goes_down", |pair| {
            gone(pair, 0, |rail| format!("ip link set eth{} down", rail.number), netdev_up)
        }),
        Case::new("one_is_unbound", |pair| gone(pair, 1, |_| driver("unbind"), bind)),
        Case::new("one_is_removed", |pair| gone(pair, 0, |_| device("remove"), rescan)),
        Case::new("one_is_reset", |pair| gone(pair, 1, |_| device("reset"), |_, _| Ok(()))),
        Case::new("a_guest_boots_anew", |pair| pair.reboot_b().and_then(|()| work(pair))),
        Case::new("the_module_goes_under_traffic_of_both", unloaded),
    ];
    Suite::with_modules(&BONDING, Options { adapters: RAILS, ..Options::default() }, cases)
}

/// Checks that both rails can carry data, whose content is checked, between the guests.
fn work(pair: &Pair) -> Result<()> {
    for rail in 0..RAILS {
        Session::start(Rail::b(pair, rail), Rail::a(pair, rail), PINGPONG, PORT)?.end()?;
    }
    Ok(())
}

/// The RDMA devices have the same numbers as the network devices. Each is paired with the network
/// device that has its MAC, and has only the addresses of that one.
fn identity(pair: &mut Pair) -> Result<()> {
    let mut guids = Vec::new();
    for guest in [&pair.a, &pair.b] {
        for number in 0..RAILS {
            let rail = Rail { guest, number };
            let adapter = rail.adapter()?;
            let mac =
                guest.check(&format!("cat /sys/class/net/eth{number}/address"), SHORT_TIMEOUT)?;
            ensure!(mac.trim() == adapter.mac, "eth{number} has {mac}, not {}", adapter.mac);
            let netdevs = guest.check(
                &format!("cat /sys/class/infiniband/vrnic{number}/ports/1/gid_attrs/ndevs/* 2>/dev/null | sort -u"),
                SHORT_TIMEOUT,
            )?;
            ensure!(
                netdevs.trim() == format!("eth{number}"),
                "vrnic{number} has GIDs of {netdevs}"
            );
            let ip: Ipv4Addr = adapter.ip().parse()?;
            let [a, b, c, d] = ip.octets();
            let gid = format!("0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}");
            ensure!(rail.read("ports/1/gids/1")? == gid, "GID 1 is not {gid}");
            let guid = rail.read("node_guid")?;
            let last = adapter.mac.replace(':', "").split_off(6);
            ensure!(guid.replace(':', "").ends_with(&last), "{guid} is not of {}", adapter.mac);
            guids.push(guid);
        }
        let shown = guest.check("ibv_devices | grep -c vrnic", SHORT_TIMEOUT)?;
        ensure!(shown.trim() == RAILS.to_string(), "ibv_devices shows {shown}");
    }
    guids.sort();
    guids.dedup();
    ensure!(guids.len() == usize::from(2 * RAILS), "GUIDs are shared: {guids:?}");
    Ok(())
}

/// Data between two devices moves the counters of these devices, and no counter of the other
/// devices.
fn apart(pair: &mut Pair) -> Result<()> {
    for (rail, other) in EACH {
        let idle = || [Rail::a(pair, other).traffic(), Rail::b(pair, other).traffic()];
        let before = idle().into_iter().collect::<Result<Vec<_>>>()?;
        let (a, b) = (Rail::a(pair, rail), Rail::b(pair, rail));
        // 500 messages of 4 KiB there and back.
        let bytes = a.moved(|| Session::start(b, a, PINGPONG, PORT)?.end().map(drop))?;
        ensure!(bytes == 2 * 500 * 4096, "vrnic{rail} counts {bytes} bytes");
        let after = idle().into_iter().collect::<Result<Vec<_>>>()?;
        ensure!(before == after, "vrnic{other} counts, too: {before:?} {after:?}");
    }
    Ok(())
}

/// The two adapters of one guest can reach each other.
fn across(pair: &mut Pair) -> Result<()> {
    for guest in [&pair.a, &pair.b] {
        for (from, to) in EACH {
            let rail = |number| Rail { guest, number };
            let (client, server) = (rail(from), rail(to));
            for command in
                [PINGPONG, "ibv_uc_pingpong -g 1 -c -n 200", "ibv_ud_pingpong -g 1 -c -n 200"]
            {
                let mut there = 0;
                let here = client.moved(|| {
                    there = server
                        .moved(|| Session::start(server, client, command, PORT)?.end().map(drop))?;
                    Ok(())
                })?;
                ensure!(here == there && here > 0, "{command}: {here} and {there} bytes");
            }
            Session::start(server, client, "ib_write_bw -F -s 65536 -n 500", PORT)?.end()?;
        }
    }
    Ok(())
}

/// Both rails carry data at the same time, between the guests and within a guest.
fn together(pair: &mut Pair) -> Result<()> {
    let start = |rail: u8, tool: &str| {
        let ports = PORT + u16::from(rail);
        Session::transfer(Rail::b(pair, rail), Rail::a(pair, rail), tool, (20, ports))
    };
    let (first, second) = (start(0, "ib_write_bw")?, start(1, "ib_read_bw")?);
    for rail in 0..RAILS {
        Rail::a(pair, rail).is_busy()?;
    }
    first.end()?;
    second.end()?;
    // With checked content, on all four devices at the same time.
    let sessions = [
        Session::start(Rail::b(pair, 0), Rail::a(pair, 0), PINGPONG, PORT)?,
        Session::start(Rail::b(pair, 1), Rail::a(pair, 1), PINGPONG, PORT + 1)?,
        Session::start(Rail::a(pair, 0), Rail::a(pair, 1), PINGPONG, PORT + 2)?,
        Session::start(Rail::b(pair, 0), Rail::a(pair, 1), PINGPONG, PORT + 3)?,
    ];
    sessions.into_iter().try_for_each(|session| session.end().map(drop))
}

/// Connects with rping from `client` to the address of rail `rail` of `server`.
fn rping(server: &Guest, client: &Guest, rail: u8) -> Result<()> {
    let to = Rail { guest: server, number: rail }.adapter()?.ip();
    let call = format!("rping -c -a {to} -V -C 20 -S 4096");
    connect((server, "rping -s -V -C 20 -S 4096"), (client, &call)).map(drop)
}

/// Both network cards of guest a are a bond, which uses one of them at a time (active-backup). New
/// connections use the adapter of the active card. Either each card has its own MAC, which becomes
/// that of the bond (`fail_over_mac=active`), or both have the MAC of the first one (`none`).
fn bond(pair: &mut Pair) -> Result<()> {
    modules::load(&pair.a, &BONDING)?;
    for way in ["active", "none"] {
        bonded(pair, way).with_context(|| format!("fail_over_mac={way}"))?;
    }
    work(pair)
}

/// Makes a bond, changes its active card, and removes the bond.
fn bonded(pair: &Pair, way: &str) -> Result<()> {
    let address = &pair.a.setup().adapter.address;
    let make = format!(
        "ip addr flush dev eth0; ip link set eth0 down; ip link set eth1 down; \
         ip link add bond9 type bond mode active-backup fail_over_mac {way} miimon 100 && \
         ip link set eth0 master bond9 && ip link set eth1 master bond9 && \
         ip link set bond9 up && ip addr add {address} dev bond9"
    );
    pair.a.check(&make, SHORT_TIMEOUT)?;
    for active in [0, 1, 0] {
        let change = format!("ip link set bond9 type bond active_slave eth{active}");
        pair.a.check(&change, SHORT_TIMEOUT)?;
        let rail = Rail::a(pair, active);
        rail.is_ready()?;
        pair.a.check(&format!("ping -c 2 -W 5 {}", pair.b.ip()), SHORT_TIMEOUT)?;
        let (server, client) = (
            format!("rping -V -C 20 -s -a {}", pair.a.ip()),
            format!("rping -V -C 20 -c -a {}", pair.a.ip()),
        );
        let moved = rail.moved(|| connect((&pair.a, &server), (&pair.b, &client)).map(drop))?;
        ensure!(moved > 0, "the connection did not use {}", rail.device());
    }
    pair.a.check("ip link del bond9", SHORT_TIMEOUT)?;
    (0..RAILS).try_for_each(|number| netdev_up(Rail::a(pair, number), ""))
}

/// An address belongs to one device: connections to it use this device, and the client's device of
/// the same network.
fn by_address(pair: &mut Pair) -> Result<()> {
    for (rail, other) in EACH {
        for (server, client) in [(&pair.b, &pair.a), (&pair.a, &pair.a)] {
            let busy = Rail { guest: client, number: rail };
            let idle = Rail { guest: client, number: other };
            let mut bytes = 0;
            let strays = idle.moved(|| {
                bytes = busy.moved(|| rping(server, client, rail))?;
                Ok(())
            })?;
            ensure!(bytes > 20 * 4096, "vrnic{rail} moved {bytes} bytes");
            ensure!(strays == 0, "vrnic{other} moved {strays} bytes");
        }
    }
    Ok(())
}

/// One process has both devices open, with clients on both at the same time.
fn server_on_both(pair: &mut Pair) -> Result<()> {
    let server = pair.b.agent().start("exec rping -s -P -V -S 4096")?;
    listens(&pair.b)?;
    let ask = |rail| {
        let to = Rail::b(pair, rail).adapter()?.ip();
        pair.a.agent().start(&format!("exec rping -c -a {to} -V -C 200 -S 4096"))
    };
    let clients = [ask(0)?, ask(1)?];
    let ended = clients.map(|client| client.wait(LONG_TIMEOUT));
    let text = said(&stop(server)?);
    for client in ended {
        let client = client?;
        ensure!(client.ok(), "a client: {}\nthe server: {text}", said(&client));
    }
    Ok(())
}

/// Each adapter joins a multicast group and receives what is sent to it.
fn groups(pair: &mut Pair) -> Result<()> {
    for rail in 0..RAILS {
        let mckey = |end: Rail<'_>| -> Result<String> {
            Ok(format!("exec mckey -m 239.9.0.{} -b {} -C 20", rail + 1, end.adapter()?.ip()))
        };
        let (from, to) = (Rail::a(pair, rail), Rail::b(pair, rail));
        let member = to.guest.agent().start(&mckey(to)?)?;
        settles(to.guest, &format!("rdma res show qp link vrnic{rail}/1 | grep -q mckey"), 10)?;
        let sender =
            from.guest.agent().run(&format!("sleep 1; {} -s", mckey(from)?), LONG_TIMEOUT)?;
        Ends::of(member, sender)?.succeed(&format!("mckey on vrnic{rail}"))?;
    }
    Ok(())
}

/// The driver's own kernel client tests each device.
fn kernel_clients(pair: &mut Pair) -> Result<()> {
    let devices: Vec<_> = (0..RAILS).map(|rail| format!("vrnic{rail}")).collect();
    kverbs::passes(&pair.a, &devices)
}

/// Kernel clients connect by address, too.
fn kernel_clients_by_address(pair: &mut Pair) -> Result<()> {
    pair.b.check("insmod /vrnic/vrnic_kping.ko", SHORT_TIMEOUT)?;
    for (rail, other) in EACH {
        let peer: Ipv4Addr = Rail::b(pair, rail).adapter()?.ip().parse()?;
        let load = format!("insmod /vrnic/vrnic_kping.ko rounds=20 peer={}", u32::from(peer));
        let mut bytes = 0;
        let strays = Rail::a(pair, other).moved(|| {
            bytes = Rail::a(pair, rail).moved(|| {
                pair.a.check(&format!("{load} && rmmod vrnic_kping"), LONG_TIMEOUT).map(drop)
            })?;
            Ok(())
        })?;
        ensure!(bytes > 0 && strays == 0, "vrnic{rail} {bytes}, vrnic{other} {strays} bytes");
    }
    pair.b.check("rmmod vrnic_kping", SHORT_TIMEOUT)?;
    Ok(())
}

/// Interrupts and messages in the kernel's log contain the PCI address.
fn names(pair: &mut Pair) -> Result<()> {
    for (rail, other) in EACH {
        let victim = Rail::a(pair, rail);
        let (pci, another) = (victim.pci()?, Rail::a(pair, other).pci()?);
        let script = format!("grep -cE 'vrnic-(async|comp[0-9]+)@pci:{pci}$' /proc/interrupts");
        let lines: u32 = pair.a.check(&script, SHORT_TIMEOUT)?.trim().parse()?;
        ensure!(lines >= 2, "vrnic{rail} has {lines} interrupts by its name");
        pair.a.check(&format!("dmesg -C; pci={pci}; {}", device("reset")), SHORT_TIMEOUT)?;
        settles(&pair.a, "dmesg | grep -q 'the adapter is up again'", 60)?;
        let text = pair.a.check("dmesg", SHORT_TIMEOUT)?;
        let logged = |what| text.lines().any(|line| line.contains(&pci) && line.contains(what));
        ensure!(
            logged("something other than this driver has reset the adapter")
                && logged("the adapter is up again"),
            "vrnic{rail} is {pci}, but: {text}"
        );
        ensure!(!text.contains(&another), "vrnic{rail} is {pci}, but: {text}");
        victim.is_ready()?;
    }
    work(pair)
}

/// Each debugfs folder has the objects of its own device.
fn debugfs(pair: &mut Pair) -> Result<()> {
    for (rail, other) in EACH {
        let program = pair.a.agent().start(&format!("exec ibv_rc_pingpong -g 1 -d vrnic{rail}"))?;
        pair.a.listens_on(18515)?;
        let queues = |number| {
            let pci = Rail::a(pair, number).pci()?;
            pair.a.check(&format!("cat /sys/kernel/debug/vrnic-{pci}/qps"), SHORT_TIMEOUT)
        };
        let (busy, idle) = (queues(rail)?, queues(other)?);
        stop(program)?;
        ensure!(busy.contains("type RC"), "not in the folder of vrnic{rail}: {busy}");
        ensure!(!idle.contains("type RC") && idle.contains("type GSI"), "vrnic{other}: {idle}");
    }
    let folders = pair.a.check("ls -d /sys/kernel/debug/vrnic-* | wc -l", SHORT_TIMEOUT)?;
    ensure!(folders.trim() == RAILS.to_string(), "{folders} folders");
    Ok(())
}

/// The daemon's monitor shows each function. Its counters are the guest's.
fn monitor(pair: &mut Pair) -> Result<()> {
    work(pair)?;
    let metrics = pair.monitor(&["metrics"])?;
    for guest in [&pair.a, &pair.b] {
        for number in 0..RAILS {
            let rail = Rail { guest, number };
            let name = &rail.adapter()?.name;
            let shown: Value = serde_json::from_str(&pair.function(name)?)?;
            ensure!(shown[0]["mac"] == rail.adapter()?.mac.as_str(), "{name}: {shown}");
            let bytes = rail.traffic()?["rx_bytes"];
            for line in [
                format!("vrnic_link_up{{function=\"{name}\"}} 1\n"),
                format!("vrnic_rx_bytes_total{{function=\"{name}\"}} {bytes}\n"),
            ] {
                ensure!(metrics.contains(&line), "no {line} in\n{metrics}");
            }
        }
    }
    Ok(())
}

/// Removes the device `rail` with the shell command `take` while both rails carry data. The other
/// rail goes on. After `give` both rails work.
fn gone(
    pair: &Pair,
    rail: u8,
    take: impl Fn(Rail<'_>) -> String,
    give: impl Fn(Rail<'_>, &str) -> Result<()>,
) -> Result<()> {
    let other = 1 - rail;
    let start = |rail: u8, seconds| {
        let port = PORT + u16::from(rail);
        let ends = (Rail::b(pair, rail), Rail::a(pair, rail));
        Session::transfer(ends.0, ends.1, "ib_write_bw", (seconds, port))
    };
    let victim = Rail::a(pair, rail);
    let pci = victim.pci()?;
    let (survivor, lost) = (start(other, 40)?, start(rail, 60)?);
    let script = take(victim);
    pair.a.check(&format!("pci={pci}; {script}"), SHORT_TIMEOUT)?;
    settles(&pair.a, &format!("! rdma link show | grep -q 'vrnic{rail}/1 state ACTIVE'"), 30)?;
    Rail::a(pair, other).is_busy().with_context(|| format!("vrnic{rail} went"))?;
    survivor.end().with_context(|| format!("vrnic{rail} went"))?;
    lost.kill()?;
    give(victim, &pci)?;
    victim.is_ready().with_context(|| format!("vrnic{rail} does not come back"))?;
    work(pair)
}

/// Returns a shell command that writes the PCI address to a file of the driver.
fn driver(file: &str) -> String {
    format!("echo $pci > /sys/bus/pci/drivers/vrnic/{file}")
}

/// Returns a shell command that writes 1 to a file of the PCI device.
fn device(file: &str) -> String {
    format!("echo 1 > /sys/bus/pci/devices/$pci/{file}")
}

fn bind(rail: Rail<'_>, pci: &str) -> Result<()> {
    rail.guest.check(&format!("pci={pci}; {}", driver("bind")), SHORT_TIMEOUT).map(drop)
}

fn rescan(rail: Rail<'_>, _pci: &str) -> Result<()> {
    rail.guest.check("echo 1 > /sys/bus/pci/rescan", SHORT_TIMEOUT).map(drop)
}

fn netdev_up(rail: Rail<'_>, _pci: &str) -> Result<()> {
    let (number, address) = (rail.number, &rail.adapter()?.address);
    let script = format!("ip link set eth{number} up; ip addr replace {address} dev eth{number}");
    rail.guest.check(&script, SHORT_TIMEOUT).map(drop)
}

/// Unloads the module, which ends both adapters, and loads it again.
fn unloaded(pair: &mut Pair) -> Result<()> {
    let start = |rail: u8| {
        let port = PORT + u16::from(rail);
        Session::transfer(Rail::b(pair, rail), Rail::a(pair, rail), "ib_write_bw", (60, port))
    };
    let sessions = [start(0)?, start(1)?];
    pair.a.check("rmmod vrnic && ! ls /sys/class/infiniband/* 2>/dev/null", SHORT_TIMEOUT)?;
    pair.a.check("! ls -d /sys/kernel/debug/vrnic-* 2>/dev/null", SHORT_TIMEOUT)?;
    for session in sessions {
        session.kill()?;
    }
    load_module(&pair.a)?;
    work(pair)
}
