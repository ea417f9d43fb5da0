//! Processes that are killed while they have objects of all kinds, in use or half created. No
//! object is left in the kernel's RDMA core, in the driver or in the adapter.
//!
//! Shows: programs

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vrnic_qemu::agent::Running;
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::{
    Ends, LONG_TIMEOUT, PCI, SHORT_TIMEOUT, held, link_is, listens, said, settles, stop, works,
};
use vrnic_tests::conformance::run;
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::object_counts::ObjectCounts;

/// Time limit for a thousand processes. They took two minutes with two processors of 2.6 GHz for
/// guests and daemon.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Seconds in which a process must have created its objects.
const MAKING: u32 = 120;
/// KiB by which the kernel's own memory may grow in the test: less than 64 bytes for each object.
const SLACK: i64 = 1024;

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let cases = vec![
        Case::new("killed_with_thousands_of_objects", thousands),
        Case::new("1000_killed_in_turn", |pair| crowd(pair, "--processes 1000")),
        Case::new("killed_several_at_once", |pair| {
            crowd(pair, "--processes 60 --at-once 6 --life 400 --seed 2")
        }),
        Case::new("killed_with_connections", connections),
        Case::new("killed_with_a_full_queue", full_queue),
        Case::new("forks", forks),
        Case::new("killed_with_a_child_that_lives", orphan),
        Case::new("adapter_removed_under_thousands_of_objects", removal),
        Case::new("unprivileged_user", unprivileged),
        Case::new("out_of_memory", starved),
        Case::new("still_works", |pair| works(pair)),
    ];
    Ok(Suite::new(Options::default(), cases))
}

/// Returns a process that has this number of objects.
fn hoard(guest: &Guest, objects: u32) -> Result<Running> {
    let hoard =
        guest.agent().start(&format!("exec vrnic-stress hold --objects {objects} >/tmp/hold"))?;
    held(guest, objects, MAKING)?;
    Ok(hoard)
}

/// A process with thousands of objects, all of which are shown, is killed: no object is left.
fn thousands(pair: &mut Pair) -> Result<()> {
    let before = ObjectCounts::take(pair, &pair.a)?;
    let hoard = hoard(&pair.a, 4000)?;
    let full = ObjectCounts::take(pair, &pair.a)?;
    println!("a process holds {:?}, {} pages pinned", full.adapters, full.pinned - before.pinned);
    for (kind, least) in [
        ("contexts", 1),
        ("uars", 1),
        ("pds", 40),
        ("cqs", 100),
        ("qps", 600),
        ("srqs", 100),
        ("keys", 1000),
        ("xrcds", 50),
        ("groups", 5),
        ("sq_bytes", 500_000),
        ("ring_pages", 1_000),
        ("region_words", 10_000),
    ] {
        let more = full.of(kind).saturating_sub(before.of(kind));
        ensure!(more >= least, "{more} more {kind}, not {least}: {full:#?}");
    }
    stop(hoard).context("the process does not end")?;
    before.unchanged(pair, &pair.a)
}

/// Processes are killed while their queue pairs wait for room in a full completion queue, on either
/// side of a connection: no object is left on either guest.
///
/// Shows: programs: processes that are killed while their queue pairs wait for a full CQ
fn full_queue(pair: &mut Pair) -> Result<()> {
    // Memory that the kernel and the daemon allocate at the first use stays allocated.
    let cases = "--only direct/cq/full/receiver_killed --only direct/cq/full/sender_killed";
    run(pair, cases, "guest")?;
    let before = [ObjectCounts::take(pair, &pair.a)?, ObjectCounts::take(pair, &pair.b)?];
    for _ in 0..3 {
        run(pair, cases, "guest")?;
    }
    before[0].unchanged(pair, &pair.a)?;
    before[1].unchanged(pair, &pair.b)
}

/// Processes that create and use objects of all kinds are killed at any time.
fn crowd(pair: &mut Pair, options: &str) -> Result<()> {
    // Memory that the kernel and the daemon allocate at the first use stays allocated.
    pair.a.check("vrnic-stress kill --processes 3 --seed 99", SHORT_TIMEOUT)?;
    let before = ObjectCounts::take(pair, &pair.a)?;
    let slab = "awk '/^SUnreclaim/ { print $2 }' /proc/meminfo";
    let kib = || -> Result<i64> { Ok(pair.a.check(slab, SHORT_TIMEOUT)?.trim().parse()?) };
    let slab_before = kib()?;
    let fate = pair.a.check(&format!("vrnic-stress kill {options}"), TIMEOUT)?;
    // The kernel frees some of this memory only when its readers have gone (RCU).
    let mut grown = kib()? - slab_before;
    for _second in 0..30 {
        if grown < SLACK {
            break;
        }
        sleep(Duration::from_secs(1));
        grown = kib()? - slab_before;
    }
    println!("{}, unreclaimable kernel memory {grown:+} KiB", fate.trim());
    ensure!(grown < SLACK, "the kernel's memory has grown by {grown} KiB");
    before.unchanged(pair, &pair.a)
}

