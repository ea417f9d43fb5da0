//! Guests with two processors: two completion vectors, and programs and interrupts that really run
//! at the same time.
//!
//! Shows: programs

use anyhow::{Result, ensure};
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::{LONG_TIMEOUT, SHORT_TIMEOUT, said, serve, works};
use vrnic_tests::conformance::run;
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::kverbs;
use vrnic_tests::object_counts::ObjectCounts;

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let mut cases = vec![
        Case::new("a_vector_for_each_processor", vectors),
        Case::new("threads_share_a_context", threads),
        Case::new("programs_side_by_side", programs),
        Case::new("killed_several_at_once", killed),
    ];
    for (group, sq) in [
        ("queues", "guest"),
        ("credits", "guest"),
        ("events", "device"),
        ("atomics", "guest"),
        ("order", "device"),
        ("stress", "guest"),
        ("hostile", "device"),
    ] {
        let selection = format!("--only {group}/ --skip 500_qps");
        cases.push(Case::new(group, move |pair: &mut Pair| run(pair, &selection, sq)));
    }
    // This must be the last case: kernel clients free keys, and `hostile` guesses keys that were
    // never allocated.
    cases.push(Case::new("one_completion_handler_at_a_time", handlers));
    Ok(Suite::new(Options { cpus: 2, memory: 2048, ..Options::default() }, cases))
}

/// The device offers as many completion vectors as there are processors.
fn vectors(pair: &mut Pair) -> Result<()> {
    for guest in [&pair.a, &pair.b] {
        let text = guest.check("ibv_devinfo -v | grep num_comp_vectors", SHORT_TIMEOUT)?;
        ensure!(text.trim().ends_with('2'), "with two processors: {text}");
        let lines = guest.check("grep -c vrnic-comp /proc/interrupts", SHORT_TIMEOUT)?;
        ensure!(lines.trim() == "2", "{lines} completion interrupts");
    }
    Ok(())
}

/// Threads of one process with separate queues, with shared queues, and with creation of objects;
/// see `vrnic-stress threads`.
///
/// Shows: programs: several threads share a context
fn threads(pair: &mut Pair) -> Result<()> {
    let before = ObjectCounts::take(pair, &pair.a)?;
    for sq in ["guest", "device"] {
        let text = pair.a.check(&format!("VRNIC_SQ={sq} vrnic-stress threads"), LONG_TIMEOUT)?;
        ensure!(text.trim() == "ok 24 threads", "send queues in {sq} memory: {text}");
    }
    before.unchanged(pair, &pair.a)
}

/// Several programs of different kinds run at the same time, in both directions.
fn programs(pair: &mut Pair) -> Result<()> {
    // With -F, perftest does not fail when a processor had to wait and its figures are wrong. The
    // figures do not matter here.
    const PROGRAMS: [&str; 6] = [
        "ib_write_bw -F -s 65536 -n 3000",
        "ib_read_bw -F -s 4096 -n 3000",
        "ib_send_bw -F -c UD -s 1024 -n 5000",
        "ib_send_lat -F -s 64 -n 1000",
        "ib_atomic_bw -F -n 2000",
        "ibv_rc_pingpong -g 1 -c -n 500",
    ];
    let before = [ObjectCounts::take(pair, &pair.a)?, ObjectCounts::take(pair, &pair.b)?];
    let mut running = Vec::new();
    for (port, program) in (19000..).zip(PROGRAMS) {
        let (server, client) = if port % 2 == 0 { (&pair.a, &pair.b) } else { (&pair.b, &pair.a) };
        let serving = serve(server, &format!("{program} -p {port}"), port)?;
        running.push((program, serving, client, format!("{program} -p {port} {}", server.ip())));
    }
    let clients = running.into_iter().map(|(program, serving, client, command)| {
        let calling = client.agent().start(&format!("exec {command}"))?;
        Ok((program, serving, calling))
    });
    for (program, serving, calling) in clients.collect::<Result<Vec<_>>>()? {
        let (there, here) = (calling.wait(LONG_TIMEOUT)?, serving.wait(LONG_TIMEOUT)?);
        ensure!(there.ok() && here.ok(), "{program}\n{}\n{}", said(&there), said(&here));
    }
    before[0].unchanged(pair, &pair.a)?;
    before[1].unchanged(pair, &pair.b)
}

/// The kernel client posts on both processors. It counts calls of its completion handler that come
/// while the handler runs, or from within a method of the device. First the adapter works; then it
/// is dead, and the driver completes the requests.
///
/// Shows: programs: one handler of a CQ at a time
fn handlers(pair: &mut Pair) -> Result<()> {
    kverbs::passes(&pair.a, &["vrnic0".into()])?;
    kverbs::outlives_adapter(&pair.a)?;
    works(pair)
}

/// Processes end on both processors at the same time.
fn killed(pair: &mut Pair) -> Result<()> {
    pair.a.check("vrnic-stress kill --processes 3", SHORT_TIMEOUT)?;
    let before = ObjectCounts::take(pair, &pair.a)?;
    let fate =
        pair.a.check("vrnic-stress kill --processes 100 --at-once 5 --life 400", LONG_TIMEOUT)?;
    println!("{}", fate.trim());
    before.unchanged(pair, &pair.a)
}
