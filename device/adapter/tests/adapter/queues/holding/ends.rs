//! QPs and CQs that end while entries are held back, and bad indices.
//!
//! Shows: completions

use std::sync::atomic::Ordering;

use vrnic_abi::admin::{CqRecord, Status as Refusal};
use vrnic_abi::admin::{Inspect, Inspected, Opcode as Admin, command};
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;
use vrnic_abi::sq::Opcode;
use vrnic_abi::uar::CqState;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;
use zerocopy::FromBytes;

use super::{ENTRIES, MESSAGES, exchange, small, told};
use crate::bus::Endpoint;
use crate::path::{Ends, MS, Path};

/// Returns the number of entries that an endpoint's CQ holds back.
fn held(end: &Endpoint, cqn: u32) -> u32 {
    let addr = end.guest.ram().alloc(4096);
    let params = Inspect::new(Inspected::Cq, cqn, addr, 4096);
    end.guest.command::<command::Inspect>(&params).expect("INSPECT");
    let bytes = end.guest.ram().read(addr, size_of::<CqRecord>());
    CqRecord::read_from_bytes(&bytes).expect("a record").held.get()
}

/// Checks that B's CQ has its first entries only and has room again, and [`expect_lost`].
fn expect_end(ends: &mut Ends) {
    ends.pass(10_000 * MS);
    for id in 0..ENTRIES {
        assert_eq!(ends.received().wr_id.get(), id, "{:?}", ends.path);
    }
    ends.pass(50 * MS);
    assert!(ends.b.recv_cq.poll().is_none(), "{:?}: an entry of a QP that has ended", ends.path);
    assert_eq!(ends.b.recv_cq.state(), Some(CqState::Room), "{:?}", ends.path);
    expect_lost(ends);
}

/// Checks that all of A's sends have ended, and that A knows of the end of its peer. Short messages
/// in a TCP connection are complete when they have been sent.
fn expect_lost(ends: &mut Ends) {
    let statuses: Vec<_> = (0..MESSAGES).map(|_| status(&ends.sent())).collect();
    assert_eq!(statuses.first(), Some(&Status::Success), "{:?}", ends.path);
    if !matches!(ends.path, Path::Stream | Path::StreamCable) {
        assert_ne!(statuses.last(), Some(&Status::Success), "{:?}", ends.path);
    }
    assert_eq!(ends.a.state(), State::Err, "{:?}", ends.path);
}

/// A QP that is destroyed while its entries are held back leaves none of them, and frees its CQs.
#[test]
fn a_destroyed_qp_leaves_no_entries() {
    for path in Path::ALL {
        let mut ends = Ends::new(path, Setup::default(), small());
        exchange(&mut ends);
        let cqn = ends.b.recv_cq.cqn;
        assert!(held(&ends.b, cqn) > 0, "{path:?}");
        assert_eq!(ends.b.guest.on_object(Admin::DestroyCq, cqn), Err(Refused(Refusal::Busy, 0)));
        ends.b.guest.on_object(Admin::DestroyQp, ends.b.qpn).expect("DESTROY_QP");
        assert_eq!(held(&ends.b, cqn), 0, "{path:?}");
        expect_end(&mut ends);
        ends.b.guest.on_object(Admin::DestroyCq, cqn).expect("DESTROY_CQ");
    }
}

/// The same for a QP that is reset.
#[test]
fn a_qp_that_is_reset_leaves_no_entries() {
    for path in Path::ALL {
        let mut ends = Ends::new(path, Setup::default(), small());
        exchange(&mut ends);
        ends.b.set_state(State::Reset);
        assert_eq!(held(&ends.b, ends.b.recv_cq.cqn), 0, "{path:?}");
        expect_end(&mut ends);
    }
}

/// A reset of the adapter ends all waits.
#[test]
fn a_reset_of_the_adapter_ends_the_wait() {
    for path in Path::ALL {
        let mut ends = Ends::new(path, Setup::default(), small());
        exchange(&mut ends);
        ends.b.guest.adapter.reset();
        ends.pass(10_000 * MS);
        expect_lost(&mut ends);
        assert!(!ends.b.guest.adapter.poll(0).busy);
    }
}

/// The flush of a QP in the error state waits for room, too, and is in order.
#[test]
fn a_flush_waits_for_room() {
    for path in Path::ALL {
        let mut ends = Ends::new(path, Setup::default(), small());
        exchange(&mut ends);
        ends.b.set_state(State::Err);
        ends.pass(1000 * MS);
        for id in 0..MESSAGES {
            let got = ends.received();
            assert_eq!(got.wr_id.get(), id, "{path:?}");
            let whole = id <= ENTRIES;
            assert!(!whole || status(&got) == Status::Success, "{path:?}: message {id}");
            if id + 1 == MESSAGES {
                assert_eq!(status(&got), Status::WrFlushErr, "{path:?}");
            }
        }
        ends.pass(200 * MS);
        assert!(ends.b.recv_cq.poll().is_none());
        assert_eq!(told(&ends.b), [(Kind::CqFull, ends.b.recv_cq.cqn)], "{path:?}");
    }
}

/// A consumer index that is invalid makes a holding CQ fail, as any other, with all that waits.
#[test]
fn a_bad_consumer_index_is_fatal() {
    for path in Path::ALL {
        for index in [ENTRIES as u32 + 1, 1 << 31, u32::MAX] {
            let mut ends = Ends::new(path, Setup::default(), small());
            exchange(&mut ends);
            let cq = &ends.b.recv_cq;
            ends.b.guest.slot32(cq.uar, cq.slot, 0).store(index, Ordering::Release);
            ends.b.guest.ring(cq.uar, cq.slot);
            let cqn = cq.cqn;
            ends.pass(MS);
            let expected = [(Kind::CqFull, cqn), (Kind::CqError, cqn), (Kind::QpFatal, ends.b.qpn)];
            assert_eq!(told(&ends.b), expected, "{path:?}");
            assert_eq!(ends.b.recv_cq.state(), Some(CqState::Failed));
            assert_eq!((held(&ends.b, cqn), ends.b.state()), (0, State::Err), "{path:?}");
            ends.pass(10_000 * MS);
            assert_eq!(ends.a.state(), State::Err, "{path:?}");
        }
    }
}

/// A program that takes nothing and posts more and more makes the adapter keep no more than the
/// entries of work requests that were outstanding when the CQ was full.
#[test]
fn what_is_held_back_is_bounded() {
    const SENDS: u64 = 1000;
    for path in Path::ALL {
        let setup = Setup { log_wqes: 10, log_cqes: 1, ..small() };
        let mut ends = Ends::new(path, setup, Setup { log_wqes: 10, ..Setup::default() });
        for id in 0..SENDS {
            let to = Wr::new(Opcode::Write, &[ends.a.sge(0, 8)]).to(ends.b.buffer, ends.b.key);
            ends.a.post_send(&to.id(id));
            ends.pass(0);
        }
        ends.pass(1000 * MS);
        let held = held(&ends.a, ends.a.send_cq.cqn);
        assert!((1..=128).contains(&held), "{path:?}: {held} entries are held back");
        for id in 0..SENDS {
            assert_eq!(ends.sent().wr_id.get(), id, "{path:?}");
        }
    }
}
