//! Faults by rules, as programs and the driver see them: docs/faults.md. Each case waits for the
//! proof that its rule has hit.
//!
//! Shows: faults

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use vrnic_qemu::agent::Running;
use vrnic_qemu::pair::{Options, Pair, load_module};
use vrnic_tests::commands::{
    LONG_TIMEOUT, SHORT_TIMEOUT, both, counter, hears_fatal, link_is, netdev_up, pingpong,
    recovers, registration, said, stop, stop_all, succeed, transfer, watch, works,
};
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::rules::{self, arm, fault, over, proved};

/// Control port of the transfers.
const PORT: u16 = 18900;
/// Time in which a program must end whose requests fail.
const FAILS: Duration = Duration::from_secs(30);
/// Time after which the driver gives up a command without an answer, and more.
const GIVEN_UP: Duration = Duration::from_secs(120);

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let daemon = rules::arguments();
    let options = Options { daemon, guest_faults: true, ..Options::default() };
    let cases = [of_transfers(), of_devices(), of_guests()];
    Ok(Suite::new(options, cases.into_iter().flatten().collect()))
}

/// Returns the cases of rules for requests, memory, interrupts and events of transfers.
fn of_transfers() -> Vec<Case> {
    vec![
        Case::new("a_request_fails_with_the_status", |pair| {
            ends_with(pair, "fail-request status=rem-access-err function=a times=1", "status 10")
        }),
        Case::new("a_completion_fails_with_the_status", |pair| {
            let rule = "fail-completion status=rem-op-err function=a opcode=write times=1";
            ends_with(pair, rule, "status 11")
        }),
        Case::new("lost_messages_use_up_the_retries", |pair| {
            ends_with(pair, "drop-message function=a", "status 12")
        }),
        Case::new("a_full_cq_stops_its_program", full_cq),
        Case::new("a_qp_in_error_ends_its_program", |pair| {
            ends_with(pair, "fail-qp function=a times=1", "")
        }),
        Case::new("a_storm_of_rnr_is_survived", |pair| {
            goes_on(pair, "ib_send_bw", "rnr function=b times=300", 300)
        }),
        Case::new("a_worker_that_pauses_is_survived", |pair| {
            goes_on(pair, "ib_write_bw", "pause-worker by=500ms function=a times=3", 3)
        }),
        Case::new("slow_memory_is_survived", |pair| {
            goes_on(pair, "ib_read_bw", "slow-memory rate=50M function=a for=3s", 10)
        }),
        Case::new("requests_that_begin_late_are_survived", |pair| {
            goes_on(pair, "ib_write_bw", "hold-request by=20ms every=50 function=a times=20", 20)
        }),
        Case::new("a_transfer_is_right_in_any_order_of_its_bytes", disorder),
        Case::new("late_interrupts_are_survived", |pair| {
            slow(pair, "delay-interrupt by=5ms function=a every=2")
        }),
        Case::new("late_events_are_survived", |pair| {
            slow(pair, "delay-event by=5ms event=completion function=a every=2")
        }),
        // The vector stays silent until the driver is loaded again.
        Case::ruinous("a_lost_interrupt_stops_a_program_that_waits", |pair| {
            stops(pair, "drop-interrupt vector=1 function=a times=1")
        }),
        Case::new("a_lost_event_stops_a_program_that_waits", |pair| {
            stops(pair, "drop-event event=completion function=a times=1")
        }),
    ]
}

/// Returns the cases of rules for ports, addresses, commands and whole devices.
fn of_devices() -> Vec<Case> {
    vec![
        Case::new("a_port_flaps_and_connections_go_on", flaps),
        Case::new("programs_hear_of_a_port_without_a_link", downed),
        Case::new("a_port_is_active_while_both_links_are_up", both_links),
        Case::new("a_lower_mtu_refuses_connections", mtu),
        Case::new("an_address_goes_and_comes", gid),
        Case::new("a_command_fails_or_is_slow", commands),
        Case::new("a_device_fails_and_recovers", device),
        Case::new("a_command_without_an_answer_resets_the_device", no_answer),
    ]
}

