//! The trace of a QP: each step of its work, and nothing of others'.
//!
//! Shows: faults

use vrnic_abi::sq::Opcode;
use vrnic_abi::uar::ARM_NEXT;
use vrnic_adapter::injected::Untraced;
use vrnic_adapter::objects::faults::trace::{Record, Step};
use vrnic_simlink::Faults;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use super::{pairs, write};
use crate::bus::{Endpoint, Guest};
use crate::cable::Cable;
use crate::network::streams::connected;
use crate::world::Pair;

/// Returns the records of a trace.
fn records(guest: &Guest) -> Vec<Record> {
    let taken = guest.adapter.take_trace(usize::MAX).expect("a trace");
    assert_eq!(taken.lost, 0);
    assert!(taken.records.is_sorted_by_key(|record| record.at));
    taken.records
}

/// Returns names of the steps of a trace, in order.
fn names(guest: &Guest) -> Vec<String> {
    let name = |record: &Record| match record.step {
        Step::Doorbell => "doorbell".to_owned(),
        Step::Turn { .. } => "turn".to_owned(),
        Step::Fetch { wr_id, bytes, .. } => format!("fetch {wr_id} of {bytes}"),
        Step::Copy { from, to, last, .. } => format!("copy {from}..{to} {last}"),
        Step::Packet { leaves, opcode, .. } => {
            let opcode = opcode.map(|opcode| opcode.to_string()).unwrap_or_default();
            format!("{} {opcode}", if leaves { "sent" } else { "received" })
        }
        Step::Completion { wr_id, status, .. } => format!("completion {wr_id} {status:?}"),
        Step::Event { kind, held, .. } => format!("event {kind:?} {held}"),
        Step::Interrupt { held, .. } => format!("interrupt {held}"),
    };
    records(guest).iter().map(name).collect()
}

/// Makes a WRITE of 8 bytes whose completion raises an event.
fn write_with_event(p: &mut Pair) {
    p.a.send_cq.arm(ARM_NEXT);
    p.ga.host.interrupts(1);
    let wr = write(p, 8).id(77);
    p.run(&wr);
    assert!(p.sent().is_some());
}

#[test]
fn each_step_of_a_request_is_recorded_in_order() {
    let [mut copying, mut packets] = pairs(|_| {});
    for (p, way) in [
        (&mut copying, &["copy 0..8 true"][..]),
        (&mut packets, &["sent rc-write-only", "received rc-acknowledge"]),
    ] {
        p.ga.adapter.begin_trace(p.a.qpn).expect("begun");
        write_with_event(p);
        let found = names(&p.ga);
        let fetched = ["doorbell", "turn", "fetch 77 of 8"];
        let completed = ["completion 77 Success", "event Completion false", "interrupt false"];
        let expected = [&fetched[..], way, &completed].concat();
        // A QP may have further turns.
        let mut steps = found.iter().filter(|step| expected.contains(&step.as_str()));
        assert!(steps.by_ref().take(3).eq(fetched.iter()), "{found:?}");
        assert!(steps.filter(|step| *step != "turn").eq(expected[3..].iter()), "{found:?}");
        p.ga.adapter.end_trace();
        write_with_event(p);
        assert!(p.ga.adapter.take_trace(1).is_none());
    }
}

#[test]
fn the_receiver_of_a_message_has_a_trace_of_its_own() {
    for mut p in pairs(|_| {}) {
        p.gb.adapter.begin_trace(p.b.qpn).expect("begun");
        p.b.recv_cq.arm(ARM_NEXT);
        p.b.post_recv(9, &[]);
        p.run(&Wr::new(Opcode::Send, &[]));
        let found = names(&p.gb);
        for step in ["completion 9 Success", "event Completion false", "interrupt false"] {
            assert!(found.iter().any(|name| name == step), "{step}: {found:?}");
        }
        assert!(!found.iter().any(|name| name.starts_with("fetch")), "{found:?}");
        assert!(p.ga.adapter.take_trace(1).is_none(), "the sender is not traced");
    }
}

#[test]
fn segments_of_iwarp_are_recorded() {
    let cable = Cable::new(3, Faults::default());
    let (mut a, b) = connected(&cable);
    cable.ga.adapter.begin_trace(a.qpn).expect("begun");
    let wr = Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key);
    cable.complete(&mut a, &wr);
    let found = names(&cable.ga);
    let place = |step: &str| found.iter().position(|name| name == step);
    let [fetch, sent, received] =
        [place("fetch 1 of 8"), place("sent iwarp-write"), place("received tcp-empty")];
    assert!(fetch.is_some() && fetch < sent && sent < received, "{found:?}");
}

#[test]
fn rules_and_the_trace_look_at_the_same_places() {
    for mut p in pairs(|_| {}) {
        p.world.rule("drop-interrupt function=f1 vector=1");
        p.ga.adapter.begin_trace(p.a.qpn).expect("begun");
        write_with_event(&mut p);
        assert_eq!(p.ga.host.interrupts(1), 0);
        let found = names(&p.ga);
        assert_eq!(found.last().map(String::as_str), Some("interrupt true"), "{found:?}");
        assert_eq!(p.world.counts(), (1, 1), "the trace changes no counts");
    }
}

#[test]
fn one_queue_pair_that_exists_is_traced_at_a_time() {
    let p = Pair::local(Setup::default(), |_| {});
    let other = Endpoint::new(&p.ga, Setup::default());
    assert_eq!(p.ga.adapter.begin_trace(0x00ab_cdef), Err(Untraced::NoQp(0x00ab_cdef)));
    p.ga.adapter.begin_trace(p.a.qpn).expect("begun");
    assert_eq!(p.ga.adapter.begin_trace(other.qpn), Err(Untraced::Busy));
    p.ga.adapter.end_trace();
    p.ga.adapter.begin_trace(other.qpn).expect("begun");
    p.world.advance(6_000_000_000);
    p.ga.adapter.begin_trace(p.a.qpn).expect("the other one has ended, because nobody asked");
}
