//! The usual tools show a device as they expect it.
//!
//! Shows: views

use anyhow::{Context, Result, bail, ensure};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::{
    Ends, LONG_TIMEOUT, PINGPONG, SHORT_TIMEOUT, both, both_xsrq, link_is, netdev_up, said, serve,
    settles, stop, works,
};
use vrnic_tests::harness::{Case, Suite};

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let cases = vec![
        Case::new("ibv_devinfo", devinfo),
        Case::new("other_release_of_libibverbs", other_release),
        Case::new("rdma_link", rdma_link),
        Case::new("rdma_res", rdma_res),
        Case::new("hw_counters", hw_counters),
        Case::new("gids_follow_addresses", gids),
        Case::new("netdev_follows", netdev),
        Case::new("pingpong_checked", |pair| checked(pair, "ibv_rc_pingpong")),
        Case::new("pingpong_events", |pair| checked(pair, "ibv_rc_pingpong -e")),
        Case::new("pingpong_new_send_interface", |pair| checked(pair, "ibv_rc_pingpong -N")),
        Case::new("pingpong_timestamps", |pair| timestamps(pair, "-t")),
        Case::new("pingpong_events_new_send_interface", |pair| {
            checked(pair, "ibv_rc_pingpong -e -N")
        }),
        Case::new("pingpong_events_timestamps", |pair| timestamps(pair, "-e -t")),
        Case::new("pingpong_events_new_send_timestamps", |pair| timestamps(pair, "-e -N -t")),
        Case::new("pingpong_1_MiB", |pair| checked(pair, "ibv_rc_pingpong -s 1048576 -n 20")),
        Case::new("pingpong_both_ways", pingpong_back),
        Case::new("uc_pingpong_checked", |pair| checked(pair, "ibv_uc_pingpong")),
        Case::new("ud_pingpong_checked", |pair| checked(pair, "ibv_ud_pingpong")),
        Case::new("ud_pingpong_events", |pair| checked(pair, "ibv_ud_pingpong -e -s 1024")),
        Case::new("srq_pingpong_checked", |pair| checked(pair, "ibv_srq_pingpong")),
        Case::new("srq_pingpong_events", |pair| checked(pair, "ibv_srq_pingpong -e -q 4")),
        Case::new("xsrq_pingpong", |pair| xrc(pair, "")),
        Case::new("xsrq_pingpong_events", |pair| xrc(pair, "-e")),
        Case::new("names_of_the_guests", names),
        Case::new("two_programs_at_once", two_programs),
        Case::new("direct_verbs_example", direct_verbs),
        Case::new("poster_without_verbs", |pair| posts_alone(pair, "guest", "program")),
        Case::new("poster_without_verbs_in_device", |pair| posts_alone(pair, "device", "adapter")),
    ];
    Ok(Suite::new(Options::default(), cases))
}

/// `ibv_devinfo -v` shows the device that the adapter's data sheet describes.
fn devinfo(pair: &mut Pair) -> Result<()> {
    for guest in [&pair.a, &pair.b] {
        let text = guest.check("ibv_devinfo -v", SHORT_TIMEOUT)?;
        for line in [
            "transport:InfiniBand(0)",
            "vendor_id:0x1234",
            "phys_port_cnt:1",
            "state:PORT_ACTIVE(4)",
            "link_layer:Ethernet",
            "atomic_cap:ATOMIC_",
            "max_msg_sz:0x40000000",
            "RoCEv2",
            "completion timestamp_mask: 0xffffffffffffffff",
            "hca_core_clock: 1000000kHZ",
            "CURR_QP_STATE_MOD",
            "PORT_ACTIVE_EVENT",
            "SYS_IMAGE_GUID",
            "RC_RNR_NAK_GEN",
        ] {
            let squeezed: String = text.chars().filter(|c| !c.is_whitespace()).collect();
            ensure!(squeezed.contains(&line.replace(' ', "")), "no '{line}' in\n{text}");
        }
        let device = name(guest)?;
        let firmware = guest.check("ibv_devices", SHORT_TIMEOUT)?;
        ensure!(firmware.contains(&device), "ibv_devices does not list {device}: {firmware}");
    }
    Ok(())
}

