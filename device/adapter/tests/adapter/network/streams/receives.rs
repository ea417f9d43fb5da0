//! Receives of messages in TCP connections (iWARP): receives that are posted late, and receives of
//! SRQs.
//!
//! Shows: iwarp

use vrnic_abi::cq::Status;
use vrnic_abi::qp::{State, Type};
use vrnic_abi::sq::Opcode;
use vrnic_simlink::Faults;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{Setup, TO_RTS, attributes};
use vrnic_testdriver::srq::LOG_SHARED;
use vrnic_testdriver::stream;
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, SharedQueue};
use crate::cable::Cable;
use crate::network::streams::{connected, received};

/// Connects two endpoints with this port.
pub(crate) fn connect_at(a: &Endpoint, b: &Endpoint, port: u16) {
    for (number, end, peer) in [(0, a, b), (1, b, a)] {
        let macs = [end.guest.mac(), peer.guest.mac()];
        end.guest.take_through(end.qpn, attributes(macs[1], 0), &TO_RTS[..1]);
        let mut connection = stream::connection(number, macs, 1448);
        let ports = [port, 7000];
        (connection.local_port, connection.remote_port) =
            (ports[number].into(), ports[1 - number].into());
        end.guest.open_connection(end.qpn, &connection).expect("OPEN_CONNECTION");
    }
}

/// Runs several QPs that share a receive queue, which is empty most of the time.
fn share_receives(faults: Faults) {
    const QPS: u16 = 4;
    const EACH: u64 = 100;
    let cable = Cable::new(11, faults);
    let base = Endpoint::new(&cable.gb, Setup::default());
    let mut srq = SharedQueue::new(&base);
    let mut ends = Vec::new();
    for nth in 0..QPS {
        let a = Endpoint::new(&cable.ga, Setup::default());
        let b = base.sibling(Type::Rc, srq.srqn);
        connect_at(&a, &b, 8000 + nth);
        ends.push((a, b, 0, 0));
    }
    let mut posted = 1 << LOG_SHARED;
    (0..posted).for_each(|id| srq.post(id, &[base.sge(0, 4096)]));
    for _ in 0..20_000 {
        for (a, b, sent, got) in &mut ends {
            while *sent < EACH.min(*got + 16) {
                a.post_send(&Wr::new(Opcode::Send, &[a.sge(0, 4096)]));
                *sent += 1;
            }
            while let Some(cqe) = b.recv_cq.poll() {
                assert_eq!(status(&cqe), Status::Success);
                *got += 1;
                srq.post(posted, &[base.sge(0, 4096)]);
                posted += 1;
            }
            while let Some(cqe) = a.send_cq.poll() {
                assert_eq!(status(&cqe), Status::Success);
            }
        }
        if ends.iter().all(|(.., got)| *got == EACH) {
            return;
        }
        let until = cable.now() + 50_000;
        cable.run_until(|| cable.now() > until);
    }
    let arrived: Vec<_> = ends.iter().map(|(.., got)| *got).collect();
    panic!("{arrived:?} messages of {EACH} each have arrived");
}

#[test]
fn shared_receives_that_come_late_are_used_by_all() {
    share_receives(Faults::default());
}

#[test]
fn shared_receives_are_used_by_all_over_a_bad_cable() {
    share_receives(Faults::all(10_000));
}

#[test]
fn a_send_waits_for_a_receive_for_a_while() {
    let cable = Cable::new(6, Faults::default());
    let (mut a, mut b) = connected(&cable);
    a.fill(0, b"late");
    let send = Wr::new(Opcode::Send, &[a.sge(0, 4)]);
    a.post_send(&send);
    let start = cable.now();
    cable.run_until(|| cable.now() > start + 20_000_000);
    b.post_recv(1, &[b.sge(0, 100)]);
    assert_eq!(status(&received(&cable, &mut b)), Status::Success);
    assert_eq!(b.bytes(0, 4), *b"late");
    // The next SEND finds no receive.
    a.post_send(&send);
    cable.run_until(|| a.state() == State::Err && b.state() == State::Err);
}

/// Lets a SEND wait for its receive for this many nanoseconds. Returns the number of polls in this
/// time, and the nanoseconds from the receive to the completion.
fn wait_for_receive(cable: &Cable, a: &mut Endpoint, b: &mut Endpoint, time: u64) -> [u64; 2] {
    a.post_send(&Wr::new(Opcode::Send, &[a.sge(0, 4)]));
    let (mut polls, end) = (0, cable.now() + time);
    cable.run_until(|| {
        polls += 1;
        cable.now() >= end
    });
    let posted = cable.now();
    b.post_recv(1, &[b.sge(0, 100)]);
    assert_eq!(status(&received(cable, b)), Status::Success);
    [polls, cable.now() - posted]
}

#[test]
fn checks_for_a_receive_become_rare_in_a_long_wait_alone() {
    const US: u64 = 1000;
    let cable = Cable::new(21, Faults::default());
    let (mut a, mut b) = connected(&cable);
    for _ in 0..2 {
        for time in [150 * US, 500 * US, 1000 * US] {
            let [_, late] = wait_for_receive(&cable, &mut a, &mut b, time);
            assert!(late <= 100 * US, "{late} ns after a wait of {time} ns");
        }
        let [polls, late] = wait_for_receive(&cable, &mut a, &mut b, 900_000 * US);
        assert!(polls < 1000, "{polls} polls");
        assert!(late <= 5000 * US, "{late} ns after a long wait");
    }
}

/// Each SEND waits for its receive, and more SENDs are outstanding than may wait.
#[test]
fn receives_that_come_late_cost_no_more_than_their_delay() {
    const DELAY: u64 = 20_000_000;
    const SENDS: usize = 100;
    let cable = Cable::new(9, Faults::default());
    let (mut a, mut b) = connected(&cable);
    let start = cable.now();
    let (mut posted, mut done, mut received, mut next) = (0, 0, 0, start);
    while received < SENDS {
        while posted < SENDS && posted - done < 12 {
            a.post_send(&Wr::new(Opcode::Send, &[a.sge(0, 400_000)]));
            posted += 1;
        }
        if cable.now() >= next {
            b.post_recv(7, &[b.sge(0, 400_000)]);
            next = cable.now() + DELAY;
        }
        let until = next.min(cable.now() + DELAY / 20);
        cable.run_until(|| cable.now() >= until);
        for done_now in std::iter::from_fn(|| a.send_cq.poll()) {
            assert_eq!(status(&done_now), Status::Success);
            done += 1;
        }
        received += std::iter::from_fn(|| b.recv_cq.poll()).count();
    }
    // The sum of all waits exceeds the second for which one SEND may wait.
    assert!(cable.now() - start < (SENDS as u64 + 5) * DELAY);
    assert_eq!(a.guest.stats().tcp_timeouts.get(), 0);
}
