//! CLOSE_CONNECTION, and the states and events of a connection that carries bytes.
//!
//! Shows: tcp

use vrnic_abi::admin;
use vrnic_abi::connection::{Closed, Closing, ConnectionEvents, Ending, RdmaState, Stage};
use vrnic_abi::cq::Status;
use vrnic_abi::qp::State;
use vrnic_simlink::Faults;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::stream;

use super::{END, cable, connected, pass, received, send, sent, wait};
use crate::network::streams::closing::{close, events, state};
use crate::network::streams::ends::{connection_events, ending, reach, stage};

const MS: u64 = 1_000_000;
const NONE: ConnectionEvents = ConnectionEvents::empty();
const FIN: ConnectionEvents = ConnectionEvents::GRACEFUL_DISCONNECT;

#[test]
fn a_close_of_both_directions_ends_idle() {
    let cable = cable(1, Faults::default());
    let (mut a, mut b) = connected(&cable, false);
    assert_eq!((state(&a), events(&a)), (RdmaState::Rts, NONE));
    send(&mut a, 0, 10);
    assert_eq!(close(&a, Closing::Graceful), Err(Refused(admin::Status::Busy, 0)));
    b.post_recv(1, &[b.sge(0, 10)]);
    assert_eq!((received(&cable, &mut b), sent(&cable, &mut a)), (10, Status::Success));
    connection_events(&b);
    assert_eq!(close(&a, Closing::Graceful), Ok(Closed::Done));
    pass(&cable, 10 * MS);
    assert_eq!((state(&a), events(&a)), (RdmaState::Closing, NONE));
    // The FIN is reported at once, although no receive is posted that could report it.
    assert_eq!((state(&b), events(&b), connection_events(&b)), (RdmaState::Rts, FIN, 1));
    assert_eq!(close(&a, Closing::Release), Ok(Closed::Pending));
    a.post_recv(1, &[a.sge(0, 10)]);
    b.post_recv(2, &[b.sge(0, 10)]);
    assert_eq!(received(&cable, &mut b), END);
    assert_eq!(close(&b, Closing::Graceful), Ok(Closed::Done));
    assert_eq!(received(&cable, &mut a), END);
    reach(&cable, &b, Stage::Gone);
    let closed = FIN | ConnectionEvents::CLOSED;
    assert_eq!((state(&a), events(&a)), (RdmaState::Idle, closed));
    assert_eq!((state(&b), events(&b)), (RdmaState::Idle, closed));
}

/// The peer resets the connection while it is being closed.
#[test]
fn a_close_that_fails_is_a_bad_one() {
    let cable = cable(2, Faults::default());
    let (a, b) = connected(&cable, false);
    assert_eq!(close(&a, Closing::Graceful), Ok(Closed::Done));
    pass(&cable, MS);
    assert_eq!((state(&a), events(&b)), (RdmaState::Closing, FIN));
    assert_eq!(close(&b, Closing::Abortive), Ok(Closed::Done));
    reach(&cable, &a, Stage::Gone);
    let bad = ConnectionEvents::BAD_CLOSE | ConnectionEvents::ABORTIVE_DISCONNECT;
    assert_eq!((state(&a), events(&a), a.state()), (RdmaState::Error, bad, State::Err));
}

#[test]
fn a_reset_is_told_to_the_peer() {
    let cable = cable(3, Faults::default());
    let (a, b) = connected(&cable, false);
    assert_eq!(close(&a, Closing::Abortive), Ok(Closed::Done));
    reach(&cable, &b, Stage::Gone);
    assert_eq!((state(&a), state(&b)), (RdmaState::Error, RdmaState::Error));
    assert_eq!(events(&b), ConnectionEvents::ABORTIVE_DISCONNECT);
}

/// The peer has closed its direction, and resets the connection later. That is no graceful end.
#[test]
fn a_reset_behind_the_end_of_the_peer_is_an_error() {
    let cable = cable(5, Faults::default());
    let (a, b) = connected(&cable, false);
    assert_eq!(close(&a, Closing::Graceful), Ok(Closed::Done));
    pass(&cable, MS);
    assert_eq!(close(&a, Closing::Abortive), Ok(Closed::Done));
    reach(&cable, &b, Stage::Gone);
    let told = FIN | ConnectionEvents::ABORTIVE_DISCONNECT;
    assert_eq!((state(&b), events(&b), ending(&b)), (RdmaState::Error, told, Ending::Reset));
}

#[test]
fn a_qp_has_a_second_connection_after_it_was_idle() {
    let cable = cable(4, Faults::default());
    let (mut a, mut b) = connected(&cable, false);
    b.post_recv(1, &[b.sge(0, 10)]);
    assert_eq!(close(&b, Closing::Idle), Err(Refused(admin::Status::BadState, 0)));
    assert_eq!(close(&a, Closing::Abortive), Ok(Closed::Done));
    reach(&cable, &b, Stage::Gone);
    pass(&cable, MS);
    assert_eq!(status(&wait(&cable, &mut b, |b| b.recv_cq.poll())), Status::WrFlushErr);
    for end in [&mut a, &mut b] {
        assert_eq!((stage(end), close(end, Closing::Idle)), (Stage::Gone, Ok(Closed::Done)));
        assert_eq!(end.state(), State::Reset);
        end.set_state(State::Reset);
    }
    stream::connect_toes(&a, &b);
    send(&mut a, 0, 10);
    b.post_recv(1, &[b.sge(0, 10)]);
    assert_eq!(received(&cable, &mut b), 10);
}