/// Returns the cases of rules that guests set, of traces, and of mistakes that rules uncover.
fn of_guests() -> Vec<Case> {
    vec![
        Case::new("a_guest_sets_rules_for_itself", guest_rules),
        Case::new("a_command_of_a_guest_runs_beside_a_rule", guest_command),
        Case::new("rules_of_a_guest_end_with_its_driver", guest_end),
        Case::new("a_queue_pair_is_traced", timeline),
        Case::new("the_last_byte_is_not_the_end", |pair| mistake(pair, "last-byte")),
        Case::new("a_flag_of_another_connection_overtakes", |pair| mistake(pair, "flag")),
        Case::new("a_buffer_is_used_again_too_early", |pair| mistake(pair, "reuse")),
        Case::new("a_rule_concerns_regions_of_relaxed_order_alone", relaxed),
    ]
}

/// A transfer of WRITEs from a ends because of a rule, and says so.
fn ends_with(pair: &mut Pair, rule: &str, says: &str) -> Result<()> {
    let (server, client) = transfer(pair, "ib_write_bw", 120, PORT)?;
    arm(pair, rule)?;
    proved(pair, 1)?;
    let output = client.wait(FAILS).context("the program hangs")?;
    let text = said(&output);
    stop(server)?;
    ensure!(!output.ok() && text.contains(says), "not '{says}': {text}");
    over(pair)
}

/// A transfer goes on although a rule hits this often.
fn goes_on(pair: &mut Pair, tool: &str, rule: &str, hits: u64) -> Result<()> {
    let (server, client) = transfer(pair, tool, 20, PORT)?;
    arm(pair, rule)?;
    proved(pair, hits)?;
    succeed([client, server], LONG_TIMEOUT)?;
    over(pair)
}

/// Programs exchange nothing any more, and can be ended.
fn stands_still(pair: &Pair, programs: [Running; 2]) -> Result<()> {
    let arrived = || counter(&pair.b, "rx_pkts");
    std::thread::sleep(Duration::from_secs(1));
    let before = arrived()?;
    std::thread::sleep(Duration::from_secs(2));
    let after = arrived()?;
    stop_all(programs)?;
    ensure!(before == after, "the programs go on: {before} and {after} packets");
    Ok(())
}

/// A program whose CQ has failed gets no completions any more, and can be ended. It would have to
/// read its asynchronous events, which perftest does not.
fn full_cq(pair: &mut Pair) -> Result<()> {
    let (server, client) = transfer(pair, "ib_write_bw", 120, PORT)?;
    arm(pair, "fill-cq function=a times=1")?;
    proved(pair, 1)?;
    stands_still(pair, [client, server])?;
    over(pair)
}

/// A program that waits for completions, and checks all bytes, finds no difference.
///
/// Shows: faults: a transfer is right in any order of its bytes
fn disorder(pair: &mut Pair) -> Result<()> {
    let programs = pingpong(pair, 100_000)?;
    arm(pair, "disorder seed=5 times=500")?;
    proved(pair, 500)?;
    succeed(programs, LONG_TIMEOUT)?;
    over(pair)
}

/// Programs that wait for events are slow but work.
fn slow(pair: &mut Pair, rule: &str) -> Result<()> {
    arm(pair, rule)?;
    both(&pair.b, &pair.a, &format!("ib_send_lat -e -n 50 -p {PORT}"), PORT)?;
    proved(pair, 10)?;
    over(pair)
}

/// A program waits for a completion event that was lost, or whose interrupt was. It waits forever,
/// and can be ended.
fn stops(pair: &mut Pair, rule: &str) -> Result<()> {
    let command = format!("exec ib_send_lat -e -n 1000000 -p {PORT}");
    let server = pair.b.agent().start(&command)?;
    pair.b.listens_on(PORT)?;
    let client = pair.a.agent().start(&format!("{command} {}", pair.b.ip()))?;
    std::thread::sleep(Duration::from_secs(3));
    arm(pair, rule)?;
    proved(pair, 1)?;
    stands_still(pair, [client, server])?;
    over(pair)
}

