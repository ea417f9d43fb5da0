//! CLOSE_CONNECTION, and the states and events of a connection that ends.
//!
//! Shows: iwarp

use vrnic_abi::admin::{self, CloseConnection, CloseResult, command};
use vrnic_abi::connection::{Closed, Closing, ConnectionEvents, Ending, RdmaState, Stage};
use vrnic_abi::cq::Status;
use vrnic_abi::qp::State;
use vrnic_abi::sq::Opcode;
use vrnic_simlink::{Fate, Faults};
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::stream;
use vrnic_testdriver::wr::Wr;

use super::ends::{MS, connected, connection_events, ending, lose, pass, query, reach, stage};
use crate::bus::Endpoint;
use crate::cable::Cable;
use crate::memory::keys::local_inv;

const NONE: ConnectionEvents = ConnectionEvents::empty();

pub(crate) fn close(end: &Endpoint, how: Closing) -> Result<Closed, Refused> {
    let params = CloseConnection { qpn: end.qpn.into(), how: how as u8, reserved: [0; 3] };
    let CloseResult { closed } = end.guest.command::<command::CloseConnection>(&params)?;
    Ok(Closed::from_raw(closed).expect("a result"))
}

pub(crate) fn state(end: &Endpoint) -> RdmaState {
    RdmaState::from_raw(query(end).state).expect("a state")
}

pub(crate) fn events(end: &Endpoint) -> ConnectionEvents {
    ConnectionEvents::from_bits(query(end).events.get()).expect("events")
}

/// Shows: iwarp: a graceful end, and the states Idle, Closing and Terminate
#[test]
fn a_graceful_close_needs_an_empty_queue() {
    let cable = Cable::new(1, Faults::default());
    let (mut a, b) = connected(&cable);
    assert_eq!((state(&a), events(&a)), (RdmaState::Rts, NONE));
    lose(&cable, true);
    a.post_send(&Wr::new(Opcode::Write, &[a.sge(0, 9000)]).to(b.buffer, b.key));
    let busy = Refused(admin::Status::Busy, 0);
    assert_eq!(close(&a, Closing::Graceful), Err(busy));
    pass(&cable, MS);
    assert_eq!((close(&a, Closing::Graceful), a.state()), (Err(busy), State::Rts));
    lose(&cable, false);
    let mut done = None;
    cable.run_until(|| {
        done = done.take().or_else(|| a.send_cq.poll());
        done.is_some()
    });
    assert_eq!(status(&done.expect("a completion")), Status::Success);
    // The peer's FIN is held up, so that each state is seen.
    let held = std::rc::Rc::new(std::cell::Cell::new(true));
    let hold = std::rc::Rc::clone(&held);
    cable.links[1].borrow_mut().rule(move |_| if hold.get() { Fate::Drop } else { Fate::Pass });
    connection_events(&b);
    assert_eq!(close(&a, Closing::Graceful), Ok(Closed::Done));
    pass(&cable, 10 * MS);
    assert_eq!((a.state(), state(&a), events(&a)), (State::Sqd, RdmaState::Closing, NONE));
    assert_eq!(close(&a, Closing::Release), Ok(Closed::Pending));
    // The FIN is reported at once.
    assert_eq!(events(&b), ConnectionEvents::GRACEFUL_DISCONNECT);
    assert_eq!((stage(&b), state(&b)), (Stage::Closing, RdmaState::Closing));
    assert_eq!(connection_events(&b), 1);
    held.set(false);
    reach(&cable, &b, Stage::Gone);
    cable.run_until(|| state(&a) == RdmaState::Idle);
    let closed = ConnectionEvents::GRACEFUL_DISCONNECT | ConnectionEvents::CLOSED;
    assert_eq!((state(&a), events(&a)), (RdmaState::Idle, closed));
    assert_eq!((state(&b), events(&b)), (RdmaState::Idle, closed));
    assert_eq!((ending(&a), ending(&b)), (Ending::Graceful, Ending::Graceful));
    assert_eq!(close(&a, Closing::Graceful), Err(Refused(admin::Status::BadState, 0)));
}

