//! Direct transfers whose end a controller reports by a mark: AWAIT, and the mark words of a QP's
//! doorbell.
//!
//! Shows: direct

use vrnic_abi::admin::QpFlags;
use vrnic_abi::cq::{self, Status};
use vrnic_abi::direct::{Await, MARK_FAILED, MARKS, TIME_LIMIT_MAX_MS};
use vrnic_abi::qp::{Attr, AttrMask, State, Type};
use vrnic_abi::sq::Opcode;
use vrnic_adapter::memory::tpt::Denied;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::direct::{MS, PACKETS, completions, packet, pattern, refusal};
use crate::world::Pair;

/// Returns an AWAIT of this mark, with a time limit of 100 ms and the identifier 200 + `word`.
pub(crate) fn until_marked(word: u32, mark: u32) -> Wr {
    within(100, word, mark)
}

/// Like [`until_marked`], with this time limit in milliseconds.
pub(crate) fn within(time_limit_ms: u32, word: u32, mark: u32) -> Wr {
    let (raddr, rkey) = Await { word, mark, time_limit_ms }.fields();
    Wr::new(Opcode::Await, &[]).to(raddr, rkey).id(200 + u64::from(word))
}

fn write(p: &Pair, len: u32) -> Wr {
    Wr::new(Opcode::Write, &[packet(&p.a, 0, len)]).to(p.b.buffer, p.b.key)
}

/// The controller stores its data and the mark of the transfer, several times, while the driver
/// does nothing. Uses all mark words, with a send queue in guest memory or in the device.
#[test]
fn what_is_stored_leaves_when_it_is_marked() {
    for in_device in [false, true] {
        let mut p = Pair::with(Setup { in_device, ..Setup::default() }, |_| {});
        for word in 0..MARKS {
            for mark in [1, 2, MARK_FAILED - 1] {
                let data = pattern(4000, mark % 100);
                p.run(&until_marked(word, mark));
                p.run(&write(&p, 4000));
                p.a.fill(PACKETS, &data);
                // A mark in another word, or another mark, does not complete the AWAIT.
                p.a.mark((word + 1) % MARKS, mark);
                p.a.mark(word, ((mark + 1) & !MARK_FAILED) | (1 << 20));
                p.a.ring();
                p.settle();
                assert_eq!(completions(&mut p), []);
                p.a.mark(word, mark);
                p.a.ring();
                p.settle();
                let ended = (200 + u64::from(word), Status::Success);
                assert_eq!(completions(&mut p), [ended, (1, Status::Success)]);
                assert!(p.b.bytes(0, 4000) == data);
            }
        }
        assert_eq!(p.ga.stats().transfer_wqes.get(), u64::from(3 * MARKS));
    }
}

/// A mark may be stored before its AWAIT, which then completes at once: the data of a WRITE may be
/// stored at any time. An AWAIT after a READ begins when the READ has ended.
#[test]
fn a_mark_may_come_first() {
    let mut p = Pair::new();
    let data = pattern(64, 1);
    p.a.fill(PACKETS, &data);
    p.a.mark(3, 7);
    p.run(&until_marked(3, 7));
    p.run(&write(&p, 64));
    assert_eq!(completions(&mut p), [(203, Status::Success), (1, Status::Success)]);
    assert!(p.b.bytes(0, 64) == data);
    p.b.fill(0, &pattern(64, 2));
    p.a.store_send(&Wr::new(Opcode::Read, &[packet(&p.a, 0, 64)]).to(p.b.buffer, p.b.key));
    p.run(&until_marked(3, 8));
    assert_eq!(completions(&mut p), [(1, Status::Success)]);
    assert_eq!(p.a.bytes(PACKETS, 64), pattern(64, 2));
    p.a.mark(3, 8);
    p.a.ring();
    p.settle();
    let cqe = p.sent().expect("a completion");
    assert_eq!((cqe.opcode, status(&cqe)), (cq::Opcode::Transfer as u8, Status::Success));
}

/// The controller may store the mark without ringing the doorbell. The heartbeat finds the mark.
#[test]
fn a_mark_needs_no_ring() {
    let mut p = Pair::new();
    p.run(&until_marked(0, 5));
    p.a.mark(0, 5);
    p.world.advance(50 * MS);
    p.ga.adapter.beat();
    p.settle();
    assert_eq!(completions(&mut p), [(200, Status::Success)]);
    // A worker that has just handled the QP's doorbell finds the mark without the heartbeat.
    p.a.store_send(&until_marked(0, 6));
    p.run(&write(&p, 8));
    assert_eq!(completions(&mut p), []);
    p.a.mark(0, 6);
    p.settle();
    assert_eq!(completions(&mut p), [(200, Status::Success), (1, Status::Success)]);
}

