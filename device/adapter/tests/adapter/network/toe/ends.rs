//! The ends of connections.
//!
//! Shows: tcp: the end of either direction of a stream, resets, and peers that are gone

use vrnic_abi::admin::Opcode as Admin;
use vrnic_abi::connection::{Ending, Stage};
use vrnic_abi::cq::Status;
use vrnic_abi::qp::State;
use vrnic_adapter::ethernet::Frame;
use vrnic_adapter::limits::CONNECTION_MEMORY;
use vrnic_simlink::{Fate, Faults};
use vrnic_tcp::wire::Flags;
use vrnic_tcp::wire::frame::Frame as TcpFrame;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::stream;

use super::{END, cable, connected, pass, received, segment, send, sent, wait};
use crate::bus::Endpoint;
use crate::cable::Cable;
use crate::network::streams::ends::{ending, reach, stage};
use crate::network::streams::pattern;

const MS: u64 = 1_000_000;

/// Waits for the flush of a receive.
#[track_caller]
fn flushed(cable: &Cable, on: &mut Endpoint) {
    assert_eq!(status(&wait(cable, on, |on| on.recv_cq.poll())), Status::WrFlushErr);
}

#[test]
fn the_end_of_the_stream_completes_a_receive_without_bytes() {
    for push in [false, true] {
        let cable = cable(1, Faults::default());
        let (mut a, mut b) = connected(&cable, push);
        for nth in 0..3 {
            b.post_recv(nth, &[b.sge(0, 100)]);
        }
        send(&mut a, 0, 150);
        a.set_state(State::Sqd);
        assert_eq!((received(&cable, &mut b), received(&cable, &mut b)), (100, 50));
        assert_eq!(received(&cable, &mut b), END);
        assert_eq!(sent(&cable, &mut a), Status::Success);
        assert_eq!((stage(&b), b.state()), (Stage::Closing, State::Rts));
        // The end completes one receive only.
        b.post_recv(7, &[b.sge(0, 100)]);
        pass(&cable, 10 * MS);
        assert!(b.recv_cq.poll().is_none());
    }
}

/// The end that has closed its direction receives what the other one still sends, for as long as
/// that takes.
#[test]
fn one_direction_is_closed_before_the_other() {
    let cable = cable(2, Faults::all(10_000));
    let (mut a, mut b) = connected(&cable, false);
    let data = pattern(100_000, 3);
    b.fill(0, &data);
    b.post_recv(1, &[b.sge(200_000, 10)]);
    a.set_state(State::Sqd);
    assert_eq!(received(&cable, &mut b), END);
    // Longer than the wait for late segments.
    pass(&cable, 90_000 * MS);
    assert_eq!((a.state(), b.state()), (State::Sqd, State::Rts));
    a.post_recv(1, &[a.sge(0, 100_000)]);
    send(&mut b, 0, 100_000);
    assert_eq!(received(&cable, &mut a), 100_000);
    assert!(a.bytes(0, 100_000) == data);
    assert_eq!(sent(&cable, &mut b), Status::Success);
    a.post_recv(1, &[a.sge(0, 100)]);
    a.post_recv(2, &[a.sge(0, 100)]);
    b.post_recv(2, &[b.sge(0, 100)]);
    b.set_state(State::Sqd);
    assert_eq!(received(&cable, &mut a), END);
    // Both directions are closed, so what is posted is flushed.
    flushed(&cable, &mut a);
    flushed(&cable, &mut b);
    reach(&cable, &b, Stage::Gone);
    reach(&cable, &a, Stage::Gone);
    for (end, guest) in [(&a, &cable.ga), (&b, &cable.gb)] {
        assert_eq!((end.state(), ending(end)), (State::Err, Ending::Graceful));
        pass(&cable, 100 * MS);
        assert_eq!(guest.adapter.connection_memory().free(), CONNECTION_MEMORY);
    }
}

/// No receive is posted when the stream ends: the next one tells it. The bytes before the end are
/// not lost.
#[test]
fn the_end_waits_for_a_receive() {
    let cable = cable(3, Faults::default());
    let (mut a, mut b) = connected(&cable, false);
    a.fill(0, b"goodbye");
    send(&mut a, 0, 7);
    a.set_state(State::Sqd);
    assert_eq!(sent(&cable, &mut a), Status::Success, "the kernel has promised room");
    pass(&cable, 100 * MS);
    b.post_recv(1, &[b.sge(0, 100)]);
    assert_eq!((received(&cable, &mut b), b.bytes(0, 7)), (7, b"goodbye".to_vec()));
    pass(&cable, 10 * MS);
    assert!(b.recv_cq.poll().is_none());
    b.post_recv(2, &[b.sge(0, 100)]);
    assert_eq!(received(&cable, &mut b), END);
}

