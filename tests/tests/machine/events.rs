//! Completion events in guests with four processors: a handler on each processor, queues bound to
//! them, the affinity of interrupts, handlers that run at the same time, processors that go offline
//! and come back.
//!
//! Shows: completions

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use vrnic_qemu::agent::Running;
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::burst;
use vrnic_tests::commands::{LONG_TIMEOUT, SHORT_TIMEOUT, reload, said, stop, stop_all, works};
use vrnic_tests::events::{Interrupts, Streams, TRACE_OFF, TRACE_ON, handlers_of, tree};
use vrnic_tests::harness::{Case, Suite};

/// Processors of each guest.
const CPUS: u32 = 4;
/// All completion vectors.
const ALL: [u32; 4] = [0, 1, 2, 3];
/// A program with an event for each message at each end.
const PINGPONG: &str = "ib_send_lat -F -s 64 -n 2000";
/// A program that runs until it is ended.
const ENDLESS: &str = "ib_send_lat -F -s 64 -n 1000000";
/// Number of interrupts of a vector that may hit another processor: a change of affinity takes
/// effect with the next interrupt.
const STRAY: u64 = 2;

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let cases = vec![
        Case::new("a_handler_for_each_processor", handlers),
        Case::new("queues_follow_their_vector", binding),
        Case::new("handlers_run_at_the_same_time", parallel),
        Case::new("four_vectors_against_one", throughput),
        Case::new("vectors_that_do_not_exist", no_such_vector),
        Case::new("least_loaded_vector", least_loaded),
        Case::new("vectors_in_turn", in_turn),
        Case::new("kernel_pools_are_spread", pools),
        Case::new("adaptive_moderation_of_kernel_queues", adaptive),
        Case::new("processor_goes_and_comes", hotplug),
        Case::new("fewer_vectors_than_processors", fewer),
        Case::new("a_user_that_never_polls", never_polls),
        Case::new("a_storm_on_one_processor", storm),
        Case::new("many_events_at_once", burst::taken_in_turns),
    ];
    Ok(Suite::new(Options { cpus: CPUS, memory: 2048, ..Options::default() }, cases))
}

/// There are as many completion vectors as processors, each with its affinity and its hint. The
/// vector of asynchronous events is separate.
fn handlers(pair: &mut Pair) -> Result<()> {
    for guest in [&pair.a, &pair.b] {
        let text = guest.check("ibv_devinfo -v | grep num_comp_vectors", SHORT_TIMEOUT)?;
        ensure!(text.trim().ends_with(&CPUS.to_string()), "with {CPUS} processors: {text}");
        let seen = tree(guest)?;
        ensure!(seen.len() == CPUS as usize, "{} handlers", seen.len());
        for (cpu, handler) in (0..).zip(&seen) {
            ensure!(handler.cpu == cpu, "handler {cpu} is on processor {}", handler.cpu);
            let irq =
                format!("irq=$(awk -F: '/vrnic-comp{cpu}@/ {{ print $1+0 }}' /proc/interrupts)");
            let script = format!("{irq}; cd /proc/irq/$irq && cat smp_affinity_list affinity_hint");
            let text = guest.check(&script, SHORT_TIMEOUT)?;
            let expected = format!("{cpu} {:x}", 1 << cpu);
            let found = text.split_whitespace().collect::<Vec<_>>().join(" ");
            ensure!(found == expected, "vector {cpu} has affinity and hint '{found}'");
        }
        let lines = guest.check("grep -c vrnic-async /proc/interrupts", SHORT_TIMEOUT)?;
        ensure!(lines.trim() == "1", "{lines} asynchronous interrupts");
    }
    Ok(())
}

/// Checks that the interrupts of each of these vectors between two readings have hit its processor.
fn follow(
    (before, after): (&Interrupts, &Interrupts),
    expected: &[(u32, u32)],
    at_least: u64,
) -> Result<()> {
    for &(vector, cpu) in expected {
        let at = vector as usize;
        let all = after.of(at) - before.of(at);
        let here = after.on(at, cpu) - before.on(at, cpu);
        println!("vector {vector}: {here} of {all} interrupts on processor {cpu}");
        ensure!(
            here >= at_least && all - here <= STRAY,
            "vector {vector}: {here} of {all} interrupts on processor {cpu}: {before:?} {after:?}"
        );
    }
    Ok(())
}