/// A controller that never stores its mark, a controller that reports a failure, and
/// parameters out of bounds.
#[test]
fn a_transfer_that_is_not_marked_fails() {
    let limit = Await { word: 1, mark: 9, time_limit_ms: 100 };
    let bad = [
        Await { word: MARKS, ..limit },
        Await { word: u32::MAX, ..limit },
        Await { mark: 0, ..limit },
        Await { mark: MARK_FAILED | 9, ..limit },
        Await { time_limit_ms: 0, ..limit },
        Await { time_limit_ms: TIME_LIMIT_MAX_MS + 1, ..limit },
    ];
    let cases = [(limit, Denied::Short), (limit, Denied::Ended)];
    for (wanted, why) in cases.into_iter().chain(bad.map(|wanted| (wanted, Denied::Bounds))) {
        let mut p = Pair::new();
        let (raddr, rkey) = wanted.fields();
        p.a.fill(PACKETS, &[1; 64]);
        p.run(&Wr::new(Opcode::Await, &[]).to(raddr, rkey));
        p.run(&write(&p, 64));
        if why != Denied::Bounds {
            p.world.advance(99 * MS);
            p.ga.adapter.beat();
            p.settle();
            assert_eq!(completions(&mut p), []);
        }
        match why {
            Denied::Short => p.world.advance(MS),
            Denied::Ended => p.a.mark(1, 9 | MARK_FAILED),
            _ => {}
        }
        p.ga.adapter.beat();
        p.settle();
        assert_eq!(refusal(&mut p), (Status::MwBindErr, why as u32), "{wanted:?}");
        assert_eq!(completions(&mut p), [(1, Status::WrFlushErr)]);
        assert_eq!((p.a.state(), p.b.bytes(0, 64)), (State::Err, vec![0; 64]));
        // No AWAIT is left.
        p.a.mark(1, 9);
        p.a.ring();
        p.ga.adapter.beat();
        p.settle();
        assert_eq!(completions(&mut p), []);
    }
}

/// A QP fails, or is reset, while its AWAIT waits. A reset sets its mark words to zero.
#[test]
fn a_reset_ends_what_waits() {
    for reset in [false, true] {
        let mut p = Pair::new();
        p.run(&until_marked(2, 5));
        if reset {
            p.a.set_state(State::Reset);
            p.a.connect(p.gb.mac(), p.b.qpn, |_| {});
        } else {
            p.a.set_state(State::Err);
            p.settle();
            assert_eq!(completions(&mut p), [(202, Status::WrFlushErr)]);
            p.a.set_state(State::Reset);
            p.a.connect(p.gb.mac(), p.b.qpn, |_| {});
        }
        p.world.advance(200 * MS);
        p.ga.adapter.beat();
        p.settle();
        assert_eq!(completions(&mut p), []);
        p.run(&until_marked(2, 5));
        p.world.advance(99 * MS);
        p.ga.adapter.beat();
        p.settle();
        assert_eq!(completions(&mut p), [], "the time limit of the earlier AWAIT");
        p.a.mark(2, 5);
        p.a.ring();
        p.settle();
        assert_eq!(completions(&mut p), [(202, Status::Success)]);
        // A mark that was stored before the reset.
        p.a.set_state(State::Reset);
        p.a.connect(p.gb.mac(), p.b.qpn, |_| {});
        p.run(&until_marked(2, 5));
        assert_eq!(completions(&mut p), []);
    }
}

/// A mark completes only the AWAIT of its own QP, even if another QP has the same doorbell page.
#[test]
fn marks_belong_to_their_queue_pair() {
    let mut p = Pair::new();
    let beside = p.a.beside(|_| {});
    let other = p.a.apart(Setup::default());
    p.run(&until_marked(0, 5));
    for foreign in [&beside, &other, &p.b] {
        foreign.mark(0, 5);
        foreign.ring();
        p.ga.adapter.beat();
        p.settle();
        assert_eq!(p.a.send_cq.poll().map(|cqe| cqe.wr_id.get()), None);
    }
    p.a.mark(0, 5);
    p.a.ring();
    p.settle();
    assert_eq!(completions(&mut p), [(200, Status::Success)]);
}

/// With reactive failure the send queue can be used again, and a later AWAIT has its own time
/// limit.
#[test]
fn a_send_queue_goes_on_behind_a_mark_that_did_not_come() {
    let setup = Setup { flags: QpFlags::REACTIVE, ..Setup::default() };
    let mut p = Pair::with(setup, |_| {});
    p.run(&until_marked(0, 1));
    p.run(&until_marked(1, 1));
    p.a.mark(0, 1 | MARK_FAILED);
    p.a.ring();
    p.settle();
    assert_eq!(refusal(&mut p), (Status::MwBindErr, Denied::Ended as u32));
    assert_eq!(completions(&mut p), [(201, Status::WrFlushErr)]);
    assert_eq!((p.a.state(), p.b.state()), (State::Sqe, State::Rts));
    p.world.advance(150 * MS);
    let attr = Attr { state: State::Rts as u8, ..Attr::default() };
    p.ga.modify_qp(p.a.qpn, AttrMask::STATE, &attr).expect("MODIFY_QP");
    p.run(&until_marked(0, 2));
    assert_eq!(completions(&mut p), []);
    p.a.mark(0, 2);
    p.a.ring();
    p.settle();
    assert_eq!(completions(&mut p), [(200, Status::Success)]);
}

#[test]
fn unreliable_connections_have_marks() {
    let mut p = Pair::with(Setup { kind: Type::Uc, ..Setup::default() }, |_| {});
    p.a.mark(0, 1);
    p.run(&until_marked(0, 1));
    assert_eq!(completions(&mut p), [(200, Status::Success)]);
}
