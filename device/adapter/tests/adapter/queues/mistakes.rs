//! A table of mistakes in the attributes of two QPs, and of other mistakes that one end makes and
//! the other end notices. A row has the same outcome if messages are copied in memory, travel as
//! packets in a daemon, or travel between daemons. If packets lead to another outcome, the row says
//! so.
//!
//! Shows: queues
//!
//! | module | what it holds |
//! | --- | --- |
//! | `table` | mistakes, and their outcomes |
//! | `rows` | the rows |

mod rows;
mod table;

use vrnic_abi::cq::Status;
use vrnic_abi::qp::State;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;

use self::rows::TABLE;
use self::table::{Mistake, Outcome};
use crate::path::{Ends, Path};

/// Connects two QPs with the attributes of a row.
fn connected(path: Path, mistake: &Mistake) -> Ends {
    let setup = Setup { kind: mistake.kind, ..Setup::default() };
    let ends = Ends::apart(path, setup, setup);
    ends.make_fast();
    ends.b.connect(ends.a.guest.mac(), ends.a.qpn, |attr| (mistake.peer)(attr));
    ends.a.connect(ends.b.guest.mac(), ends.b.qpn, |attr| (mistake.own)(attr));
    ends
}

/// Returns the outcome of a row at both ends.
fn outcome(mistake: &Mistake, path: Path) -> Outcome {
    let mut ends = connected(path, mistake);
    ends.b.post_recv(1, &[ends.b.sge(0, 100_000)]);
    (mistake.later)(&mut ends);
    let posted = (mistake.requests)(&ends);
    let sent = ends.run(&posted, mistake.one_by_one);
    assert_eq!(sent.len(), posted.len(), "{}, {path:?}: completions {sent:?}", mistake.what);
    let received: Vec<Status> =
        std::iter::from_fn(|| ends.b.recv_cq.poll()).map(|cqe| status(&cqe)).collect();
    let events = ends.b.guest.drain_events().into_iter().filter(|(_, id)| *id == ends.b.qpn);
    let event = events.map(|(kind, _)| kind).next();
    Outcome { sent, own: ends.a.state(), received, peer: ends.b.state(), event }
}

#[test]
fn each_mistake_has_the_same_outcome_by_every_path() {
    let mut wrong = Vec::new();
    for mistake in TABLE {
        for path in Path::ROCE {
            let expected = mistake.expected(path);
            let seen = outcome(mistake, path);
            if seen != expected {
                wrong.push(format!("{}, {path:?}:\n  {seen:?}\n  {expected:?}", mistake.what));
            }
        }
    }
    assert!(wrong.is_empty(), "seen, and expected:\n{}", wrong.join("\n"));
}

/// The packets of the answer do not have the expected length, so no byte of it is placed.
#[test]
fn a_read_of_the_wrong_size_places_nothing() {
    let mistake = TABLE.iter().find(|row| row.what.contains("READ of 64 KiB")).expect("a row");
    for path in Path::ROCE {
        let mut ends = connected(path, mistake);
        ends.a.fill(0, &[0x77; 4096]);
        ends.b.fill(0, &[0x11; 4096]);
        let posted = (mistake.requests)(&ends);
        assert_eq!(ends.run(&posted, false), [Status::LocLenErr]);
        assert_eq!(ends.a.bytes(0, 4096), [0x77; 4096], "{path:?}");
        assert_eq!(ends.a.state(), State::Err);
    }
}