/// Clients of the connection manager are killed at any time of a connection. At the end, servers
/// are killed, too.
fn connections(pair: &mut Pair) -> Result<()> {
    for guest in [&pair.a, &pair.b] {
        guest.check("modprobe rdma_ucm", SHORT_TIMEOUT)?;
    }
    let before = [ObjectCounts::take(pair, &pair.a)?, ObjectCounts::take(pair, &pair.b)?];
    // rping ends when a client ends while its connection is being made.
    let server = pair.b.agent().start("while true; do rping -s -P >/dev/null 2>&1; done")?;
    listens(&pair.b)?;
    let ip = pair.b.ip();
    let clients = format!(
        "for n in $(seq 0 49); do rping -c -a {ip} -C 100000 >/dev/null 2>&1 & client=$!; \
         sleep 0.$((n % 4))$((n % 10)); kill -KILL $client 2>/dev/null && k=$((k + 1)); \
         wait $client; done 2>/dev/null; echo $k"
    );
    let killed: u32 = pair.a.check(&clients, LONG_TIMEOUT)?.trim().parse()?;
    println!("{killed} of 50 clients did not end before they were killed");
    ensure!(killed >= 20, "only {killed} clients were killed");
    let last =
        format!("for n in $(seq 20); do rping -c -a {ip} -C 10 && exit; sleep 0.2; done; exit 1");
    pair.a.check(&last, LONG_TIMEOUT)?;
    stop(server)?;
    before[0].unchanged(pair, &pair.a)?;
    before[1].unchanged(pair, &pair.b)
}

/// Processes that fork while they use the device; see `vrnic-stress fork`.
///
/// Shows: programs: processes that fork
fn forks(pair: &mut Pair) -> Result<()> {
    let before = ObjectCounts::take(pair, &pair.a)?;
    let system = pair.a.check("rdma system show", SHORT_TIMEOUT)?;
    ensure!(system.contains("copy-on-fork on"), "programs do not see it: {system}");
    let text = pair.a.check("vrnic-stress fork", LONG_TIMEOUT)?;
    ensure!(text.lines().count() == 6, "not all of it was run: {text}");
    before.unchanged(pair, &pair.a)
}

/// A killed process has a child that has inherited the context. The context ends with the last
/// process that has it.
fn orphan(pair: &mut Pair) -> Result<()> {
    let before = ObjectCounts::take(pair, &pair.a)?;
    pair.a.check(
        "vrnic-stress hold --objects 300 --child >/tmp/hold 2>&1 </dev/null & sleep 0.1",
        SHORT_TIMEOUT,
    )?;
    held(&pair.a, 300, MAKING)?;
    // Kills a process, and waits until `left` processes are left.
    let end = |which: &str, left: u32| {
        let script = format!(
            "kill -KILL $(pgrep {which} vrnic-stress) && for n in $(seq 100); do \
             [ $(pgrep -c -r R,S,D vrnic-stress) = {left} ] && break; sleep 0.1; done; \
             [ $n != 100 ]"
        );
        pair.a.check(&script, SHORT_TIMEOUT)
    };
    end("-o", 1)?;
    let between = ObjectCounts::take(pair, &pair.a)?;
    ensure!(
        between.of("qps") > before.of("qps"),
        "gone while a child has the context: {between:?}"
    );
    end("-n", 0)?;
    before.unchanged(pair, &pair.a)
}

/// The adapter is removed while a process has thousands of objects and traffic on them. The process
/// can end, and the next adapter has as few objects as the first one had.
fn removal(pair: &mut Pair) -> Result<()> {
    let before = ObjectCounts::take(pair, &pair.a)?;
    let hoard = hoard(&pair.a, 3000)?;
    pair.a.check(
        &format!("echo 1 >{PCI}/remove; ! ls /sys/class/infiniband/* 2>/dev/null"),
        LONG_TIMEOUT,
    )?;
    stop(hoard).context("the process whose device was removed cannot be ended")?;
    pair.a.check("echo 1 >/sys/bus/pci/rescan", SHORT_TIMEOUT)?;
    link_is(&pair.a, "ACTIVE")?;
    before.unchanged(pair, &pair.a)?;
    works(pair)
}

/// A user without privileges, who may lock little memory, uses the device within this limit.
///
/// Shows: programs: limits of locked memory
fn unprivileged(pair: &mut Pair) -> Result<()> {
    let limited = |command: &str| {
        format!(
            "ulimit -l 512; exec setpriv --reuid 65534 --regid 65534 --clear-groups \
             --inh-caps=-all {command}"
        )
    };
    let pingpong = "ibv_rc_pingpong -g 1 -c -n 100";
    let serving = pair.b.agent().start(&limited(pingpong))?;
    pair.b.listens_on(18515)?;
    let there =
        pair.a.agent().run(&limited(&format!("{pingpong} {}", pair.b.ip())), LONG_TIMEOUT)?;
    Ends::of(serving, there)?.succeed(pingpong)?;
    let large = pair.a.agent().run(&limited(&format!("{pingpong} -s 1048576")), SHORT_TIMEOUT)?;
    let text = said(&large);
    ensure!(!large.ok() && text.contains("register MR"), "beyond the limit: {text}");
    Ok(())
}

/// Each call of a process for which there is too little memory fails. Afterwards the process has
/// the same objects as a process whose calls all succeed.
fn starved(pair: &mut Pair) -> Result<()> {
    let held = |options: &str| -> Result<ObjectCounts> {
        let program = format!("exec vrnic-stress starve {options} >/tmp/starve 2>&1");
        let program = pair.a.agent().start(&program)?;
        let made = settles(&pair.a, "grep -q '^done' /tmp/starve", 60);
        let text = pair.a.check("cat /tmp/starve", SHORT_TIMEOUT)?;
        made.with_context(|| format!("not all calls were made: {text}"))?;
        println!("{text}");
        let counts = ObjectCounts::take(pair, &pair.a)?;
        stop(program)?;
        Ok(counts)
    };
    let before = ObjectCounts::take(pair, &pair.a)?;
    let (plenty, little) = (held("--plenty")?, held("")?);
    ensure!(plenty == little, "with memory {plenty:#?}\nwithout {little:#?}");
    before.unchanged(pair, &pair.a)
}
