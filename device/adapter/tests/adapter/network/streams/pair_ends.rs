//! Tests how connections between adapters of one daemon end (iWARP). Most cases also run over
//! packets, and must have the same effects.
//!
//! Shows: iwarp

use std::fmt;
use std::sync::Arc;

use vrnic_abi::admin::Opcode as Admin;
use vrnic_abi::connection::{Ending, Stage};
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::wr::Wr;

use crate::bus::Endpoint;
use crate::network::streams::ends::{MS, ending, stage};
use crate::network::streams::pairs::Daemon;

/// The effects of the end of a connection on drivers and programs at both ends.
struct Seen {
    states: [State; 2],
    /// For each end: true if its connection is closed, and how the connection ended.
    closed: [(bool, Ending); 2],
    sends: [Vec<Status>; 2],
    receives: [Vec<Status>; 2],
    events: [Vec<Kind>; 2],
    bytes: Vec<u8>,
}

impl Seen {
    fn at(a: &mut Endpoint, b: &mut Endpoint) -> Self {
        let both = [&*a, &*b];
        let states = both.map(Endpoint::state);
        let closed = both.map(|end| (stage(end) as u8 >= Stage::Closed as u8, ending(end)));
        let events = both.map(|end| {
            let own = end.guest.drain_events().into_iter().filter(|event| event.1 == end.qpn);
            let mut kinds: Vec<Kind> = own.map(|event| event.0).collect();
            kinds.retain(|kind| *kind != Kind::ConnectionChanged);
            kinds
        });
        let bytes = b.bytes(0, 2000);
        let sends = [&mut *a, &mut *b]
            .map(|end| std::iter::from_fn(|| end.send_cq.poll()).map(|cqe| status(&cqe)).collect());
        let receives = [a, b]
            .map(|end| std::iter::from_fn(|| end.recv_cq.poll()).map(|cqe| status(&cqe)).collect());
        Self { states, closed, sends, receives, events, bytes }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, closed, sends, receives, events, bytes } = self;
        let sum = bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
        write!(f, "{states:?} {closed:?} {sends:?} {receives:?} {events:?} {sum}")
    }
}

/// Runs a case over packets and by memory copies. Checks that both have the same effects after some
/// seconds.
#[track_caller]
fn same(case: impl Fn(&Daemon, &mut Endpoint, &mut Endpoint)) -> String {
    let [packets, copied] = [true, false].map(|packets| seen(packets, &case));
    assert_eq!(packets, copied);
    copied
}

/// Runs a case by memory copies. Returns its effects after some seconds.
fn copied(case: impl Fn(&Daemon, &mut Endpoint, &mut Endpoint)) -> String {
    seen(false, case)
}

fn seen(packets: bool, case: impl Fn(&Daemon, &mut Endpoint, &mut Endpoint)) -> String {
    let daemon = Daemon::new(packets);
    let (mut a, mut b) = daemon.connected();
    a.fill(0, &[7; 2000]);
    let events = [&a, &b].map(|end| end.guest.drain_events());
    assert!(events.iter().all(|events| events.len() == 1));
    case(&daemon, &mut a, &mut b);
    daemon.pass(8000 * MS);
    Seen::at(&mut a, &mut b).to_string()
}

/// The refused request ends both QPs, but only after a READ before it that takes many turns. Over
/// packets the WRITE overtakes the response.
#[test]
fn a_message_that_is_refused_behind_a_long_read() {
    let seen = copied(|_, a, b| {
        a.post_send(&Wr::new(Opcode::Read, &[a.sge(0, 3 << 20)]).to(b.buffer, b.key));
        a.post_send(&Wr::new(Opcode::Write, &[a.sge(0, 500)]).to(b.buffer, b.key ^ 1));
    });
    assert!(seen.contains("Success, RemAccessErr"), "{seen}");
}

