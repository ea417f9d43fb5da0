//! Fault injection: rules are applied to packets of functions.
//!
//! Shows: faults

use serde_json::Value;
use vrnic_abi::admin::Stats;
use vrnic_abi::cq::Status;
use vrnic_abi::qp::Type;
use vrnic_abi::sq::Opcode;
use vrnic_faults::decision::{Stream, decide};
use vrnic_faults::{Rule, RuleId};
use vrnic_roce::wire::Qpn;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::vmm::vfio::Endpoint;
use vrnic_testdriver::wait;
use vrnic_testdriver::wr::Wr;

use crate::common::pattern;
use crate::common::world::World;

/// Checks that a WRITE and a READ of many packets, and an atomic, move the right data.
#[track_caller]
fn data_is_right([a, b]: &mut [Endpoint; 2], seed: usize) {
    const LEN: usize = 60_000;
    let data = pattern(LEN, seed);
    a.fill(0, &data);
    let write = Wr::new(Opcode::Write, &[a.sge(0, LEN as u32)]).to(b.buffer, b.key);
    a.run_expecting(&write, Status::Success);
    assert!(b.bytes(0, LEN) == data, "WRITE");
    let back = pattern(LEN, seed + 1);
    b.fill(0, &back);
    let read = Wr::new(Opcode::Read, &[a.sge(0, LEN as u32)]).to(b.buffer, b.key);
    a.run_expecting(&read, Status::Success);
    assert!(a.bytes(0, LEN) == back, "READ");
    b.fill(64, &40u64.to_le_bytes());
    let add = Wr::new(Opcode::FetchAdd, &[a.sge(8, 8)]).atomic(2, 0).to(b.buffer + 64, b.key);
    a.run_expecting(&add, Status::Success);
    let words = [a.bytes(8, 8), b.bytes(64, 8)];
    assert_eq!(words, [40u64, 42].map(|word| word.to_le_bytes().to_vec()));
}

/// Checks each action, in one daemon and in two.
fn every_action(world: World) {
    let mut ends = world.connected(|attr| (attr.timeout, attr.retry_cnt) = (14, 7));
    let before = world.stats();
    world.rule("drop function=f0 opcode=rc-write-middle nth=3");
    data_is_right(&mut ends, 1);
    assert_eq!(world.first("hit"), 1);
    let after = world.stats();
    let retransmitted = |stats: &[Stats; 2]| stats[0].roce_adp_retrans.get();
    assert!(retransmitted(&after) > retransmitted(&before), "nothing was sent again");

    world.rule("corrupt function=f0 opcode=rc-write-middle nth=5");
    data_is_right(&mut ends, 2);
    assert_eq!(world.first("hit"), 1);
    let icrc = |stats: [Stats; 2]| stats[1].rx_icrc_encapsulated.get();
    assert_eq!(icrc(world.stats()), icrc(after) + 1);

    let duplicates = |stats: [Stats; 2]| stats[1].duplicate_request.get();
    let before = duplicates(world.stats());
    world.rule("duplicate function=f0 times=30");
    data_is_right(&mut ends, 3);
    let hit = world.first("hit");
    assert!(hit > 5, "{hit}");
    wait::until("duplicates", || (duplicates(world.stats()) > before).then_some(()));

    for (seed, rule) in ["reorder behind=2 prob=0.2", "delay by=3ms prob=0.3", "delay by=200us"]
        .into_iter()
        .enumerate()
    {
        world.rule(&format!("{rule} seed={seed} function=f0"));
        for round in 0..5 {
            data_is_right(&mut ends, 10 * seed + round);
        }
        assert!(world.first("hit") > 0, "{rule}");
    }
    world.said("fault clear");
    data_is_right(&mut ends, 99);
    assert_eq!(world.said("fault list").lines().count(), 1, "only the head of the table");
    world.check();
}

#[test]
fn every_action_in_one_daemon() {
    every_action(World::one());
}

#[test]
fn every_action_between_two_daemons() {
    every_action(World::two());
}

#[test]
fn a_rule_that_drops_everything_uses_up_the_retries() {
    for world in [World::one(), World::two()] {
        let [mut a, b] = world.connected(|attr| (attr.timeout, attr.retry_cnt) = (10, 2));
        world.rule(&format!("drop function=f0 qp={}", a.qpn));
        let write = Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key);
        a.run_expecting(&write, Status::RetryExcErr);
        let seen = world.first("seen");
        assert!(seen >= 3 && world.first("hit") == seen, "{seen}");
        // The rule does not apply to another QP.
        data_is_right(&mut world.connected(|_| {}), 5);
        assert_eq!(world.first("seen"), seen);
        world.check();
    }
}

