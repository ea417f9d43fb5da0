//! Rules that a guest sets for its own function.
//!
//! Shows: faults

use vrnic_abi::admin::{
    DeviceFeatures, EditFaults, FAULT_LINES_MAX, FAULT_TEXT_LEN, ListFaults, NONE,
    Status as Refusal, command,
};
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::Type;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::qp::Setup;

use super::{MILLI, pairs, pass, worlds, write};
use crate::bus::Guest;
use crate::messages::datagrams::datagram;
use crate::world::{Pair, World};

/// Returns a pair whose guests may set rules.
fn pair() -> Pair {
    let p = Pair::local(Setup::default(), |attr| attr.retry_cnt = 1);
    [&p.ga, &p.gb].into_iter().for_each(|guest| guest.adapter.permit_faults(true));
    p
}

/// Runs EDIT_FAULTS with these bytes. Returns the number, or the reason.
fn edit(guest: &Guest, text: impl AsRef<[u8]>) -> Result<u32, String> {
    let (text, addr) = (text.as_ref(), guest.ram().alloc(4096));
    guest.ram().write(addr, text);
    let len = u32::try_from(text.len()).expect("short").into();
    let params = EditFaults { addr: addr.into(), len, ..EditFaults::default() };
    let result = guest.command::<command::EditFaults>(&params).expect("EDIT_FAULTS");
    if result.reason.get() == 0 {
        return Ok(result.number.get());
    }
    assert_eq!(result.number.get(), 0);
    Err(lines(guest, addr, result.reason.get()))
}

fn lines(guest: &Guest, addr: u64, len: u32) -> String {
    String::from_utf8(guest.ram().read(addr, len as usize)).expect("UTF-8")
}

/// Runs LIST_FAULTS. Returns the text, and the number to continue from.
fn list(guest: &Guest, from: u32, len: u32) -> (String, u32) {
    let addr = guest.ram().alloc(4096);
    let params = ListFaults { addr: addr.into(), len: len.into(), from: from.into() };
    let result = guest.command::<command::ListFaults>(&params).expect("LIST_FAULTS");
    (lines(guest, addr, result.len.get()), result.next.get())
}

#[test]
fn a_guest_fails_its_own_work_alone() {
    let mut p = pair();
    assert_eq!(edit(&p.gb, "fail-request status=rem-op-err opcode=write"), Ok(1));
    assert_eq!(edit(&p.ga, " fail-request status=loc-len-err opcode=write times=1 \n"), Ok(1));
    let wr = write(&p, 8);
    p.run(&wr);
    assert_eq!(p.sent().expect("a completion").status, vrnic_abi::cq::Status::LocLenErr as u8);
    let (text, next) = list(&p.ga, 0, FAULT_LINES_MAX);
    let [line] = &text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert!(line.starts_with("rule 1 seen 1 hit 1 armed_ns "), "{line}");
    assert!(line.ends_with(" over 1 fail-request status=loc-len-err opcode=write times=1"));
    assert_eq!(next, NONE);
    assert!(list(&p.gb, 0, FAULT_LINES_MAX).0.starts_with("rule 1 seen 0 hit 0 "));
}

#[test]
fn a_guest_takes_its_own_port_away() {
    for p in pairs(|_| {}) {
        p.ga.adapter.permit_faults(true);
        assert_eq!(edit(&p.ga, "port-down lasts=2ms pause=3ms times=2"), Ok(1));
        for round in 1..=2 {
            pass(&p, MILLI);
            assert_eq!(p.ga.drain_events(), [(Kind::PortDown, 1)], "round {round}");
            pass(&p, 2 * MILLI);
            assert_eq!(p.ga.drain_events(), [(Kind::PortUp, 1)], "round {round}");
            pass(&p, 2 * MILLI);
        }
        assert_eq!(p.gb.drain_events(), [], "the port of the other guest");
        let (text, _) = list(&p.ga, 0, FAULT_LINES_MAX);
        assert!(text.starts_with("rule 1 seen 2 hit 2 "), "{text}");
    }
}

#[test]
fn a_guest_takes_its_own_gid_away() {
    for world in worlds() {
        let mut p = Pair::datagrams(world, Setup { kind: Type::Ud, ..Setup::default() });
        p.ga.adapter.permit_faults(true);
        let index = p.there().av.sgid_index.get();
        assert_eq!(edit(&p.ga, format!("remove-gid index={index} for=5ms")), Ok(1));
        p.ga.adapter.run_faults();
        for arrives in [false, true] {
            p.expect(8);
            let wr = datagram(&[p.a.sge(0, 8)], p.there());
            assert_eq!(p.send(&wr), Status::Success);
            assert_eq!(p.received().is_some(), arrives);
            pass(&p, 6 * MILLI);
        }
        let (text, _) = list(&p.ga, 0, FAULT_LINES_MAX);
        assert!(text.starts_with("rule 1 seen 1 hit 1 "), "{text}");
    }
}

