//! QPs next to one that waits, and other types of QPs.
//!
//! Shows: completions: what goes on next to a queue pair that waits for room in a full CQ, and what
//! its peer sees

use vrnic_abi::admin::NO_QUEUE;
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{State, Type};
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use super::{exchange, small, take_receives, take_sends, told};
use crate::bus::{CompletionQueue, Endpoint, SharedQueue};
use crate::messages::datagrams::datagram;
use crate::path::{Ends, MS, Path};
use crate::world::{Pair, World};

/// Over packets a message without an entry is answered as one without a receive, so a sender with
/// few retries gives up. A copy and iWARP have no such limit.
#[test]
fn a_sender_with_few_retries_gives_up_over_packets_alone() {
    for path in [Path::Copies, Path::Packets, Path::Cable] {
        let mut ends = Ends::limited(path, Setup::default(), small());
        exchange(&mut ends);
        ends.pass(3000 * MS);
        if path == Path::Copies {
            take_receives(&mut ends);
            take_sends(&mut ends);
            continue;
        }
        let statuses: Vec<_> = (0..12).map(|_| status(&ends.sent())).collect();
        assert!(statuses.contains(&Status::RnrRetryExcErr), "{path:?}: {statuses:?}");
        assert_eq!((ends.a.state(), ends.b.state()), (State::Err, State::Rts));
    }
}

/// Other QPs and CQs of both adapters go on while one QP waits, and so do requests of the same
/// connection that need no entry of the full CQ.
#[test]
fn others_go_on() {
    for path in [Path::Copies, Path::Packets, Path::Cable] {
        let mut ends = Ends::new(path, Setup::default(), small());
        let others = (ends.a.apart(Setup::default()), ends.b.apart(Setup::default()));
        ends.connect(&others.0, &others.1);
        exchange(&mut ends);
        let (mut from, mut to) = others;
        for id in 0..100 {
            to.post_recv(id, &[]);
            from.post_send(&Wr::new(Opcode::Send, &[]).id(id));
            ends.pass(MS);
            assert_eq!(to.recv_cq.poll().map(|got| got.wr_id.get()), Some(id), "{path:?}");
            assert_eq!(from.send_cq.poll().map(|got| status(&got)), Some(Status::Success));
        }
        // B's own requests complete on its other CQ.
        let read = Wr::new(Opcode::Read, &[ends.b.sge(0, 8)]).to(ends.a.buffer, ends.a.key);
        ends.b.post_send(&read);
        ends.pass(50 * MS);
        assert_eq!(
            ends.b.send_cq.poll().map(|got| status(&got)),
            Some(Status::Success),
            "{path:?}"
        );
        take_receives(&mut ends);
    }
}

/// QPs that share a full CQ get its room in turn. Over packets the timers of their peers decide.
#[test]
fn qps_that_share_a_full_queue_take_turns() {
    const QPS: u64 = 3;
    const EACH: u64 = 10;
    let ends = Ends::new(Path::Copies, Setup::default(), Setup::default());
    let mut first = Endpoint::new(&ends.b.guest, Setup { log_cqes: 1, ..small() });
    let mut qps = Vec::new();
    for _ in 0..QPS {
        let from = ends.a.apart(Setup::default());
        let mut to = first.beside(|params| params.recv_cqn = first.recv_cq.cqn.into());
        ends.connect(&from, &to);
        (0..EACH).for_each(|id| to.post_recv(id, &[]));
        qps.push((from, to, 0));
    }
    for (from, ..) in &mut qps {
        (0..EACH).for_each(|id| from.post_send(&Wr::new(Opcode::Send, &[]).id(id)));
    }
    let mut halfway = Vec::new();
    for nth in 0..QPS * EACH {
        let got = loop {
            if let Some(got) = first.recv_cq.poll() {
                break got;
            }
            ends.pass(MS);
        };
        let (.., count) =
            qps.iter_mut().find(|(_, to, _)| to.qpn == got.qpn.get()).expect("one of the QPs");
        assert_eq!(got.wr_id.get(), *count, "the order of a QP");
        *count += 1;
        if nth == QPS * EACH / 2 {
            halfway = qps.iter().map(|(.., count)| *count).collect();
        }
    }
    assert!(halfway.iter().all(|count| *count >= 2), "{halfway:?}");
}

/// A QP whose CQ is full leaves the receives of its SRQ to others.
#[test]
fn receives_of_an_srq_are_left_to_other_qps() {
    let world = World::copying();
    let (ga, gb) = (world.guest(1), world.guest(2));
    let base = Endpoint::new(&gb, Setup::default());
    let mut srq = SharedQueue::new(&base);
    let full = CompletionQueue::create_with(&gb, base.uar, base.eqn, 0, |cq| cq.holding(0));
    let mut full = full.expect("CQ");
    let mut pairs = [Some(full.cqn), None].map(|cqn| {
        let to = base.beside(|params| {
            params.srqn = srq.srqn.into();
            params.rq_table = 0.into();
            (params.rq_page_shift, params.rq_log_size, params.rq_log_stride) = (0, NO_QUEUE, 0);
            params.recv_cqn = cqn.map_or(params.recv_cqn, Into::into);
        });
        let from = Endpoint::new(&ga, Setup::default());
        Endpoint::connect_pair(&from, &to);
        (from, to)
    });
    (0..6).for_each(|id| srq.post(id, &[]));
    for _ in 0..3 {
        pairs[0].0.post_send(&Wr::new(Opcode::Send, &[]));
        world.settle(&[&ga, &gb]);
    }
    // The first two messages have receives, and the third one waits.
    for id in 2..5 {
        pairs[1].0.post_send(&Wr::new(Opcode::Send, &[]));
        world.settle(&[&ga, &gb]);
        assert_eq!(pairs[1].1.recv_cq.poll().map(|got| got.wr_id.get()), Some(id));
    }
    for id in [0, 1, 5] {
        assert_eq!(full.poll().map(|got| got.wr_id.get()), Some(id));
        world.settle(&[&ga, &gb]);
    }
}

/// A datagram for which there is no entry is lost like one without a receive, which stays posted.
#[test]
fn datagrams_without_an_entry_are_lost() {
    let setup = Setup { kind: Type::Ud, ..small() };
    let mut p = Pair::datagrams(World::copying(), setup);
    for _ in 0..8 {
        p.expect(0);
    }
    let send = |p: &mut Pair| {
        let to = p.there();
        let status = p.send(&datagram(&[], to));
        p.settle();
        status
    };
    for nth in 0..8u32 {
        assert_eq!(send(&mut p), Status::Success, "{nth}");
    }
    assert_eq!(told(&p.b), [(Kind::CqFull, p.b.recv_cq.cqn)]);
    let lost = p.gb.stats().out_of_buffer.get();
    assert_eq!(lost, 3, "four entries, and one that is held back");
    for _ in 0..5 {
        assert!(p.received().is_some());
        p.settle();
    }
    assert!(p.received().is_none());
    assert_eq!(send(&mut p), Status::Success);
    assert!(p.received().is_some(), "the receive is still posted");
}