/// The link goes down for two short times, and a connection survives.
fn flaps(pair: &mut Pair) -> Result<()> {
    let programs = pingpong(pair, 20_000)?;
    arm(pair, "port-down function=a lasts=150ms pause=400ms times=2")?;
    proved(pair, 2)?;
    succeed(programs, LONG_TIMEOUT)?;
    over(pair)
}

/// A rule takes the link of a's port away until the rule is removed.
const DOWN: &str = "port-down function=a";

/// Programs get one event when a rule takes the link away and one when it is back, and see the
/// state in between. The network card keeps its link.
///
/// Shows: network: events and state of a port whose link is lost
fn downed(pair: &mut Pair) -> Result<()> {
    let watcher = watch(&pair.a)?;
    arm(pair, DOWN)?;
    proved(pair, 1)?;
    link_is(&pair.a, "DOWN")?;
    let seen = "cat /sys/class/infiniband/*/ports/1/state /sys/class/net/eth0/carrier; ibv_devinfo";
    let text = pair.a.check(seen, SHORT_TIMEOUT)?;
    let shown = text.starts_with("1: DOWN\n1\n") && text.contains("PORT_DOWN (1)");
    ensure!(shown, "while the port is down: {text}");
    fault(pair, &["clear"])?;
    link_is(&pair.a, "ACTIVE")?;
    works(pair)?;
    let text = said(&stop(watcher)?);
    let heard: Vec<_> = ["PORT_ERR", "PORT_ACTIVE"]
        .into_iter()
        .map(|kind| (text.matches(kind).count(), text.find(kind)))
        .collect();
    let in_order = heard.iter().all(|(count, _)| *count == 1) && heard[0].1 < heard[1].1;
    ensure!(in_order, "not one event of either kind, in this order, in\n{text}");
    Ok(())
}

/// A port whose adapter has no link is down when the driver is loaded, and when its network card
/// gets a link. It is active when both have one.
fn both_links(pair: &mut Pair) -> Result<()> {
    arm(pair, DOWN)?;
    pair.a.check("rmmod vrnic && insmod /vrnic/vrnic.ko", SHORT_TIMEOUT)?;
    link_is(&pair.a, "DOWN")?;
    pair.a.check("ip link set eth0 down", SHORT_TIMEOUT)?;
    let watcher = watch(&pair.a)?;
    netdev_up(&pair.a)?;
    std::thread::sleep(Duration::from_secs(1));
    link_is(&pair.a, "DOWN")?;
    pair.a.check("ip link set eth0 down", SHORT_TIMEOUT)?;
    fault(pair, &["clear"])?;
    std::thread::sleep(Duration::from_secs(1));
    link_is(&pair.a, "DOWN")?;
    netdev_up(&pair.a)?;
    link_is(&pair.a, "ACTIVE")?;
    let text = said(&stop(watcher)?);
    ensure!(!text.contains("PORT_ERR"), "the port was down before: {text}");
    ensure!(text.matches("PORT_ACTIVE").count() == 1, "the port became active once: {text}");
    works(pair)
}

/// A program whose path MTU is larger than that of the port gets no connection.
fn mtu(pair: &mut Pair) -> Result<()> {
    arm(pair, "lower-mtu bytes=512 function=a")?;
    proved(pair, 1)?;
    let refused = both(&pair.b, &pair.a, &format!("ib_write_bw -m 1024 -n 100 -p {PORT}"), PORT);
    let why = refused.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(why.contains("to RTR"), "with an MTU of 1024: {why}");
    both(&pair.b, &pair.a, &format!("ib_write_bw -m 512 -n 100 -p {PORT}"), PORT)?;
    over(pair)
}

/// A program gets no connection from an address that the port has lost, and gets one when the
/// address is there again.
fn gid(pair: &mut Pair) -> Result<()> {
    let program = format!("ib_write_bw -x 1 -n 100 -p {PORT}");
    both(&pair.b, &pair.a, &program, PORT)?;
    arm(pair, "remove-gid index=1 function=a")?;
    proved(pair, 1)?;
    let refused = both(&pair.b, &pair.a, &program, PORT);
    let why = refused.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(why.contains("to RTR"), "without the address: {why}");
    fault(pair, &["clear"])?;
    both(&pair.b, &pair.a, &program, PORT)?;
    over(pair)
}