/// Returns the name of a guest's RDMA device.
fn name(guest: &Guest) -> Result<String> {
    let name = guest.check("ls /sys/class/infiniband", SHORT_TIMEOUT)?;
    Ok(name.trim().to_owned())
}

fn rdma_link(pair: &mut Pair) -> Result<()> {
    for guest in [&pair.a, &pair.b] {
        let text = guest.check("rdma link show", SHORT_TIMEOUT)?;
        ensure!(
            text.contains("state ACTIVE") && text.contains("netdev eth0"),
            "rdma link says: {text}"
        );
    }
    Ok(())
}

/// The example of the direct verbs finds the plugin that libibverbs loads.
fn direct_verbs(pair: &mut Pair) -> Result<()> {
    let text = pair.a.check("vrnicdv_command", SHORT_TIMEOUT)?;
    for line in ["command 'read 64 KiB' carries tag", "65536 bytes are there", "late write"] {
        ensure!(text.contains(line), "no '{line}' in\n{text}");
    }
    Ok(())
}

/// A process without verbs posts to a queue that another process has handed over to it. The queue
/// is in this memory.
///
/// Shows: programs: another poster of work requests, without verbs
fn posts_alone(pair: &Pair, policy: &str, place: &str) -> Result<()> {
    const PORT: u16 = 7471;
    let server = pair.b.agent().start(&format!("exec vrnicdv_poster {PORT}"))?;
    settles(&pair.b, &format!("ss -ltn | grep -q :{PORT}"), 10)?;
    let command = format!("VRNIC_SQ={policy} exec vrnicdv_poster {} {PORT}", pair.b.ip());
    let asked = pair.a.agent().run(&command, LONG_TIMEOUT)?;
    let served = if asked.ok() { server.wait(SHORT_TIMEOUT)? } else { stop(server)? };
    ensure!(asked.ok() && served.ok(), "{}; the server: {}", said(&asked), said(&served));
    let posted =
        format!("100 messages posted without verbs, send queue in memory of the {place}\n");
    ensure!(asked.stdout == posted, "{}", said(&asked));
    ensure!(served.stdout == "100 messages of 65536 bytes are right\n", "{}", said(&served));
    Ok(())
}

/// `rdma res` lists the objects of a program, and none of them after the program has ended.
fn rdma_res(pair: &mut Pair) -> Result<()> {
    let guest = &pair.b;
    let idle = guest.check("rdma res show qp", SHORT_TIMEOUT)?;
    let program = guest.agent().start("exec ibv_rc_pingpong -g 1")?;
    let shown = guest.check(
        "for n in $(seq 100); do rdma res show qp | grep -q pingpong && break; sleep 0.1; done; \
         rdma res show; rdma res show qp; rdma res show cq; rdma res show mr; rdma res show pd",
        SHORT_TIMEOUT,
    )?;
    stop(program)?;
    for what in ["comm ibv_rc_pingpong", "type RC state INIT", "mrlen", "cqe"] {
        ensure!(shown.contains(what), "no '{what}' in\n{shown}");
    }
    let after = guest.check("rdma res show qp", SHORT_TIMEOUT)?;
    ensure!(after == idle, "QPs left behind: {after}");
    Ok(())
}

