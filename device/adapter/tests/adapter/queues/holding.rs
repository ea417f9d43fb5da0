//! Holding CQs: when one is full, its entries are held back, the QPs that need one wait, and
//! nothing is lost. Each test runs with copies, with packets, and over iWARP.
//!
//! Shows: completions
//!
//! | module | what it holds |
//! | --- | --- |
//! | `ends` | QPs and CQs that end while entries are held back, and bad indices |
//! | `events` | the events of full CQs, and of CQs with few free entries |
//! | `others` | QPs next to one that waits, and other types of QPs |

mod ends;
mod events;
mod others;

use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;
use vrnic_abi::sq::Opcode;
use vrnic_abi::uar::CqState;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::bus::Endpoint;
use crate::path::{Ends, MS, Path};

/// Number of messages, more than the CQ of an endpoint with [`small`] has room for.
const MESSAGES: u64 = 12;
/// Number of entries of that CQ.
const ENTRIES: u64 = 4;

/// Returns the setup of an endpoint with holding CQs of [`ENTRIES`] entries.
fn small() -> Setup {
    Setup { log_cqes: 2, holding: Some(0), ..Setup::default() }
}

/// Returns the bytes of a message.
fn bytes(id: u64) -> Vec<u8> {
    (0..100 + id as usize).map(|at| (at as u8) ^ id as u8).collect()
}

/// Posts the receives and the sends of all messages, and lets them run.
fn exchange(ends: &mut Ends) {
    for id in 0..MESSAGES {
        let (a, b) = (&mut ends.a, &mut ends.b);
        a.fill(id * 256, &bytes(id));
        b.post_recv(id, &[b.sge(id * 256, 256)]);
        a.post_send(&Wr::new(Opcode::Send, &[a.sge(id * 256, bytes(id).len() as u32)]).id(id));
    }
    ends.pass(50 * MS);
}

/// Polls all of B's receives, one at a time, and checks that none is lost or out of order.
fn take_receives(ends: &mut Ends) {
    for id in 0..MESSAGES {
        let got = ends.received();
        assert_eq!((got.wr_id.get(), status(&got)), (id, Status::Success), "{:?}", ends.path);
        assert_eq!(ends.b.bytes(id * 256, bytes(id).len()), bytes(id));
    }
    assert!(ends.b.recv_cq.poll().is_none());
}

/// Polls all of A's sends.
fn take_sends(ends: &mut Ends) {
    for id in 0..MESSAGES {
        let got = ends.sent();
        assert_eq!((got.wr_id.get(), status(&got)), (id, Status::Success), "{:?}", ends.path);
    }
    assert!(ends.a.send_cq.poll().is_none());
}

/// Returns the asynchronous events of an endpoint's guest about CQs and QPs, without those of its
/// connection.
fn told(end: &Endpoint) -> Vec<(Kind, u32)> {
    let mut events = end.guest.drain_events();
    events.retain(|(kind, _)| *kind != Kind::ConnectionChanged);
    events
}

/// Messages wait while the CQ of their receives is full, for as long as it takes.
#[test]
fn receives_wait_for_room() {
    for path in Path::ALL {
        let mut ends = Ends::new(path, Setup::default(), small());
        exchange(&mut ends);
        assert_eq!(told(&ends.b), [(Kind::CqFull, ends.b.recv_cq.cqn)], "{path:?}");
        assert_eq!(ends.b.recv_cq.state(), Some(CqState::Full));
        ends.pass(3000 * MS);
        assert_eq!((ends.a.state(), ends.b.state()), (State::Rts, State::Rts), "{path:?}");
        take_receives(&mut ends);
        assert_eq!(ends.b.recv_cq.state(), Some(CqState::Room));
        take_sends(&mut ends);
        assert_eq!((told(&ends.a), told(&ends.b)), (vec![], vec![]), "{path:?}");
    }
}

/// Sends wait while their CQ is full. What is left in the queue is not executed.
#[test]
fn sends_wait_for_room() {
    for path in Path::ALL {
        let mut ends = Ends::new(path, small(), Setup::default());
        exchange(&mut ends);
        assert_eq!(told(&ends.a), [(Kind::CqFull, ends.a.send_cq.cqn)], "{path:?}");
        let copies = matches!(path, Path::Copies | Path::StreamCopies);
        if copies {
            for id in 0..=ENTRIES {
                assert_eq!(ends.b.recv_cq.poll().map(|got| got.wr_id.get()), Some(id));
            }
            assert!(ends.b.recv_cq.poll().is_none(), "{path:?}: a send did not wait");
        }
        ends.pass(5000 * MS);
        take_sends(&mut ends);
        ends.pass(50 * MS);
        let rest = if copies { ENTRIES + 1..MESSAGES } else { 0..MESSAGES };
        for id in rest {
            assert_eq!(ends.b.recv_cq.poll().map(|got| got.wr_id.get()), Some(id), "{path:?}");
        }
        assert_eq!((told(&ends.a), told(&ends.b)), (vec![], vec![]), "{path:?}");
    }
}

/// A larger ring lets the entries go on, without a poll.
#[test]
fn a_larger_ring_lets_entries_go_on() {
    for path in Path::ALL {
        let mut ends = Ends::new(path, Setup::default(), small());
        exchange(&mut ends);
        let ring = ends.b.guest.ram().alloc(64 << 3);
        assert_eq!(ends.b.recv_cq.resize(ring, 3), Ok(()));
        ends.pass(1000 * MS);
        assert_eq!(ends.b.recv_cq.state(), Some(CqState::Full), "{path:?}: still too small");
        let ring = ends.b.guest.ram().alloc(64 << 4);
        assert_eq!(ends.b.recv_cq.resize(ring, 4), Ok(()));
        ends.pass(1000 * MS);
        assert_eq!(ends.b.recv_cq.state(), Some(CqState::Room), "{path:?}");
        take_sends(&mut ends);
        take_receives(&mut ends);
    }
}

/// A QP that waits takes no time of its worker: the adapter with the full CQ has neither work nor a
/// timer, and with copies neither has the sender's.
#[test]
fn waiting_takes_no_time_of_a_worker() {
    for path in Path::ALL {
        let mut ends = Ends::new(path, Setup::default(), small());
        exchange(&mut ends);
        ends.pass(5000 * MS);
        let polled = ends.b.guest.adapter.poll(0);
        assert_eq!((polled.busy, polled.deadline), (false, None), "{path:?}");
        if matches!(path, Path::Copies | Path::StreamCopies) {
            let polled = ends.a.guest.adapter.poll(0);
            assert_eq!((polled.busy, polled.deadline), (false, None), "{path:?}");
        }
        take_receives(&mut ends);
    }
}