/// A message of the peer that crosses the FIN is lost: the close was a bad one.
#[test]
fn a_message_makes_a_close_a_bad_one() {
    let cable = Cable::new(2, Faults::default());
    let (a, mut b) = connected(&cable);
    let write = Wr::new(Opcode::Write, &[b.sge(0, 8)]).to(a.buffer, a.key);
    assert_eq!(status(&cable.complete(&mut b, &write)), Status::Success);
    cable.links[0].borrow_mut().rule(|_| Fate::Drop);
    assert_eq!(close(&a, Closing::Graceful), Ok(Closed::Done));
    pass(&cable, MS);
    b.post_send(&write);
    reach(&cable, &a, Stage::Gone);
    assert_eq!((ending(&a), a.state()), (Ending::BadClose, State::Err));
    let bad = ConnectionEvents::BAD_CLOSE | ConnectionEvents::ABORTIVE_DISCONNECT;
    assert_eq!((state(&a), events(&a)), (RdmaState::Error, bad));
}

/// The peer's memory request is refused while this end closes, so its Terminate crosses the FIN.
#[test]
fn a_terminate_makes_a_close_a_bad_one() {
    let cable = Cable::new(10, Faults::default());
    let (a, mut b) = connected(&cable);
    cable.links[0].borrow_mut().rule(|_| Fate::Drop);
    assert_eq!(close(&a, Closing::Graceful), Ok(Closed::Done));
    pass(&cable, MS);
    b.post_send(&local_inv(77));
    reach(&cable, &a, Stage::Gone);
    assert!(events(&b).contains(ConnectionEvents::TERMINATE_SENT), "{:?}", events(&b));
    assert_eq!((ending(&a), a.state()), (Ending::BadClose, State::Err));
    let bad = ConnectionEvents::BAD_CLOSE | ConnectionEvents::ABORTIVE_DISCONNECT;
    assert_eq!((state(&a), events(&a)), (RdmaState::Error, bad));
}

#[test]
fn an_abortive_close_resets_the_connection() {
    let cable = Cable::new(3, Faults::default());
    let (a, b) = connected(&cable);
    assert_eq!(close(&a, Closing::Abortive), Ok(Closed::Done));
    reach(&cable, &b, Stage::Gone);
    assert_eq!((state(&a), state(&b)), (RdmaState::Error, RdmaState::Error));
    assert_eq!((ending(&a), ending(&b)), (Ending::Local, Ending::Reset));
    assert_eq!(events(&b), ConnectionEvents::ABORTIVE_DISCONNECT);
}

/// The FIN after a Terminate is told, although the connection is over already.
#[test]
fn a_fin_is_told_in_every_state() {
    let cable = Cable::new(4, Faults::default());
    let (mut a, b) = connected(&cable);
    let wrong = Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key ^ 1);
    assert_eq!(status(&cable.complete(&mut a, &wrong)), Status::RemAccessErr);
    reach(&cable, &a, Stage::Gone);
    assert!(events(&b).contains(ConnectionEvents::TERMINATE_SENT));
    assert!(events(&b).contains(ConnectionEvents::GRACEFUL_DISCONNECT), "{:?}", events(&b));
    let told = ConnectionEvents::TERMINATE_RECEIVED | ConnectionEvents::GRACEFUL_DISCONNECT;
    assert_eq!((state(&a), events(&a)), (RdmaState::Error, told));
}

/// The end that finds a fault is in the state Terminate until the peer closes its direction.
#[test]
fn the_state_is_terminate_until_the_peer_closes() {
    let cable = Cable::new(8, Faults::default());
    let (mut a, b) = connected(&cable);
    a.post_send(&Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key ^ 1));
    cable.run_until(|| events(&b).contains(ConnectionEvents::TERMINATE_SENT));
    let held = std::rc::Rc::new(std::cell::Cell::new(true));
    let hold = std::rc::Rc::clone(&held);
    cable.links[0].borrow_mut().rule(move |_| if hold.get() { Fate::Drop } else { Fate::Pass });
    pass(&cable, 10 * MS);
    assert_eq!((state(&b), events(&b)), (RdmaState::Terminate, ConnectionEvents::TERMINATE_SENT));
    held.set(false);
    reach(&cable, &b, Stage::Gone);
    assert_eq!((ending(&b), state(&b)), (Ending::TerminateSent, RdmaState::Error));
}