/// A QP whose peer is still connected keeps no reference to a QP that was reset.
#[test]
fn a_qp_that_was_reset_is_not_kept_by_its_partner() {
    let daemon = Daemon::new(false);
    let (mut a, b) = daemon.connected();
    let write = Wr::new(Opcode::Write, &[a.sge(0, 100)]).to(b.buffer, b.key);
    assert_eq!(daemon.complete(&mut a, &write), Status::Success);
    let qp = Arc::downgrade(&daemon.guests[1].adapter.qp(b.qpn).expect("QP"));
    b.guest.adapter.reset();
    daemon.pass(10_000 * MS);
    assert_eq!(a.state(), State::Err);
    assert!(qp.upgrade().is_none(), "the QP that was reset is still referenced");
}

#[test]
fn a_refused_message_ends_both_ends_as_over_packets() {
    for opcode in [Opcode::Write, Opcode::Read, Opcode::FetchAdd] {
        let seen = same(|_, a, b| {
            b.post_recv(1, &[b.sge(1000, 100)]);
            let len = if opcode == Opcode::FetchAdd { 8 } else { 500 };
            for key in [b.key ^ 1, b.key] {
                let wr = Wr::new(opcode, &[a.sge(0, len)]).to(b.buffer, key);
                a.post_send(&if opcode == Opcode::FetchAdd { wr.atomic(1, 0) } else { wr });
            }
        });
        assert!(seen.contains("TerminateReceived") && seen.contains("TerminateSent"), "{seen}");
        assert!(seen.contains("RemAccessErr, WrFlushErr"), "{seen}");
    }
    // Out of bounds, and not aligned.
    for (opcode, len, at) in [(Opcode::Write, 500, 1 << 40), (Opcode::CmpSwp, 8, 4)] {
        same(|_, a, b| {
            let wr = Wr::new(opcode, &[a.sge(0, len)]).to(b.buffer + at, b.key);
            a.post_send(&if opcode == Opcode::CmpSwp { wr.atomic(1, 0) } else { wr });
        });
    }
}

#[test]
fn a_send_without_a_right_receive_ends_both_ends_as_over_packets() {
    // A receive that is too small, an invalid receive, and none.
    same(|_, a, b| {
        b.post_recv(1, &[b.sge(0, 100)]);
        a.post_send(&Wr::new(Opcode::Send, &[a.sge(0, 101)]));
    });
    let seen = same(|_, a, b| {
        b.post_recv(1, &[b.sge(0, 100)]);
        let send = Wr::new(Opcode::SendInv, &[a.sge(0, 10)]);
        a.post_send(&Wr { rkey: 12_345, ..send });
    });
    assert!(seen.contains("RemAccessErr"), "{seen}");
}

/// Over packets, the acknowledgement of TCP completes such a SEND.
#[test]
fn a_send_that_finds_no_receive_fails() {
    let seen = copied(|_, a, _| a.post_send(&Wr::new(Opcode::Send, &[a.sge(0, 10)])));
    let ends = "[Err, Err] [(true, TerminateReceived), (true, TerminateSent)]";
    assert_eq!(seen, format!("{ends} [[RnrRetryExcErr], []] [[], []] [[QpFatal], [QpFatal]] 0"));
}

#[test]
fn a_send_waits_for_its_receive() {
    let seen = same(|daemon, a, b| {
        for _ in 0..5 {
            a.post_send(&Wr::new(Opcode::Send, &[a.sge(0, 2000)]));
        }
        for _ in 0..5 {
            daemon.pass(900 * MS);
            b.post_recv(1, &[b.sge(0, 2000)]);
        }
    });
    assert!(seen.contains("[Rts, Rts]") && seen.ends_with(" 14000"), "{seen}");
}

/// The receive of immediate data is taken after the WRITE. The event may be solicited.
#[test]
fn immediate_data_waits_for_its_receive() {
    let seen = same(|daemon, a, b| {
        let write = Wr::new(Opcode::WriteImm, &[a.sge(0, 2000)]).to(b.buffer, b.key);
        for _ in 0..5 {
            a.post_send(&write);
        }
        for _ in 0..5 {
            daemon.pass(900 * MS);
            b.post_recv(1, &[]);
        }
    });
    assert!(seen.contains("[Rts, Rts]") && seen.ends_with(" 14000"), "{seen}");
    let seen = same(|_, a, b| {
        b.post_recv(1, &[]);
        a.post_send(&Wr::new(Opcode::WriteImm, &[a.sge(0, 500)]).to(b.buffer, b.key ^ 1));
    });
    assert!(seen.contains("RemAccessErr"), "{seen}");
}