fn commands(pair: &mut Pair) -> Result<()> {
    let program = "ibv_rc_pingpong -g 1 -n 1 127.0.0.1 2>&1";
    arm(pair, "fail-command status=no-resource command=create-cq function=a times=1")?;
    let output = pair.a.agent().run(program, SHORT_TIMEOUT)?;
    ensure!(said(&output).contains("create CQ"), "no failure: {}", said(&output));
    proved(pair, 1)?;
    arm(pair, "delay-command by=2s command=reg-mr function=a times=1")?;
    let start = Instant::now();
    let output = pair.a.agent().run(program, SHORT_TIMEOUT)?;
    proved(pair, 1)?;
    ensure!(start.elapsed() >= Duration::from_secs(2), "it did not wait: {}", said(&output));
    ensure!(!said(&output).contains("register MR"), "the command failed: {}", said(&output));
    over(pair)
}

fn device(pair: &mut Pair) -> Result<()> {
    let watcher = watch(&pair.a)?;
    let before = registration(&pair.a)?;
    arm(pair, "fail-device function=a")?;
    proved(pair, 1)?;
    recovers(&pair.a, before)?;
    hears_fatal(watcher)?;
    over(pair)
}

/// A program waits for a command that the adapter never answers. The driver gives the adapter up
/// after a minute, and the program ends with an error.
fn no_answer(pair: &mut Pair) -> Result<()> {
    let before = registration(&pair.a)?;
    arm(pair, "drop-command command=create-qp function=a times=1")?;
    let start = Instant::now();
    let program = pair.a.agent().start("exec ibv_rc_pingpong -g 1 -n 1 127.0.0.1 2>&1")?;
    proved(pair, 1)?;
    let output = program.wait(GIVEN_UP).context("the program waits forever")?;
    let (took, text) = (start.elapsed(), said(&output));
    ensure!(!output.ok() && text.contains("create QP"), "no failure: {text}");
    ensure!(took > Duration::from_secs(30), "the driver waited for {took:?} only");
    recovers(&pair.a, before)?;
    over(pair)
}

/// The file in which a guest sets rules, as a shell word.
const GUEST_RULES: &str = "/sys/kernel/debug/vrnic-*/faults";

/// A program sets rules for its own device, by the C library. They end with it.
///
/// Shows: faults: a guest sets rules for itself
fn guest_rules(pair: &mut Pair) -> Result<()> {
    fault(pair, &["clear"])?;
    pair.a.check("vrnic_faults", SHORT_TIMEOUT)?;
    ensure!(rules::hits(pair)?.is_empty(), "rules are left");
    works(pair)
}

/// A command that runs under a rule, by the Rust library, fails as demanded. The rule does not
/// concern the other guest. One that hits nothing fails the command.
fn guest_command(pair: &mut Pair) -> Result<()> {
    let beside = |rule: &str, command: &str| {
        format!("vrnic-fault $(ls /sys/class/infiniband) '{rule}' {command} 2>&1")
    };
    let rule = "fail-request status=rem-op-err opcode=write nth=20";
    let output = pair.a.agent().run(&beside(rule, "vrnic_mistakes last-byte"), SHORT_TIMEOUT)?;
    let text = said(&output);
    ensure!(!output.ok() && text.contains("waiting for a byte failed"), "{text}");
    ensure!(text.contains(": 1 hits"), "{text}");
    let output = pair.a.agent().run(&beside("fail-qp opcode=fetch-add", "true"), SHORT_TIMEOUT)?;
    let text = said(&output);
    ensure!(output.code == 125 && text.contains("has hit nothing"), "{text}");
    let output = pair.a.agent().run(&beside("fail-qp function=b", "true"), SHORT_TIMEOUT)?;
    ensure!(output.code == 125 && said(&output).contains("own function"), "{}", said(&output));
    let arm = format!("echo fail-request status=rem-op-err > $(echo {GUEST_RULES})");
    pair.a.check(&arm, SHORT_TIMEOUT)?;
    pair.b.check("vrnic_mistakes last-byte", SHORT_TIMEOUT)?;
    pair.a.check(&format!("echo clear > $(echo {GUEST_RULES})"), SHORT_TIMEOUT)?;
    works(pair)
}