#[test]
fn the_same_seed_hits_the_same_packets() {
    const TEXT: &str = "drop function=f0 opcode=rc-write-only prob=0.4 seed=77";
    for world in [World::one(), World::one()] {
        let [mut a, b] = world.connected(|attr| (attr.timeout, attr.retry_cnt) = (12, 7));
        world.rule(TEXT);
        let (rule, function): (Rule, _) = (TEXT.parse().expect("a rule"), "f0");
        let stream = Stream { rule: RuleId::new(1), function, qp: Qpn::new(a.qpn) };
        for _ in 0..20 {
            let write = Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key);
            a.run_expecting(&write, Status::Success);
            let list: Value = serde_json::from_str(&world.said("fault list --json")).expect("JSON");
            let [seen, hit] = ["seen", "hit"].map(|field| list["rules"][0][field].as_u64());
            // Packets that are sent again also count for rules.
            let expected = (1..=seen.expect("a number"))
                .filter(|nth| decide(&rule, &stream, *nth).is_some())
                .count();
            assert_eq!(hit, Some(expected as u64), "of {seen:?}");
        }
        assert!(world.first("seen") >= 20 + world.first("hit") && world.first("hit") > 0);
        world.check();
    }
}

#[test]
fn rules_end_by_hits_and_by_time() {
    let world = World::one();
    let [mut a, b] = world.connected(|attr| (attr.timeout, attr.retry_cnt) = (12, 7));
    let write = Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key);
    world.rule("drop function=f0 times=2");
    a.run_expecting(&write, Status::Success);
    assert!(world.first("hit") == 2 && world.first("seen") >= 3);
    world.rule("drop function=f0 for=50ms");
    wait::until("the end of the rule", || world.said("fault list").contains(" yes ").then_some(()));
    a.run_expecting(&write, Status::Success);
    assert!(world.first("hit") == 0 && world.first("seen") >= 1);
    // A removed rule has no effect, and the others keep their numbers.
    assert_eq!(world.said("fault add drop function=f0"), "rule 2\n");
    assert_eq!(world.said("fault add duplicate function=f1"), "rule 3\n");
    world.said("fault clear 2");
    a.run_expecting(&write, Status::Success);
    let list = world.said("fault list");
    assert!(list.contains("duplicate function=f1") && !list.contains("\n2 "), "{list}");
    let metrics = world.said("metrics");
    let line = "vrnic_fault_hit_packets_total{rule=\"3\",text=\"duplicate function=f1\"} 1";
    assert!(metrics.contains(line), "{metrics}");
    world.check();
}

#[test]
fn packets_that_wait_leave_when_the_rules_are_cleared() {
    let world = World::one();
    let [mut a, b] = world.connected(|attr| (attr.timeout, attr.retry_cnt) = (0, 7));
    a.fill(0, &pattern(8, 4));
    world.rule("delay by=1000s");
    a.post_send(&Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key));
    wait::until("a packet that waits", || {
        world.said("fault list").contains("1 packets are delayed").then_some(())
    });
    assert!(a.send_cq.poll().is_none());
    world.said("fault clear");
    a.send_cq.expect(1, Status::Success);
    assert!(b.bytes(0, 8) == pattern(8, 4));
    world.check();
}

#[test]
fn packets_that_find_no_room_to_wait_are_dropped_and_counted() {
    let world = World::one();
    let setup = Setup { kind: Type::Uc, ..Setup::default() };
    let [mut a, b] = world.guests.each_ref().map(|guest| Endpoint::new(guest, setup));
    Endpoint::connect_pair(&a, &b);
    world.rule("delay by=1000s");
    // Sends 40 MiB, which are not acknowledged.
    for _ in 0..40 {
        let write = Wr::new(Opcode::Write, &[a.sge(0, 1 << 20)]).to(b.buffer, b.key);
        a.run_expecting(&write, Status::Success);
    }
    let list: Value = serde_json::from_str(&world.said("fault list --json")).expect("JSON");
    let [waiting, overflowed] =
        ["waiting", "overflowed"].map(|field| list[field].as_u64().expect("a number"));
    assert_eq!(waiting + overflowed, world.first("hit"));
    assert!((5000..8192).contains(&waiting), "{waiting}");
    let metrics = world.said("metrics");
    let line = format!("vrnic_fault_overflowed_packets_total {overflowed}\n");
    assert!(metrics.contains(&line), "{metrics}");
    world.said("fault clear");
    assert!(world.said("fault list").contains("\n0 packets are delayed;"));
    data_is_right(&mut world.connected(|_| {}), 8);
    world.check();
}

#[test]
fn a_rule_that_is_none_is_refused_with_a_reason() {
    let world = World::one();
    let long = format!("drop {}", "x".repeat(20_000));
    for (text, part) in [
        ("flip", "not an action"),
        ("drop qp", "name=value"),
        ("drop qp=1 qp=2", "twice"),
        ("drop qp=0x1000000", "24 bits"),
        ("drop prob=2", "from 0 to 1"),
        ("drop colour=red", "not a field"),
        ("drop opcode=rc-fly", "rc-write-only"),
        ("drop function=f7", "no function 'f7'"),
        ("delay", "needs a time"),
        ("delay by=99999999999999999999s", "a time is expected"),
        ("drop nth=0", "from 1"),
        (&long, "longer than"),
    ] {
        let output = world.vrnic(&format!("fault add {text}"));
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && why.contains(part), "{part}: {why}");
    }
    let why = world.vrnic("fault clear 1");
    assert!(String::from_utf8_lossy(&why.stderr).contains("no rule 1"));
    for _ in 0..64 {
        world.said("fault add drop function=f0 nth=1000000");
    }
    let why = world.vrnic("fault add drop");
    assert!(String::from_utf8_lossy(&why.stderr).contains("64 rules"));
    world.check();
}
