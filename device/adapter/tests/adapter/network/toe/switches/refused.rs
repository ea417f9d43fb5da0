//! Shows: tcp: transitions to RDMA messages that fail, or that the adapter refuses

use vrnic_abi::admin::{self, StartRdma, command};
use vrnic_abi::connection::{Received, Stage};
use vrnic_abi::cq::Status;
use vrnic_abi::qp::State;
use vrnic_adapter::limits::CONNECTION_MEMORY;
use vrnic_simlink::{Fate, Faults};
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{TO_RTS, attributes};

use super::{MS, Side, sides};
use crate::bus::Endpoint;
use crate::cable::Cable;
use crate::network::streams::ends::stage;
use crate::network::toe::{apart, cable, pass, send, wait};

/// Lets a transition fail that waits for the first receive. Both QPs end, and so does the peer's.
fn fails(seed: u64, how: impl Fn(&Cable, &mut Side, &mut Side)) {
    let cable = cable(seed, Faults::default());
    let (mut a, mut b) = sides(&cable, false);
    a.bytes.post_recv(1, &[a.bytes.sge(0, 10)]);
    b.start().expect("START_RDMA");
    pass(&cable, MS);
    how(&cable, &mut a, &mut b);
    cable.run_until(|| b.rdma.state() != State::Init && a.bytes.state() == State::Err);
    let ended = |end: &Endpoint| matches!(end.state(), State::Err | State::Reset);
    assert!(ended(&b.rdma) && ended(&b.bytes), "{:?}, {:?}", b.rdma.state(), b.bytes.state());
    if b.rdma.state() == State::Err {
        assert_eq!(stage(&b.rdma), Stage::Gone);
        b.rdma.post_recv(1, &[b.rdma.sge(0, 10)]);
        let flushed = wait(&cable, &mut b.rdma, |on| on.recv_cq.poll());
        assert_eq!(status(&flushed), Status::WrFlushErr);
    }
    (0..100).for_each(|_| pass(&cable, 1000 * MS));
    assert_eq!(cable.gb.adapter.connection_memory().free(), CONNECTION_MEMORY);
    // Both QPs can begin again.
    b.bytes.set_state(State::Reset);
    b.rdma.set_state(State::Reset);
    assert!(b.start().is_err());
}

#[test]
fn a_transition_that_fails_ends_the_connection() {
    fails(10, |_, _, b| b.rdma.set_state(State::Err));
    fails(11, |_, _, b| b.rdma.set_state(State::Reset));
    fails(12, |_, _, b| b.bytes.set_state(State::Err));
    fails(13, |_, _, b| b.bytes.set_state(State::Reset));
    // The peer resets the connection, or closes its direction.
    fails(14, |_, a, _| a.bytes.set_state(State::Err));
    fails(15, |_, a, _| a.bytes.set_state(State::Sqd));
    fails(16, |_, _, b| b.bytes.set_state(State::Sqd));
    // The peer is gone.
    fails(17, |cable, a, b| {
        cable.links.iter().for_each(|link| link.borrow_mut().rule(|_| Fate::Drop));
        send(&mut b.bytes, 0, 5);
        (0..300).for_each(|_| pass(cable, 1000 * MS));
        a.bytes.set_state(State::Err);
    });
}

#[test]
fn a_transition_with_wrong_parameters_changes_nothing() {
    let cable = cable(20, Faults::default());
    let (a, mut b) = sides(&cable, false);
    let bad = |offset: usize| Refused(admin::Status::BadParam, offset as u32);
    let state = Refused(admin::Status::BadState, 0);
    let good = b.params();
    let received = |received| StartRdma { received, ..good };
    let none = Received::default();
    let cases = [
        (StartRdma { ird: 129.into(), ..good }, bad(std::mem::offset_of!(StartRdma, ird))),
        (StartRdma { ord: 129.into(), ..good }, bad(std::mem::offset_of!(StartRdma, ord))),
        (StartRdma { flags: 16.into(), ..good }, bad(std::mem::offset_of!(StartRdma, flags))),
        (received(Received { reserved: 1.into(), ..none }), bad(12)),
        (received(Received { len: (1 << 20).into(), ..none }), bad(8)),
        (
            received(Received { addr: u64::MAX.into(), len: 8.into(), ..none }),
            Refused(admin::Status::BadAddress, 0),
        ),
        (StartRdma { from: 9999.into(), ..good }, Refused(admin::Status::NotFound, 0)),
        (StartRdma { to: 9999.into(), ..good }, Refused(admin::Status::NotFound, 0)),
        (StartRdma { from: good.to, ..good }, state),
        (StartRdma { to: good.from, ..good }, state),
    ];
    for (nth, (params, refused)) in cases.iter().enumerate() {
        let result = cable.gb.command::<command::StartRdma>(params);
        assert_eq!(result.expect_err("it is wrong"), *refused, "{nth}");
    }
    assert_eq!(cable.gb.adapter.connection_memory().free(), CONNECTION_MEMORY);
    // The other QP is not in INIT, or has the promise of a connection already.
    b.rdma.set_state(State::Reset);
    assert_eq!(b.start().expect_err("RESET"), state);
    b.rdma.guest.take_through(b.rdma.qpn, attributes(cable.ga.mac(), 0), &TO_RTS[..1]);
    b.start().expect("START_RDMA");
    assert_eq!(b.start().expect_err("it has begun"), state);
    // A connection that the peer has closed, and one that does not exist.
    let (closed, open) = apart(&cable, false);
    let closed = Side::new(closed, &open);
    assert_eq!(closed.start().expect_err("it has no connection"), state);
    drop(a);
}