/// With a program for each vector, /proc/interrupts, `rdma resource` and the driver's debugfs agree
/// on which handler serves which queue.
fn binding(pair: &mut Pair) -> Result<()> {
    let before = [Interrupts::read(&pair.a)?, Interrupts::read(&pair.b)?];
    let trees = tree(&pair.a)?;
    let streams = Streams::start(pair, ENDLESS, &ALL, 18100)?;
    wait_for(&pair.a, "ib_send_lat", 8)?;
    std::thread::sleep(Duration::from_secs(3));
    for guest in [&pair.a, &pair.b] {
        let mut bound = handlers_of(guest, "ib_send_lat")?;
        bound.sort_unstable();
        // Each program has one or two queues.
        let per = bound.len() / 4;
        ensure!(
            per > 0 && bound.chunks(per).zip(ALL).all(|(own, id)| own == vec![id; per]),
            "bound to {bound:?}"
        );
        for (id, handler) in tree(guest)?.iter().enumerate() {
            let cq = handler.cqs.iter().find(|cq| cq.qpns.iter().any(|qpn| *qpn > 1));
            let cq = cq.with_context(|| format!("handler {id} has no queue pair: {handler:?}"))?;
            ensure!(cq.events <= handler.events, "{handler:?}");
        }
    }
    let after = [Interrupts::read(&pair.a)?, Interrupts::read(&pair.b)?];
    let own: Vec<_> = ALL.iter().map(|vector| (*vector, *vector)).collect();
    for (before, after) in before.iter().zip(&after) {
        follow((before, after), &own, 10)?;
    }
    for (old, new) in trees.iter().zip(tree(&pair.a)?) {
        ensure!(new.events > old.events, "no events: {old:?} {new:?}");
    }
    streams.end()
}