#[test]
fn what_a_guest_may_not_have_is_refused_with_the_reason() {
    let p = pair();
    for (text, reason) in [
        ("drop-message function=f2", "for its own function"),
        ("drop-message colour=red", "colour"),
        ("", "action"),
        ("clear 7", "there is no rule 7"),
        ("clear all", "there is no rule all"),
        ("clear 1 2", "clear"),
    ] {
        let why = edit(&p.ga, text).expect_err(text);
        assert!(why.contains(reason), "{text}: {why}");
    }
    assert!(edit(&p.ga, [0xff; 9]).expect_err("no text").contains("UTF-8"));
    let long = format!("drop-message {}", "x".repeat(499));
    let why = edit(&p.ga, &long).expect_err("long");
    assert!(why.len() <= FAULT_TEXT_LEN as usize && why.contains("xxx"), "{why}");
    assert_eq!(list(&p.ga, 0, FAULT_LINES_MAX), (String::new(), NONE));
    assert_eq!(edit(&p.ga, "drop-message function=f1"), Ok(1), "its own name");
    for number in 2..=16 {
        assert_eq!(edit(&p.ga, "fail-qp nth=999"), Ok(number));
    }
    assert!(edit(&p.ga, "fail-qp").expect_err("full").contains("16 rules"));
    assert_eq!(edit(&p.gb, "fail-qp nth=999"), Ok(1), "another guest has its own");
    p.world.rule("fail-qp nth=999");
}

#[test]
fn lists_of_many_rules_are_continued() {
    let p = pair();
    (1..=16).for_each(|number| assert_eq!(edit(&p.ga, "fail-qp nth=999"), Ok(number)));
    assert_eq!(edit(&p.ga, "clear 3"), Ok(3));
    let (mut text, mut from, mut pages) = (String::new(), 0, 0);
    while from != NONE {
        let (more, next) = list(&p.ga, from, FAULT_TEXT_LEN);
        assert!(next > from && more.len() <= FAULT_TEXT_LEN as usize && more.ends_with('\n'));
        text.push_str(&more);
        (from, pages) = (next, pages + 1);
    }
    assert_eq!((text.lines().count(), text.contains("rule 3 ")), (15, false));
    assert!(pages > 1);
    assert_eq!(edit(&p.ga, "clear"), Ok(0));
    assert_eq!(list(&p.ga, 0, FAULT_LINES_MAX), (String::new(), NONE));
    assert_eq!(edit(&p.ga, "fail-qp"), Ok(1), "the first again");
}

#[test]
fn without_permission_there_are_no_such_commands() {
    let world = World::copying();
    let guest = world.guest(1);
    assert!(!guest.caps().has(DeviceFeatures::FAULTS));
    let unsupported = Some(Refused(Refusal::Unsupported, 0));
    let params = EditFaults { addr: guest.ram().alloc(4096).into(), ..EditFaults::default() };
    assert_eq!(guest.command::<command::EditFaults>(&params).err(), unsupported);
    let params = ListFaults { addr: params.addr, len: 512.into(), from: 0.into() };
    assert_eq!(guest.command::<command::ListFaults>(&params).err(), unsupported);
    guest.adapter.permit_faults(true);
    assert!(guest.caps().has(DeviceFeatures::FAULTS));
}

#[test]
fn bad_parameters_are_refused() {
    let p = pair();
    let (guest, good) = (&p.ga, EditFaults { addr: 8.into(), ..EditFaults::default() });
    let refused = |params| guest.command::<command::EditFaults>(&params).err();
    let bad = |offset| Some(Refused(Refusal::BadParam, offset));
    assert_eq!(refused(EditFaults { addr: 9.into(), ..good }), bad(0));
    assert_eq!(refused(EditFaults { len: 513.into(), ..good }), bad(8));
    assert_eq!(refused(EditFaults { reserved: 1.into(), ..good }), bad(12));
    let nowhere = EditFaults { addr: (u64::MAX - 7).into(), len: 512.into(), ..good };
    assert_eq!(refused(nowhere), Some(Refused(Refusal::BadAddress, 0)));
    let good = ListFaults { addr: 8.into(), len: 512.into(), from: 0.into() };
    let refused = |params| guest.command::<command::ListFaults>(&params).err();
    assert_eq!(refused(ListFaults { addr: 4.into(), ..good }), bad(0));
    assert_eq!(refused(ListFaults { len: 511.into(), ..good }), bad(8));
    assert_eq!(refused(ListFaults { len: 4097.into(), ..good }), bad(8));
    assert_eq!(edit(guest, "fail-qp nth=999"), Ok(1));
    let nowhere = ListFaults { addr: (u64::MAX - 7).into(), ..good };
    assert_eq!(refused(nowhere), Some(Refused(Refusal::BadAddress, 0)));
}

#[test]
fn a_reset_ends_the_rules_of_the_guest_alone() {
    let p = pair();
    p.world.rule("fail-qp nth=999");
    assert_eq!(edit(&p.ga, "fail-qp nth=999"), Ok(1));
    assert_eq!(edit(&p.gb, "fail-qp nth=999"), Ok(1));
    p.ga.adapter.reset();
    let left = p.world.fabric.faults.list(p.world.time(), |rule| rule.guest.map(str::to_owned));
    assert_eq!(left, [None, Some("f2".to_owned())]);
}