#[test]
fn own_mistakes_reset_the_connection() {
    same(|_, a, b| {
        let mut sge = a.sge(0, 100);
        sge.lkey = 1.into();
        a.post_send(&Wr::new(Opcode::Write, &[sge]).to(b.buffer, b.key));
        a.post_send(&Wr::new(Opcode::Write, &[a.sge(0, 5)]).to(b.buffer, b.key));
    });
    // iWARP has no ATOMIC WRITEs and no FLUSHes.
    let seen = same(|_, a, b| {
        a.post_send(&Wr::new(Opcode::AtomicWrite, &[a.sge(0, 8)]).to(b.buffer, b.key));
    });
    assert!(seen.contains("LocQpOpErr"), "{seen}");
    let seen = same(|_, a, b| {
        a.post_send(&Wr::new(Opcode::Flush, &[]).atomic(1, 8).to(b.buffer, b.key));
    });
    assert!(seen.contains("LocQpOpErr"), "{seen}");
    // In iWARP, immediate data cannot be a part of a SEND.
    let seen = same(|_, a, b| {
        b.post_recv(1, &[b.sge(0, 100)]);
        a.post_send(&Wr::new(Opcode::SendImm, &[a.sge(0, 10)]));
    });
    assert!(seen.contains("LocQpOpErr"), "{seen}");
}

#[test]
fn closing_lets_posted_messages_arrive() {
    let seen = same(|_, a, b| {
        a.post_recv(1, &[]);
        b.post_recv(1, &[]);
        let write = Wr::new(Opcode::Write, &[a.sge(0, 2000)]).to(b.buffer, b.key);
        (0..12).for_each(|_| a.post_send(&write));
        a.set_state(State::Sqd);
    });
    assert!(seen.contains("Graceful") && !seen.contains("Abortive"), "{seen}");
    assert!(seen.ends_with(" 14000"), "{seen}");
    let seen = same(|daemon, a, b| {
        let write = Wr::new(Opcode::Write, &[a.sge(0, 2000)]).to(b.buffer, b.key);
        a.post_send(&write);
        daemon.pass(MS);
        a.set_state(State::Sqd);
        b.set_state(State::Sqd);
    });
    assert!(seen.contains("Graceful") && !seen.contains("Abortive"), "{seen}");
}

#[test]
fn a_peer_that_closes_flushes_what_waits() {
    // A SEND waits for a receive while the peer closes the connection.
    let seen = copied(|daemon, a, b| {
        a.post_send(&Wr::new(Opcode::Send, &[a.sge(0, 100)]));
        daemon.pass(10 * MS);
        b.set_state(State::Sqd);
    });
    let ends = "[Err, Err] [(true, Abortive), (true, Graceful)]";
    assert_eq!(seen, format!("{ends} [[WrFlushErr], []] [[], []] [[], []] 0"));
}

#[test]
fn a_qp_that_is_ended_resets_the_peer() {
    same(|_, a, b| {
        a.post_recv(1, &[]);
        b.post_recv(1, &[]);
        a.set_state(State::Err);
    });
    for end in 0..3 {
        let [packets, copied] = [true, false].map(|packets| {
            let daemon = Daemon::new(packets);
            let (mut a, mut b) = daemon.connected();
            b.post_send(&Wr::new(Opcode::Send, &[b.sge(0, 100)]));
            daemon.pass(MS);
            match end {
                0 => a.set_state(State::Reset),
                1 => drop(a.guest.on_object(Admin::DestroyQp, a.qpn).expect("DESTROY_QP")),
                _ => a.guest.adapter.reset(),
            }
            daemon.pass(2000 * MS);
            let sent = b.send_cq.poll().as_ref().map(status);
            ((stage(&b), ending(&b), b.state()), sent)
        });
        assert_eq!(packets.0, copied.0);
        assert_eq!(copied, ((Stage::Gone, Ending::Reset, State::Err), Some(Status::WrFlushErr)));
    }
}
