//! The end of a daemon whose guests have outstanding work requests.
//!
//! Shows: daemon

use std::time::{Duration, Instant};

use rustix::process::Signal;
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::regs::FatalCode;
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::vmm::daemon::Daemon;
use vrnic_testdriver::vmm::vfio::Endpoint;
use vrnic_testdriver::wait;
use vrnic_testdriver::wr::Wr;

use crate::common::{pair, pattern, start_with};

/// Length of a message.
const LEN: usize = 5000;
/// The event that the driver gets.
const STOPPED: (Kind, u32) = (Kind::DeviceFatal, FatalCode::Stopped as u32);

/// Starts a daemon. Its first guest has a SEND in progress, for which the second guest has no
/// receive.
fn busy(args: &[&str]) -> (Daemon, [Endpoint; 2]) {
    let daemon = start_with(2, args);
    let mut ends = pair(&daemon).map(|guest| Endpoint::new(&guest, Setup::default()));
    let [a, b] = &mut ends;
    // The requester retries without limit.
    a.connect(b.guest.mac(), b.qpn, |attr| attr.rnr_retry = 7);
    b.connect(a.guest.mac(), a.qpn, |_| {});
    a.fill(0, &pattern(LEN, 1));
    a.post_send(&Wr::new(Opcode::Send, &[a.sge(0, LEN as u32)]).id(1));
    let begun = || (a.guest.stats().tx_send_req.get() == 1).then_some(());
    wait::until("the SEND", begun);
    (daemon, ends)
}

#[test]
fn requests_that_have_begun_end_and_no_others_begin() {
    let (mut daemon, [mut a, mut b]) = busy(&["--drain", "15000"]);
    daemon.signal(Signal::TERM);
    daemon.wait_for_log("the daemon starts no more work requests");
    a.post_send(&Wr::new(Opcode::Send, &[a.sge(0, 64)]).id(2));
    std::thread::sleep(Duration::from_millis(300));
    daemon.check();
    assert!(a.send_cq.poll().is_none(), "a completion without a receive");
    for id in [1, 2] {
        b.post_recv(id, &[b.sge(0, LEN as u32)]);
    }
    a.send_cq.expect(1, Status::Success);
    b.recv_cq.expect(1, Status::Success);
    assert!(b.bytes(0, LEN) == pattern(LEN, 1));
    assert!(daemon.end().success());
    for end in [&mut a, &mut b] {
        assert_eq!(end.guest.wait_event(), STOPPED);
    }
    assert!(a.send_cq.poll().is_none() && b.recv_cq.poll().is_none(), "the other SEND was started");
    assert!(!daemon.log().contains("have not ended"), "{}", daemon.log());
}

#[test]
fn requests_that_do_not_end_are_given_up() {
    let (mut daemon, [mut a, b]) = busy(&["--drain", "700"]);
    let start = Instant::now();
    assert!(daemon.stop(Signal::TERM).success());
    assert!(start.elapsed() >= Duration::from_millis(700), "the daemon did not wait");
    assert!(daemon.log().contains("work requests of 1 queue pairs have not ended within 700ms"));
    assert!(a.send_cq.poll().is_none());
    assert_eq!([a.guest.wait_event(), b.guest.wait_event()], [STOPPED; 2]);
}

#[test]
fn a_second_signal_ends_the_wait() {
    let (mut daemon, _ends) = busy(&["--drain", "60000"]);
    daemon.signal(Signal::TERM);
    daemon.wait_for_log("ends because of a signal");
    std::thread::sleep(Duration::from_millis(300));
    daemon.check();
    assert!(daemon.stop(Signal::TERM).success());
    assert!(daemon.log().contains("ends at once, because of a second signal"));
}

#[test]
fn an_idle_daemon_does_not_wait() {
    let mut daemon = start_with(2, &["--drain", "15000"]);
    let guests = pair(&daemon);
    let start = Instant::now();
    assert!(daemon.stop(Signal::INT).success());
    assert!(start.elapsed() < Duration::from_secs(10), "it waited for {:?}", start.elapsed());
    assert_eq!(guests.each_ref().map(|guest| guest.wait_event()), [STOPPED; 2]);
}
