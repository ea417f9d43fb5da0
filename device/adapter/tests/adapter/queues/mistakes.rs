//! A table of mistakes in the attributes of two QPs, and of other mistakes that one end makes and
//! the other end notices. A row has the same outcome if messages are copied in memory, travel as
//! packets in a daemon, or travel between daemons. If packets lead to another outcome, the row says
//! so.
//!
//! Shows: queues
//!
//! | module | what it holds |
//! | --- | --- |
//! | `rig` | two guests whose QPs reach each other by one of three paths |
//! | `table` | mistakes, and their outcomes |
//! | `rows` | the rows |

mod rig;
mod rows;
mod table;

use vrnic_abi::cq::Status;
use vrnic_abi::qp::State;
use vrnic_testdriver::cq::status;

use self::rig::{Rig, Way};
use self::rows::TABLE;
use self::table::{Mistake, Outcome};

/// Connects two QPs with the attributes of a row.
fn connected(way: Way, mistake: &Mistake) -> Rig {
    let rig = Rig::new(way, mistake.kind);
    rig.b.connect(rig.ga.mac(), rig.a.qpn, |attr| (mistake.peer)(attr));
    rig.a.connect(rig.gb.mac(), rig.b.qpn, |attr| (mistake.own)(attr));
    rig
}

/// Returns the outcome of a row at both ends.
fn outcome(mistake: &Mistake, way: Way) -> Outcome {
    let mut rig = connected(way, mistake);
    rig.b.post_recv(1, &[rig.b.sge(0, 100_000)]);
    (mistake.later)(&mut rig);
    let posted = (mistake.requests)(&rig);
    let sent = rig.run(&posted, mistake.one_by_one);
    assert_eq!(sent.len(), posted.len(), "{}, {way:?}: completions {sent:?}", mistake.what);
    let received: Vec<Status> =
        std::iter::from_fn(|| rig.b.recv_cq.poll()).map(|cqe| status(&cqe)).collect();
    let events = rig.gb.drain_events().into_iter().filter(|(_, id)| *id == rig.b.qpn);
    let event = events.map(|(kind, _)| kind).next();
    Outcome { sent, own: rig.a.state(), received, peer: rig.b.state(), event }
}

#[test]
fn each_mistake_has_the_same_outcome_by_every_path() {
    let mut wrong = Vec::new();
    for mistake in TABLE {
        for way in [Way::Copy, Way::Packets, Way::Daemons] {
            let expected = mistake.expected(way);
            let seen = outcome(mistake, way);
            if seen != expected {
                wrong.push(format!("{}, {way:?}:\n  {seen:?}\n  {expected:?}", mistake.what));
            }
        }
    }
    assert!(wrong.is_empty(), "seen, and expected:\n{}", wrong.join("\n"));
}

/// The packets of the answer do not have the expected length, so no byte of it is placed.
#[test]
fn a_read_of_the_wrong_size_places_nothing() {
    let mistake = TABLE.iter().find(|row| row.what.contains("READ of 64 KiB")).expect("a row");
    for way in [Way::Copy, Way::Packets, Way::Daemons] {
        let mut rig = connected(way, mistake);
        rig.a.fill(0, &[0x77; 4096]);
        rig.b.fill(0, &[0x11; 4096]);
        let posted = (mistake.requests)(&rig);
        assert_eq!(rig.run(&posted, false), [Status::LocLenErr]);
        assert_eq!(rig.a.bytes(0, 4096), [0x77; 4096], "{way:?}");
        assert_eq!(rig.a.state(), State::Err);
    }
}