/// The plugin does not serve a libibverbs of a release that it does not know, and prints why. A
/// copy with a name as in Python wheels is served. Both are the system's library under another
/// name.
fn other_release(pair: &mut Pair) -> Result<()> {
    let devices = |name: &str| {
        let script = format!(
            "real=$(readlink -f /usr/lib/x86_64-linux-gnu/libibverbs.so.1) && \
             mkdir -p /tmp/other && cp $real /tmp/other/{name} && \
             ln -sf {name} /tmp/other/libibverbs.so.1 && \
             LD_LIBRARY_PATH=/tmp/other ibv_devices 2>&1; rm -r /tmp/other"
        );
        pair.a.check(&script, SHORT_TIMEOUT)
    };
    let text = devices("libibverbs.so.1.14.99.0")?;
    let warnings: Vec<&str> = text.lines().filter(|line| line.starts_with("libvrnic: ")).collect();
    let [warning] = warnings[..] else { bail!("not one warning: {text}") };
    for part in ["/tmp/other/libibverbs.so.1.14.99.0", "rdma-core 99", "LD_PRELOAD="] {
        ensure!(warning.contains(part), "no '{part}' in {warning}");
    }
    ensure!(!text.contains("vrnic0  "), "the device is there all the same: {text}");
    for name in
        ["libibverbs.so.1.14.56.1", "libibverbs-1de1263b.so.1.14.56.1", "libibverbs-copy.so"]
    {
        let text = devices(name)?;
        ensure!(text.contains("vrnic0") && !text.contains("libvrnic: "), "{name}: {text}");
    }
    Ok(())
}

/// Counters increase with traffic, and never decrease.
fn hw_counters(pair: &mut Pair) -> Result<()> {
    let read = |guest: &Guest| -> Result<Vec<(String, u64)>> {
        let text = guest.check(
            "cd /sys/class/infiniband/*/ports/1/hw_counters && grep . * | grep -v lifespan",
            SHORT_TIMEOUT,
        )?;
        text.lines()
            .map(|line| {
                let (name, value) = line.split_once(':').context("no colon in a counter")?;
                Ok((name.to_owned(), value.trim().parse()?))
            })
            .collect()
    };
    let before = read(&pair.a)?;
    ensure!(!before.is_empty(), "there are no hw_counters");
    both(&pair.b, &pair.a, "ibv_rc_pingpong -g 1 -n 500", PINGPONG)?;
    let after = read(&pair.a)?;
    let mut grown = Vec::new();
    for ((name, old), (same, new)) in before.iter().zip(&after) {
        ensure!(name == same && new >= old, "{name} went from {old} to {new}");
        if new >= &(old + 500) {
            grown.push(name);
        }
    }
    ensure!(!grown.is_empty(), "500 messages each way moved no counter: {before:?} {after:?}");
    // `rdma statistic` shows the same counters by the same names.
    let text = pair.a.check("rdma statistic show link vrnic0/1", SHORT_TIMEOUT)?;
    let words: Vec<_> = text.split_whitespace().collect();
    for (name, value) in read(&pair.a)? {
        let at = words.iter().position(|word| *word == name);
        let shown = at.and_then(|at| words.get(at + 1)).and_then(|word| word.parse::<u64>().ok());
        // The query itself is a command, too.
        let fits = shown.is_some_and(|shown| shown <= value && value - shown <= 10);
        ensure!(fits, "rdma statistic says {shown:?} of {name}, sysfs {value}");
    }
    Ok(())
}

/// An address added to the network device becomes a GID, which is removed with the address.
///
/// Shows: network: GIDs follow addresses
fn gids(pair: &mut Pair) -> Result<()> {
    let guest = &pair.a;
    let count = "grep -l 0a07:0707 /sys/class/infiniband/*/ports/1/gids/* 2>/dev/null | wc -l";
    let found = |want: &str| settles(guest, &format!("[ $({count}) {want} ]"), 10);
    guest.check("ip addr add 10.7.7.7/24 dev eth0", SHORT_TIMEOUT)?;
    found("-ge 1")?;
    guest.check("ip addr del 10.7.7.7/24 dev eth0", SHORT_TIMEOUT)?;
    found("-eq 0")?;
    Ok(())
}

/// The port goes down and up with its network device.
fn netdev(pair: &mut Pair) -> Result<()> {
    let guest = &pair.a;
    guest.check("ip link set eth0 down", SHORT_TIMEOUT)?;
    link_is(guest, "DOWN")?;
    netdev_up(guest)?;
    link_is(guest, "ACTIVE")?;
    works(pair)
}

