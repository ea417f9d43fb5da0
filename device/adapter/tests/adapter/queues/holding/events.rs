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

use super::rig::{MS, Path, Rig};
use super::{ENTRIES, exchange, small, told};
use crate::bus::CompletionQueue;
use crate::world;

/// Asks for the events of B's receive CQ again.
fn rearm(rig: &Rig) {
    let params = ModifyCq::new(rig.b.recv_cq.cqn, 0, 0);
    rig.b.guest.command::<command::ModifyCq>(&params).expect("MODIFY_CQ");
}

/// Sends messages from A to B.
fn send(rig: &mut Rig, count: u64) {
    for _ in 0..count {
        rig.b.post_recv(0, &[]);
        rig.a.post_send(&Wr::new(Opcode::Send, &[]));
        rig.pass(MS);
        let _sent = rig.sent();
    }
}

/// The event of a full CQ comes once until the guest asks again, and then at once if the CQ is
/// still full.
#[test]
fn a_full_queue_is_told_once_until_the_guest_asks_again() {
    for path in Path::ALL {
        let mut rig = Rig::new(path, Setup::default(), small());
        exchange(&mut rig);
        let full = [(Kind::CqFull, rig.b.recv_cq.cqn)];
        assert_eq!(told(&rig.b), full, "{path:?}");
        for _ in 0..3 {
            let _got = rig.received();
            rig.pass(500 * MS);
            assert_eq!(rig.b.recv_cq.state(), Some(CqState::Full), "{path:?}");
        }
        assert_eq!(told(&rig.b), [], "{path:?}");
        rearm(&rig);
        rig.pass(MS);
        assert_eq!(told(&rig.b), full, "{path:?}");
    }
}

/// The event of few free entries comes before the CQ is full, once until the guest asks again.
#[test]
fn few_free_entries_are_told() {
    for path in Path::ALL {
        let few = Setup { log_cqes: 3, holding: Some(2), ..Setup::default() };
        let mut rig = Rig::new(path, Setup::default(), few);
        let told_few = [(Kind::CqFew, rig.b.recv_cq.cqn)];
        send(&mut rig, 5);
        assert_eq!(told(&rig.b), [], "{path:?}");
        send(&mut rig, 1);
        assert_eq!(told(&rig.b), told_few, "{path:?}: two of eight entries are free");
        assert_eq!(rig.b.recv_cq.state(), Some(CqState::Few));
        send(&mut rig, 1);
        for _ in 0..6 {
            let _got = rig.received();
        }
        send(&mut rig, 6);
        assert_eq!(told(&rig.b), [], "{path:?}: it has been told");
        for _ in 0..6 {
            let _got = rig.received();
        }
        rearm(&rig);
        assert_eq!(rig.b.recv_cq.state(), Some(CqState::Room));
        send(&mut rig, 4);
        assert_eq!(told(&rig.b), [], "{path:?}");
        send(&mut rig, 1);
        assert_eq!(told(&rig.b), told_few, "{path:?}");
    }
}

/// An entry that was held back raises the event for which the CQ is armed, when it is written.
#[test]
fn entries_that_were_held_back_raise_completion_events() {
    for path in Path::ALL {
        let mut rig = Rig::new(path, Setup::default(), small());
        exchange(&mut rig);
        for id in 0..ENTRIES {
            assert_eq!(rig.b.recv_cq.poll().map(|got| got.wr_id.get()), Some(id));
        }
        rig.b.recv_cq.arm(ARM_NEXT);
        assert_eq!(rig.b.events.poll(), None, "{path:?}");
        rig.pass(MS);
        assert_eq!(rig.b.events.poll(), Some((Kind::Completion, rig.b.recv_cq.cqn)), "{path:?}");
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