/// Rules of a guest end when its driver is unloaded. Those of the operator stay.
fn guest_end(pair: &mut Pair) -> Result<()> {
    arm(pair, "fail-qp function=b nth=999999")?;
    let add = format!("echo fail-qp nth=999999 > $(echo {GUEST_RULES}); cat {GUEST_RULES}");
    let text = pair.a.check(&add, SHORT_TIMEOUT)?;
    ensure!(text.starts_with("rule 1 seen 0 hit 0 ") && text.lines().count() == 1, "{text}");
    let listed = fault(pair, &["list"])?;
    ensure!(rules::hits(pair)?.len() == 2 && listed.contains("a:1"), "{listed}");
    pair.a.check("rmmod vrnic", SHORT_TIMEOUT)?;
    ensure!(rules::hits(pair)?.len() == 1, "{}", fault(pair, &["list"])?);
    load_module(&pair.a)?;
    let text = pair.a.check(&format!("cat {GUEST_RULES}"), SHORT_TIMEOUT)?;
    ensure!(text.is_empty(), "{text}");
    over(pair)
}

/// A program with a mistake works by luck, and an adapter that moves bytes in another order finds
/// the mistake.
///
/// Shows: faults: programs that poll the last byte, or use a buffer too early, are found
fn mistake(pair: &mut Pair, name: &str) -> Result<()> {
    fault(pair, &["clear"])?;
    let command = format!("vrnic_mistakes {name}");
    let quiet = pair.a.check(&command, SHORT_TIMEOUT)?;
    arm(pair, "disorder function=a opcode=write seed=7")?;
    let output = pair.a.agent().run(&command, SHORT_TIMEOUT)?;
    proved(pair, 1)?;
    let text = said(&output);
    ensure!(output.code == 1 && text.contains("found wrong data"), "not found: {quiet} {text}");
    over(pair)
}

/// A program works by luck with memory of the usual order, and not with memory of relaxed order.
fn relaxed(pair: &mut Pair) -> Result<()> {
    arm(pair, "disorder function=a opcode=write seed=7 relaxed=yes")?;
    pair.a.check("vrnic_mistakes last-byte 300", SHORT_TIMEOUT)?;
    let output = pair.a.agent().run("vrnic_mistakes last-byte 300 relaxed", SHORT_TIMEOUT)?;
    proved(pair, 1)?;
    ensure!(output.code == 1 && said(&output).contains("found wrong data"), "{}", said(&output));
    over(pair)
}

/// A program's queue pair has a timeline, from doorbells to completions, as text and as JSON.
///
/// Shows: faults: the timeline of a queue pair of a program
fn timeline(pair: &mut Pair) -> Result<()> {
    let (server, client) = transfer(pair, "ib_write_bw", 30, PORT)?;
    let listed = pair.monitor(&["show", "qp", "--function", "a", "--json"])?;
    let listed: Value = serde_json::from_str(&listed)?;
    let qps = listed[0]["qps"].as_array().with_context(|| listed.to_string())?;
    let numbers = qps.iter().filter_map(|qp| qp["qpn"].as_u64());
    let qp = numbers.max().context("no queue pair")?.to_string();
    let trace = ["trace", &qp, "--function", "a", "--for", "20", "--count", "200"];
    let text = rules::change(pair, &trace)?;
    for step in ["fetch", "copy", "acknowledged", "completion"] {
        let line = format!(" {step} ");
        ensure!(text.lines().any(|it| it.contains(&line)), "no {step}: {text}");
    }
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("trace.json");
    let file = file.to_string_lossy();
    rules::change(pair, &[&trace[..], &["--perfetto", &file]].concat())?;
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(&*file)?)?;
    let events = trace["traceEvents"].as_array().context("no events")?;
    ensure!(events.iter().any(|event| event["ph"] == "X"), "no work request: {trace}");
    succeed([client, server], LONG_TIMEOUT)?;
    works(pair)
}