/// Sends that were posted before SQD are sent before the end, however many there are.
#[test]
fn posted_sends_precede_the_end() {
    let cable = cable(4, Faults::all(10_000));
    let (mut a, mut b) = connected(&cable, false);
    (0..30).for_each(|_| send(&mut a, 0, 10_000));
    a.set_state(State::Sqd);
    // This one is too late.
    b.post_recv(1, &[b.sge(0, 300_000)]);
    b.post_recv(2, &[b.sge(0, 300_000)]);
    assert_eq!((received(&cable, &mut b), received(&cable, &mut b)), (300_000, END));
    for _ in 0..30 {
        assert_eq!(sent(&cable, &mut a), Status::Success);
    }
    send(&mut a, 0, 100);
    b.set_state(State::Sqd);
    a.post_recv(1, &[a.sge(0, 8)]);
    assert_eq!(received(&cable, &mut a), END);
    assert_eq!(sent(&cable, &mut a), Status::WrFlushErr, "it was posted behind the end");
}

#[test]
fn an_abort_resets_the_connection() {
    let cable = cable(5, Faults::default());
    let (mut a, mut b) = connected(&cable, false);
    b.post_recv(1, &[b.sge(0, 8)]);
    send(&mut a, 0, 4);
    pass(&cable, MS);
    a.post_recv(1, &[a.sge(0, 8)]);
    a.set_state(State::Err);
    flushed(&cable, &mut a);
    flushed(&cable, &mut b);
    assert_eq!((a.state(), b.state()), (State::Err, State::Err));
    reach(&cable, &a, Stage::Gone);
    reach(&cable, &b, Stage::Gone);
    assert_eq!((ending(&a), ending(&b)), (Ending::Local, Ending::Reset));
    // The addresses are free again.
    [&mut a, &mut b].into_iter().for_each(|end| end.set_state(State::Reset));
    stream::connect_toes(&a, &b);
}

#[test]
fn a_qp_that_is_destroyed_resets_the_connection() {
    let cable = cable(6, Faults::default());
    let (a, mut b) = connected(&cable, false);
    b.post_recv(1, &[b.sge(0, 8)]);
    pass(&cable, MS);
    assert_eq!(a.guest.on_object(Admin::DestroyQp, a.qpn), Ok(0));
    flushed(&cable, &mut b);
    reach(&cable, &b, Stage::Gone);
    assert_eq!(ending(&b), Ending::Reset);
}

/// Sends whose bytes the peer has not acknowledged are flushed by its reset.
#[test]
fn a_reset_of_the_peer_flushes_what_is_posted() {
    let cable = cable(7, Faults::default());
    let (mut a, _b) = connected(&cable, false);
    a.post_recv(1, &[a.sge(0, 8)]);
    cable.links[0].borrow_mut().rule(|_| Fate::Drop);
    send(&mut a, 0, 8);
    pass(&cable, MS);
    // A number that is not the next one is not believed.
    let wrong = segment(&cable, 1, 3, 0, Flags::RST, &[]);
    let _taken = cable.ga.adapter.offer(Frame::new(wrong));
    pass(&cable, MS);
    assert_eq!(a.state(), State::Rts);
    let right = segment(&cable, 1, 0, 0, Flags::RST, &[]);
    let _taken = cable.ga.adapter.offer(Frame::new(right));
    assert_eq!(sent(&cable, &mut a), Status::WrFlushErr);
    flushed(&cable, &mut a);
    reach(&cable, &a, Stage::Gone);
    assert_eq!(ending(&a), Ending::Reset);
}

/// A peer that answers nothing for two minutes.
#[test]
fn a_peer_that_is_gone_is_noticed() {
    let cable = cable(8, Faults::default());
    let (mut a, _b) = connected(&cable, false);
    cable.links[0].borrow_mut().rule(|_| Fate::Drop);
    send(&mut a, 0, 8);
    for _ in 0..4 {
        pass(&cable, 50_000 * MS);
    }
    assert_eq!(sent(&cable, &mut a), Status::WrFlushErr);
    assert_eq!(ending(&a), Ending::TimedOut);
}

/// The first FIN is lost, and so is its first acknowledgement.
#[test]
fn a_lost_end_is_sent_again() {
    let cable = cable(9, Faults::default());
    let (mut a, mut b) = connected(&cable, false);
    for link in &cable.links {
        let mut lost = 0;
        link.borrow_mut().rule(move |bytes| {
            let flags = TcpFrame::parse(bytes).ok().flatten().map(|it| it.segment.header.flags);
            let ends = flags.is_some_and(|flags| flags.contains(Flags::FIN));
            lost += i32::from(ends);
            if ends && lost == 1 { Fate::Drop } else { Fate::Pass }
        });
    }
    for end in [&mut a, &mut b] {
        end.post_recv(1, &[end.sge(0, 8)]);
        end.set_state(State::Sqd);
    }
    for end in [&mut a, &mut b] {
        assert_eq!(received(&cable, end), END);
        reach(&cable, end, Stage::Gone);
        assert_eq!(ending(end), Ending::Graceful);
    }
}
