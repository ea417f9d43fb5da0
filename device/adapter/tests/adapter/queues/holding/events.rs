//! The events of full CQs, and of CQs with few free entries.
//!
//! Shows: completions

use vrnic_abi::admin::{CreateCq, ModifyCq, Status as Refusal, command};
use vrnic_abi::eq::Kind;
use vrnic_abi::sq::Opcode;
use vrnic_abi::uar::{ARM_NEXT, CqState};
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use super::{ENTRIES, exchange, small, told};
use crate::bus::CompletionQueue;
use crate::path::{Ends, MS, Path};
use crate::world;

/// Asks for the events of B's receive CQ again.
fn rearm(ends: &Ends) {
    let params = ModifyCq::new(ends.b.recv_cq.cqn, 0, 0);
    ends.b.guest.command::<command::ModifyCq>(&params).expect("MODIFY_CQ");
}

/// Sends messages from A to B.
fn send(ends: &mut Ends, count: u64) {
    for _ in 0..count {
        ends.b.post_recv(0, &[]);
        ends.a.post_send(&Wr::new(Opcode::Send, &[]));
        ends.pass(MS);
        let _sent = ends.sent();
    }
}

/// The event of a full CQ comes once until the guest asks again, and then at once if the CQ is
/// still full.
#[test]
fn a_full_queue_is_told_once_until_the_guest_asks_again() {
    for path in Path::ALL {
        let mut ends = Ends::new(path, Setup::default(), small());
        exchange(&mut ends);
        let full = [(Kind::CqFull, ends.b.recv_cq.cqn)];
        assert_eq!(told(&ends.b), full, "{path:?}");
        for _ in 0..3 {
            let _got = ends.received();
            ends.pass(500 * MS);
            assert_eq!(ends.b.recv_cq.state(), Some(CqState::Full), "{path:?}");
        }
        assert_eq!(told(&ends.b), [], "{path:?}");
        rearm(&ends);
        ends.pass(MS);
        assert_eq!(told(&ends.b), full, "{path:?}");
    }
}

/// The event of few free entries comes before the CQ is full, once until the guest asks again.
#[test]
fn few_free_entries_are_told() {
    for path in Path::ALL {
        let few = Setup { log_cqes: 3, holding: Some(2), ..Setup::default() };
        let mut ends = Ends::new(path, Setup::default(), few);
        let told_few = [(Kind::CqFew, ends.b.recv_cq.cqn)];
        send(&mut ends, 5);
        assert_eq!(told(&ends.b), [], "{path:?}");
        send(&mut ends, 1);
        assert_eq!(told(&ends.b), told_few, "{path:?}: two of eight entries are free");
        assert_eq!(ends.b.recv_cq.state(), Some(CqState::Few));
        send(&mut ends, 1);
        for _ in 0..6 {
            let _got = ends.received();
        }
        send(&mut ends, 6);
        assert_eq!(told(&ends.b), [], "{path:?}: it has been told");
        for _ in 0..6 {
            let _got = ends.received();
        }
        rearm(&ends);
        assert_eq!(ends.b.recv_cq.state(), Some(CqState::Room));
        send(&mut ends, 4);
        assert_eq!(told(&ends.b), [], "{path:?}");
        send(&mut ends, 1);
        assert_eq!(told(&ends.b), told_few, "{path:?}");
    }
}

/// An entry that was held back raises the event for which the CQ is armed, when it is written.
#[test]
fn entries_that_were_held_back_raise_completion_events() {
    for path in Path::ALL {
        let mut ends = Ends::new(path, Setup::default(), small());
        exchange(&mut ends);
        for id in 0..ENTRIES {
            assert_eq!(ends.b.recv_cq.poll().map(|got| got.wr_id.get()), Some(id));
        }
        ends.b.recv_cq.arm(ARM_NEXT);
        assert_eq!(ends.b.events.poll(), None, "{path:?}");
        ends.pass(MS);
        assert_eq!(ends.b.events.poll(), Some((Kind::Completion, ends.b.recv_cq.cqn)), "{path:?}");
    }
}

/// Bad parameters of CREATE_CQ are refused.
#[test]
fn bad_parameters_are_refused() {
    let guest = world::guest();
    let (eqn, _) = guest.create_eq(1, 4).expect("CREATE_EQ");
    let create = |tune: fn(CreateCq) -> CreateCq| {
        CompletionQueue::create_with(&guest, 0, eqn, 2, tune).map(|_| ())
    };
    let refused = |offset| Err(Refused(Refusal::BadParam, offset));
    assert_eq!(create(|cq| CreateCq { flags: 4, ..cq }), refused(25), "an unknown flag");
    assert_eq!(create(|cq| CreateCq { reserved: [0, 1], ..cq }), refused(27));
    assert_eq!(create(|cq| cq.holding(4)), refused(28), "as many as there are");
    assert_eq!(create(|cq| CreateCq { few: 1.into(), ..cq }), refused(28), "without the flag");
    assert_eq!(create(|cq| cq.holding(3)), Ok(()));
}