/// Waits until programs of this name have `count` queues, or half as many, and exchange messages.
fn wait_for(guest: &Guest, program: &str, count: usize) -> Result<()> {
    let end = Instant::now() + SHORT_TIMEOUT;
    loop {
        let have = handlers_of(guest, program)?.len();
        let ready = guest.check("rdma res show qp | grep -c 'state RTS' || true", SHORT_TIMEOUT)?;
        if have >= count / 2 && ready.trim().parse::<usize>()? > count / 2 {
            return Ok(());
        }
        ensure!(Instant::now() < end, "{have} queues of {program}, {} in RTS", ready.trim());
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// Handlers of different vectors run in interrupts at the same time.
///
/// Shows: completions: handlers of different vectors run at the same time
fn parallel(pair: &mut Pair) -> Result<()> {
    pair.a.check(TRACE_ON, SHORT_TIMEOUT)?;
    Streams::start(pair, PINGPONG, &ALL, 18110)?.finish()?;
    let text = pair.a.check(TRACE_OFF, SHORT_TIMEOUT)?;
    let numbers = text.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>()?;
    let [began, beside, max_at_once] = *numbers else { anyhow::bail!("the trace says '{text}'") };
    println!("{began} completion interrupts, {beside} beside another, up to {max_at_once} at once");
    ensure!(began > 1000, "only {began} interrupts");
    ensure!(beside > 0 && max_at_once > 1, "none of {began} interrupts ran beside another");
    Ok(())
}

/// Four programs on four vectors, then on one: all events come in both cases.
fn throughput(pair: &mut Pair) -> Result<()> {
    for (vectors, port) in [(ALL, 18120), ([0; 4], 18130)] {
        let before = tree(&pair.a)?;
        let start = Instant::now();
        Streams::start(pair, PINGPONG, &vectors, port)?.finish()?;
        let seconds = start.elapsed().as_secs_f64();
        let grown: Vec<u64> =
            before.iter().zip(tree(&pair.a)?).map(|(old, new)| new.events - old.events).collect();
        let total: u64 = grown.iter().sum();
        println!("vectors {vectors:?}: {grown:?} events, {:.0} per second", total as f64 / seconds);
        let used = grown.iter().filter(|events| **events > 100).count();
        let expected = if vectors == ALL { 4 } else { 1 };
        ensure!(used == expected, "events {grown:?} with vectors {vectors:?}");
    }
    Ok(())
}

/// A vector that does not exist is refused, without other effects.
fn no_such_vector(pair: &mut Pair) -> Result<()> {
    refused(pair, CPUS, 18135)?;
    works(pair)
}

/// Checks that guest b has no such vector.
fn refused(pair: &Pair, vector: u32, port: u16) -> Result<()> {
    let server = format!("ib_send_bw -e -X {vector} -p {port}");
    let server = vrnic_tests::commands::serve(&pair.b, &server, port)?;
    // The program creates its queues when its client connects.
    let client = pair.a.agent().start(&format!("exec ib_send_bw -e -p {port} {}", pair.b.ip()))?;
    let output = server.wait(SHORT_TIMEOUT)?;
    stop(client)?;
    ensure!(!output.ok() && said(&output).contains("CQ"), "vector {vector}: {}", said(&output));
    Ok(())
}

/// Returns a program with a completion queue for which the driver chooses the vector.
fn indifferent(guest: &Guest, port: u16) -> Result<Running> {
    let before = handlers_of(guest, "ibv_rc_pingpong")?.len();
    let command = format!("VRNIC_COMP_VECTOR=any exec ibv_rc_pingpong -g 1 -p {port}");
    let program = guest.agent().start(&command)?;
    let end = Instant::now() + SHORT_TIMEOUT;
    while handlers_of(guest, "ibv_rc_pingpong")?.len() == before {
        ensure!(Instant::now() < end, "no completion queue comes");
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(program)
}

/// Starts programs for which the driver chooses the vector, one after the other. Returns them and
/// their vectors.
fn choices(guest: &Guest, count: u16) -> Result<(Vec<Running>, Vec<u32>)> {
    let programs = (0..count).map(|nth| indifferent(guest, 18600 + nth));
    let programs = programs.collect::<Result<Vec<_>>>()?;
    Ok((programs, handlers_of(guest, "ibv_rc_pingpong")?))
}

/// For queues whose creator leaves the choice to it, the driver chooses vectors with few recent
/// events, and spreads the queues over them.
///
/// Shows: completions: vectors of queues that nobody has chosen are spread
fn least_loaded(pair: &mut Pair) -> Result<()> {
    let streams = Streams::start(pair, ENDLESS, &[0, 1], 18140)?;
    wait_for(&pair.b, "ib_send_lat", 4)?;
    std::thread::sleep(Duration::from_secs(2));
    let (programs, mut got) = choices(&pair.b, 2)?;
    got.sort_unstable();
    stop_all(programs)?;
    streams.end()?;
    ensure!(got == [2, 3], "beside streams on 0 and 1 the handlers {got:?} were chosen");
    Ok(())
}

/// With the other rule the driver chooses each vector in turn.
fn in_turn(pair: &mut Pair) -> Result<()> {
    reload(&pair.b, "balance=1")?;
    let (programs, got) = choices(&pair.b, 8)?;
    stop_all(programs)?;
    let expected: Vec<u32> = got
        .first()
        .map(|first| (0..8).map(|n| (first + n) % CPUS).collect())
        .context("no queues")?;
    ensure!(got == expected, "handlers {got:?}");
    pair.b.check("rmmod vrnic", SHORT_TIMEOUT)?;
    let wrong = "insmod /vrnic/vrnic.ko balance=7 && ls /sys/class/infiniband/*";
    ensure!(!pair.b.agent().run(wrong, SHORT_TIMEOUT)?.ok(), "there is no such rule");
    reload(&pair.b, "")
}

/// The kernel's own storage client uses a queue of the core's pool for each processor.
fn pools(pair: &mut Pair) -> Result<()> {
    vrnic_tests::storage::attach(&pair.a, &pair.b)?;
    let bound = handlers_of(&pair.a, "[ib_core]")?;
    vrnic_tests::storage::detach(&pair.a)?;
    println!("queues of the storage client are bound to {bound:?}");
    ensure!(ALL.iter().all(|id| bound.contains(id)), "the pool's queues are bound to {bound:?}");
    Ok(())
}

/// Traffic of the storage client makes the core's DIM set moderation, and all blocks arrive.
///
/// Shows: completions: adaptive moderation of queues of the kernel
fn adaptive(pair: &mut Pair) -> Result<()> {
    vrnic_tests::storage::attach(&pair.a, &pair.b)?;
    let read = "for n in $(seq 12); do dd if=/dev/nvme0n1 of=/dev/null bs=4k count=2000 iflag=direct \
                2>&1 | grep -c '^2000+0 records in' & done; wait";
    let text = pair.a.check(read, LONG_TIMEOUT)?;
    let shown = pair.a.check("rdma res show cq -dd", SHORT_TIMEOUT)?;
    vrnic_tests::storage::detach(&pair.a)?;
    ensure!(text.split_whitespace().filter(|count| *count == "1").count() == 12, "reads: {text}");
    let periods = shown.split("drv_moderation_usec ").skip(1);
    let tuned = periods.filter(|rest| !rest.starts_with("0 ")).count();
    println!("moderation of {tuned} queues was tuned");
    ensure!(shown.contains("adaptive-moderation on") && tuned > 0, "not tuned: {shown}");
    Ok(())
}

/// A processor goes offline while a program uses its vector, and comes back: the program goes on,
/// and its interrupts move to another processor and back.
fn hotplug(pair: &mut Pair) -> Result<()> {
    let streams = Streams::start(pair, ENDLESS, &[2, 3], 18150)?;
    wait_for(&pair.b, "ib_send_lat", 4)?;
    for _ in 0..2 {
        pair.b.check("echo 0 > /sys/devices/system/cpu/cpu2/online", SHORT_TIMEOUT)?;
        // The driver's debugfs and the interrupts agree on the new processor.
        let cpu = tree(&pair.b)?.get(2).context("handler 2")?.cpu;
        ensure!(cpu != 2, "handler 2 stays on a processor that is offline");
        grows_on(&pair.b, 2, cpu)?;
        pair.b.check("echo 1 > /sys/devices/system/cpu/cpu2/online", SHORT_TIMEOUT)?;
        ensure!(tree(&pair.b)?.get(2).context("handler 2")?.cpu == 2, "handler 2 is not home");
        grows_on(&pair.b, 2, 2)?;
        grows_on(&pair.b, 3, 3)?;
    }
    // While the processor is offline, a new queue can use its vector, and the driver can be
    // reloaded.
    pair.b.check("echo 0 > /sys/devices/system/cpu/cpu2/online", SHORT_TIMEOUT)?;
    streams.end()?;
    Streams::start(pair, PINGPONG, &[2], 18160)?.finish()?;
    reload(&pair.b, "")?;
    Streams::start(pair, PINGPONG, &[2], 18161)?.finish()?;
    pair.b.check("echo 1 > /sys/devices/system/cpu/cpu2/online", SHORT_TIMEOUT)?;
    ensure!(tree(&pair.b)?.get(2).context("handler 2")?.cpu == 2, "handler 2 is not home");
    Ok(())
}

/// Waits until the interrupts of a vector hit this processor, and no other.
fn grows_on(guest: &Guest, vector: u32, cpu: u32) -> Result<()> {
    // The first interrupts may still hit the former processor.
    std::thread::sleep(Duration::from_millis(500));
    let before = Interrupts::read(guest)?;
    let end = Instant::now() + SHORT_TIMEOUT;
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let after = Interrupts::read(guest)?;
        if after.of(vector as usize) > before.of(vector as usize) + 20 {
            return follow((&before, &after), &[(vector, cpu)], 10);
        }
        ensure!(Instant::now() < end, "vector {vector} is silent: {before:?} {after:?}");
    }
}

/// With fewer vectors than processors, several processors share a handler, which stays on one of
/// them.
fn fewer(pair: &mut Pair) -> Result<()> {
    reload(&pair.b, "comp_vectors=2")?;
    let text = pair.b.check("ibv_devinfo -v | grep num_comp_vectors", SHORT_TIMEOUT)?;
    ensure!(text.trim().ends_with('2'), "with two vectors: {text}");
    let streams = Streams::start(pair, ENDLESS, &[0, 1], 18170)?;
    grows_on(&pair.b, 0, 0)?;
    grows_on(&pair.b, 1, 1)?;
    // Handler 1 belongs to the processors 1 and 3.
    pair.b.check("echo 0 > /sys/devices/system/cpu/cpu1/online", SHORT_TIMEOUT)?;
    grows_on(&pair.b, 1, 3)?;
    pair.b.check("echo 0 > /sys/devices/system/cpu/cpu3/online", SHORT_TIMEOUT)?;
    grows_on(&pair.b, 1, tree(&pair.b)?.get(1).context("handler 1")?.cpu)?;
    pair.b.check("echo 1 > /sys/devices/system/cpu/cpu3/online", SHORT_TIMEOUT)?;
    grows_on(&pair.b, 1, 3)?;
    pair.b.check("echo 1 > /sys/devices/system/cpu/cpu1/online", SHORT_TIMEOUT)?;
    grows_on(&pair.b, 1, 1)?;
    streams.end()?;
    refused(pair, 2, 18175)?;
    reload(&pair.b, "")
}

/// A program that gets completion events and never polls does not disturb other programs on its
/// vector.
///
/// Shows: completions: a user that never polls
fn never_polls(pair: &mut Pair) -> Result<()> {
    let stuck = Streams::start(pair, ENDLESS, &[1], 18180)?;
    wait_for(&pair.b, "ib_send_lat", 2)?;
    pair.b.check("kill -STOP $(pidof ib_send_lat)", SHORT_TIMEOUT)?;
    std::thread::sleep(Duration::from_secs(1));
    let before = tree(&pair.b)?;
    Streams::start(pair, PINGPONG, &[1], 18190)?.finish()?;
    let after = tree(&pair.b)?;
    let of = |handlers: &[vrnic_tests::events::Handler]| {
        handlers.get(1).and_then(|handler| handler.cqs.first()).map(|cq| (cq.cqn, cq.events))
    };
    let ((cqn, old), (same, new)) = of(&before).zip(of(&after)).context("the stuck queue")?;
    ensure!(cqn == same && new - old <= 1, "CQ {cqn} got {} notifications", new - old);
    pair.b.check("kill -CONT $(pidof ib_send_lat)", SHORT_TIMEOUT)?;
    stuck.end()
}

/// Many programs on one vector keep its processor busy. A program whose vector is on another
/// processor goes on.
///
/// Shows: hostile: an interrupt storm on one processor
fn storm(pair: &mut Pair) -> Result<()> {
    let streams = Streams::start(pair, ENDLESS, &[0; 6], 18200)?;
    wait_for(&pair.b, "ib_send_lat", 12)?;
    let before = Interrupts::read(&pair.b)?;
    let trees = tree(&pair.b)?;
    Streams::start(pair, PINGPONG, &[3], 18210)?.finish()?;
    let after = Interrupts::read(&pair.b)?;
    follow((&before, &after), &[(0, 0), (3, 3)], 10)?;
    let now = tree(&pair.b)?;
    let storm = now.first().zip(trees.first()).context("handler 0")?;
    // Events that are written while earlier events are unread raise no interrupt.
    let events = storm.0.events - storm.1.events;
    let interrupts = storm.0.interrupts - storm.1.interrupts;
    println!("the storm: {events} events, {interrupts} interrupts");
    ensure!(interrupts <= events + 2, "{interrupts} interrupts for {events} events");
    streams.end()?;
    works(pair)
}
