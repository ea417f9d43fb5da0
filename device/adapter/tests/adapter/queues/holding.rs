//! Holding CQs: when one is full, its entries are held back, the QPs that need one wait, and
//! nothing is lost. Each test runs with copies, with packets, and over iWARP.
//!
//! Shows: completions
//!
//! | module | what it holds |
//! | --- | --- |
//! | `rig` | two connected QPs, by each path of messages |
//! | `ends` | QPs and CQs that end while entries are held back, and bad indices |
//! | `events` | the events of full CQs, and of CQs with few free entries |
//! | `others` | QPs next to one that waits, and other types of QPs |

mod ends;
mod events;
mod others;
mod rig;

use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;
use vrnic_abi::sq::Opcode;
use vrnic_abi::uar::CqState;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use self::rig::{MS, Path, Rig};
use crate::bus::Endpoint;

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
fn exchange(rig: &mut Rig) {
    for id in 0..MESSAGES {
        let (a, b) = (&mut rig.a, &mut rig.b);
        a.fill(id * 256, &bytes(id));
        b.post_recv(id, &[b.sge(id * 256, 256)]);
        a.post_send(&Wr::new(Opcode::Send, &[a.sge(id * 256, bytes(id).len() as u32)]).id(id));
    }
    rig.pass(50 * MS);
}

/// Polls all of B's receives, one at a time, and checks that none is lost or out of order.
fn take_receives(rig: &mut Rig) {
    for id in 0..MESSAGES {
        let got = rig.received();
        assert_eq!((got.wr_id.get(), status(&got)), (id, Status::Success), "{:?}", rig.path);
        assert_eq!(rig.b.bytes(id * 256, bytes(id).len()), bytes(id));
    }
    assert!(rig.b.recv_cq.poll().is_none());
}

/// Polls all of A's sends.
fn take_sends(rig: &mut Rig) {
    for id in 0..MESSAGES {
        let got = rig.sent();
        assert_eq!((got.wr_id.get(), status(&got)), (id, Status::Success), "{:?}", rig.path);
    }
    assert!(rig.a.send_cq.poll().is_none());
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
        let mut rig = Rig::new(path, Setup::default(), small());
        exchange(&mut rig);
        assert_eq!(told(&rig.b), [(Kind::CqFull, rig.b.recv_cq.cqn)], "{path:?}");
        assert_eq!(rig.b.recv_cq.state(), Some(CqState::Full));
        rig.pass(3000 * MS);
        assert_eq!((rig.a.state(), rig.b.state()), (State::Rts, State::Rts), "{path:?}");
        take_receives(&mut rig);
        assert_eq!(rig.b.recv_cq.state(), Some(CqState::Room));
        take_sends(&mut rig);
        assert_eq!((told(&rig.a), told(&rig.b)), (vec![], vec![]), "{path:?}");
    }
}

/// Sends wait while their CQ is full. What is left in the queue is not executed.
#[test]
fn sends_wait_for_room() {
    for path in Path::ALL {
        let mut rig = Rig::new(path, small(), Setup::default());
        exchange(&mut rig);
        assert_eq!(told(&rig.a), [(Kind::CqFull, rig.a.send_cq.cqn)], "{path:?}");
        let copies = matches!(path, Path::Copies | Path::StreamCopies);
        if copies {
            for id in 0..=ENTRIES {
                assert_eq!(rig.b.recv_cq.poll().map(|got| got.wr_id.get()), Some(id));
            }
            assert!(rig.b.recv_cq.poll().is_none(), "{path:?}: a send did not wait");
        }
        rig.pass(5000 * MS);
        take_sends(&mut rig);
        rig.pass(50 * MS);
        let rest = if copies { ENTRIES + 1..MESSAGES } else { 0..MESSAGES };
        for id in rest {
            assert_eq!(rig.b.recv_cq.poll().map(|got| got.wr_id.get()), Some(id), "{path:?}");
        }
        assert_eq!((told(&rig.a), told(&rig.b)), (vec![], vec![]), "{path:?}");
    }
}

/// A larger ring lets the entries go on, without a poll.
#[test]
fn a_larger_ring_lets_entries_go_on() {
    for path in Path::ALL {
        let mut rig = Rig::new(path, Setup::default(), small());
        exchange(&mut rig);
        let ring = rig.b.guest.ram().alloc(64 << 3);
        assert_eq!(rig.b.recv_cq.resize(ring, 3), Ok(()));
        rig.pass(1000 * MS);
        assert_eq!(rig.b.recv_cq.state(), Some(CqState::Full), "{path:?}: still too small");
        let ring = rig.b.guest.ram().alloc(64 << 4);
        assert_eq!(rig.b.recv_cq.resize(ring, 4), Ok(()));
        rig.pass(1000 * MS);
        assert_eq!(rig.b.recv_cq.state(), Some(CqState::Room), "{path:?}");
        take_sends(&mut rig);
        take_receives(&mut rig);
    }
}

/// A QP that waits takes no time of its worker: the adapter with the full CQ has neither work nor a
/// timer, and with copies neither has the sender's.
#[test]
fn waiting_takes_no_time_of_a_worker() {
    for path in Path::ALL {
        let mut rig = Rig::new(path, Setup::default(), small());
        exchange(&mut rig);
        rig.pass(5000 * MS);
        let polled = rig.b.guest.adapter.poll(0);
        assert_eq!((polled.busy, polled.deadline), (false, None), "{path:?}");
        if matches!(path, Path::Copies | Path::StreamCopies) {
            let polled = rig.a.guest.adapter.poll(0);
            assert_eq!((polled.busy, polled.deadline), (false, None), "{path:?}");
        }
        take_receives(&mut rig);
    }
}