/// Runs a pingpong program of one of the transports, which checks the content.
fn checked(pair: &mut Pair, program: &str) -> Result<()> {
    let text = both(&pair.b, &pair.a, &format!("{program} -g 1 -c"), PINGPONG)?;
    ensure!(text.contains("iters in"), "no result in: {text}");
    ensure!(!text.contains("invalid data"), "wrong content: {text}");
    Ok(())
}

/// `ibv_rc_pingpong` with timestamps of completions, whose spread it prints.
fn timestamps(pair: &mut Pair, options: &str) -> Result<()> {
    let command = format!("ibv_rc_pingpong -g 1 -c -n 2000 {options}");
    let text = both(&pair.b, &pair.a, &command, PINGPONG)?;
    let spread = |what: &str| -> Result<f64> {
        let line = text.lines().find(|line| line.starts_with(what));
        let value = line.and_then(|line| line.split_once('=')).map(|(_, value)| value.trim());
        Ok(value.with_context(|| format!("no '{what}' in: {text}"))?.parse()?)
    };
    let (min, average) = (spread("Min receive")?, spread("Average receive")?);
    let max = spread("Max receive")?;
    ensure!(0.0 < min && min <= average && average <= max, "implausible: {text}");
    // Nanoseconds: a round trip between emulated guests takes some tens of microseconds.
    ensure!((1e3..1e9).contains(&average), "not of this clock: {text}");
    Ok(())
}

/// `ibv_xsrq_pingpong`: shared receive queues of XRC.
fn xrc(pair: &mut Pair, options: &str) -> Result<()> {
    let command = format!("ibv_xsrq_pingpong -g 1 {options}");
    let text = both_xsrq(&pair.b, &pair.a, &command)?;
    ensure!(text.contains("success"), "no result in: {text}");
    Ok(())
}

fn pingpong_back(pair: &mut Pair) -> Result<()> {
    both(&pair.a, &pair.b, "ibv_rc_pingpong -g 1 -c", PINGPONG).map(drop)
}

/// The names of the guest itself and of both guests lead to their addresses, for programs that ask
/// for any address, for one of IPv4 and for one of IPv6.
fn names(pair: &mut Pair) -> Result<()> {
    for guest in [&pair.a, &pair.b] {
        for (asked, address) in [
            ("hosts localhost", "::1"),
            ("ahostsv4 localhost", "127.0.0.1"),
            ("ahostsv6 localhost", "::1"),
            ("ahostsv6 ip6-localhost", "::1"),
            ("hosts a", "10.9.0.1"),
            ("hosts b", "10.9.0.2"),
            ("ahostsv4 b", "10.9.0.2"),
            // The guests have no IPv6 addresses that a name can have.
            ("ahostsv6 b", "::ffff:10.9.0.2"),
            ("hosts 10.9.0.2", "10.9.0.2"),
        ] {
            let text = guest.check(&format!("getent {asked}"), SHORT_TIMEOUT)?;
            ensure!(text.split_whitespace().next() == Some(address), "{asked}: {text}");
        }
    }
    for (server, host) in [(&pair.b, "b"), (&pair.a, "localhost")] {
        const PROGRAM: &str = "ibv_rc_pingpong -g 1 -c";
        let serving = serve(server, PROGRAM, PINGPONG)?;
        let client = pair.a.agent().run(&format!("exec {PROGRAM} {host}"), LONG_TIMEOUT)?;
        Ends::of(serving, client)?.succeed(host)?;
    }
    Ok(())
}

/// Two pairs of programs at the same time.
fn two_programs(pair: &mut Pair) -> Result<()> {
    let (a, b) = (&pair.a, &pair.b);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| both(b, a, "ib_write_bw -D 5 -s 65536 -p 18601", 18601));
        let second = both(b, a, "ib_read_bw -D 5 -s 65536 -p 18602", 18602);
        let first = first.join().map_err(|_| anyhow::anyhow!("a test thread panicked"))?;
        first.and(second).map(|_| ())
    })
}