/// A work request that is posted while the connection closes waits for the end, and is flushed.
#[test]
fn a_work_request_of_a_connection_that_closes_is_flushed() {
    let cable = Cable::new(9, Faults::default());
    let (mut a, b) = connected(&cable);
    let held = std::rc::Rc::new(std::cell::Cell::new(true));
    let hold = std::rc::Rc::clone(&held);
    cable.links[1].borrow_mut().rule(move |_| if hold.get() { Fate::Drop } else { Fate::Pass });
    assert_eq!(close(&a, Closing::Graceful), Ok(Closed::Done));
    pass(&cable, MS);
    a.post_send(&Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key));
    pass(&cable, 10 * MS);
    assert_eq!((a.state(), state(&a)), (State::Sqd, RdmaState::Closing));
    assert!(a.send_cq.poll().is_none());
    held.set(false);
    reach(&cable, &b, Stage::Gone);
    cable.run_until(|| state(&a) == RdmaState::Idle);
    assert_eq!(ending(&a), Ending::Graceful);
    pass(&cable, MS);
    assert_eq!(status(&a.send_cq.poll().expect("it is flushed")), Status::WrFlushErr);
}

/// A connection that is closed on both sides leaves the adapter before its wait for late segments
/// is over, and its addresses are free.
#[test]
fn a_closed_connection_leaves_the_adapter() {
    let cable = Cable::new(5, Faults::default());
    let (a, b) = connected(&cable);
    assert_eq!(close(&a, Closing::Graceful), Ok(Closed::Done));
    reach(&cable, &b, Stage::Gone);
    pass(&cable, 100 * MS);
    assert_eq!(stage(&a), Stage::Closed);
    let other = Endpoint::new(&cable.ga, vrnic_testdriver::qp::Setup::default());
    let refused = stream::open(&other, 0, cable.gb.mac(), stream::MSS).expect_err("it is taken");
    assert_eq!(refused.0, admin::Status::Busy);
    assert_eq!(close(&a, Closing::Release), Ok(Closed::Done));
    assert_eq!(stage(&a), Stage::Gone);
    stream::open(&other, 0, cable.gb.mac(), stream::MSS).expect("it is free");
}

#[test]
fn a_qp_becomes_idle_when_all_is_flushed() {
    let cable = Cable::new(6, Faults::default());
    let (mut a, mut b) = connected(&cable);
    b.post_recv(1, &[]);
    assert_eq!(close(&b, Closing::Idle), Err(Refused(admin::Status::BadState, 0)));
    assert_eq!(close(&a, Closing::Abortive), Ok(Closed::Done));
    assert_eq!(close(&a, Closing::Idle), Ok(Closed::Pending));
    assert_eq!(close(&a, Closing::IdleNow), Ok(Closed::Aborted));
    assert_eq!(a.state(), State::Err);
    reach(&cable, &b, Stage::Gone);
    pass(&cable, MS);
    assert_eq!(status(&b.recv_cq.poll().expect("it is flushed")), Status::WrFlushErr);
    for end in [&mut a, &mut b] {
        assert_eq!(close(end, Closing::Release), Ok(Closed::Done));
        assert_eq!(close(end, Closing::Idle), Ok(Closed::Done));
        assert_eq!(end.state(), State::Reset);
        assert_eq!(close(end, Closing::Release), Err(Refused(admin::Status::BadState, 0)));
        end.set_state(State::Reset);
    }
    stream::connect_pair(&a, &b);
    let write = Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key);
    assert_eq!(status(&cable.complete(&mut a, &write)), Status::Success);
}

#[test]
fn a_close_with_wrong_parameters_is_refused() {
    let cable = Cable::new(7, Faults::default());
    let (a, _b) = connected(&cable);
    let params = CloseConnection { qpn: a.qpn.into(), how: 9, reserved: [0; 3] };
    let refused = a.guest.command::<command::CloseConnection>(&params).map(|_| ());
    assert_eq!(refused, Err(Refused(admin::Status::BadParam, 4)));
    let unknown = CloseConnection { qpn: 9999.into(), how: 1, reserved: [0; 3] };
    let refused = a.guest.command::<command::CloseConnection>(&unknown).map(|_| ());
    assert_eq!(refused, Err(Refused(admin::Status::NotFound, 0)));
    let bare = Endpoint::new(&cable.ga, vrnic_testdriver::qp::Setup::default());
    for how in [Closing::Graceful, Closing::Abortive, Closing::Release, Closing::Idle] {
        assert_eq!(close(&bare, how), Err(Refused(admin::Status::BadState, 0)));
    }
}
