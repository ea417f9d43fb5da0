//! RDMA between functions of two daemons in TCP connections (iWARP), over a trunk.
//!
//! Shows: iwarp

use vrnic_abi::connection::Ending;
use vrnic_abi::cq::Status;
use vrnic_abi::qp::State;
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::vmm::daemon::mac;
use vrnic_testdriver::vmm::vfio::Endpoint;
use vrnic_testdriver::wr::Wr;
use vrnic_testdriver::{stream, wait};

use crate::common::ethernet::{frame, receive, send};
use crate::common::joined::Joined;
use crate::common::{Span, pair, start, start_with, write_and_read};

#[test]
fn every_operation_goes_from_daemon_to_daemon() {
    let mut joined = Joined::by_trunk();
    let [mut a, mut b] =
        joined.guests.each_ref().map(|guest| Endpoint::new(guest, Setup::default()));
    stream::connect_pair(&a, &b);
    for (len, from, to) in [(0, 0, 0), (1, 3, 5), (4096, 4095, 1), (65_537, 7, 93), (4 << 20, 1, 0)]
    {
        write_and_read(&mut a, &b, Span { len, from, to });
        b.post_recv(1, &[b.sge(to, len as u32)]);
        a.run_expecting(&Wr::new(Opcode::Send, &[a.sge(from, len as u32)]), Status::Success);
        let got = wait::until("the receive", || b.recv_cq.poll());
        assert_eq!(got.byte_len.get() as usize, len);
    }
    // When one QP ends, the other QP ends, too.
    b.post_recv(2, &[b.sge(0, 100)]);
    a.set_state(State::Err);
    let flushed = wait::until("the receive", || b.recv_cq.poll());
    assert_eq!((status(&flushed), b.state()), (Status::WrFlushErr, State::Err));
    joined.check();
}

#[test]
fn the_request_asks_for_crcs_unless_the_daemon_was_told_otherwise() {
    for (args, asks) in [(&[][..], true), (&["--mpa-crc", "asked"], false)] {
        let mut daemon = start_with(2, args);
        let end = Endpoint::new(&daemon.ready_guest(0), Setup::default());
        let mut peer = daemon.plug(1);
        daemon.wait_for_log("link up port=\"f1\"");
        stream::open(&end, 0, mac(1), stream::MSS).expect("OPEN_CONNECTION");
        let sent = receive(&mut peer);
        let key = sent.windows(16).position(|bytes| bytes == b"MPA ID Req Frame");
        let flags = sent[key.expect("a request") + 16];
        assert_eq!(flags & 0x40 != 0, asks, "{args:?}: {flags:#x}");
        daemon.check();
    }
}

#[test]
fn two_guests_of_a_daemon_reach_each_other() {
    let mut daemon = start(2);
    let [mut a, mut b] =
        pair(&daemon).each_ref().map(|guest| Endpoint::new(guest, Setup::default()));
    stream::connect_pair(&a, &b);
    write_and_read(&mut a, &b, Span { len: 1 << 20, from: 3, to: 1 });
    write_and_read(&mut b, &a, Span { len: 70_000, from: 0, to: 5 });
    a.set_state(State::Sqd);
    for end in [&a, &b] {
        // The QP is in the error state before TCP has ended.
        let ending = wait::until("the end", || {
            let status = end.guest.query_connection(end.qpn).expect("QUERY_CONNECTION");
            Ending::from_raw(status.ending).filter(|ending| *ending != Ending::None)
        });
        assert_eq!((ending, end.state()), (Ending::Graceful, State::Err));
    }
    daemon.check();
}

/// The kernel of a guest still has a socket for the connection.
#[test]
fn a_network_card_has_no_part_in_a_connection() {
    let mut daemon = start(2);
    let end = Endpoint::new(&daemon.ready_guest(0), Setup::default());
    let mut card = end.guest.cable.lock().take().expect("a netdev");
    card.set_read_timeout(Some(wait::LIMIT)).expect("a limit");
    let mut peer = daemon.plug(1);
    daemon.wait_for_log("link up port=\"f1\"");
    let (own, other) = (end.guest.mac(), mac(1));
    stream::open(&end, 0, other, stream::MSS).expect("OPEN_CONNECTION");
    let request = receive(&mut peer);
    assert!(request.windows(16).any(|bytes| bytes == b"MPA ID Req Frame"));
    // With another identification, the card's frame differs from a repetition by the adapter.
    let mut copy = request.clone();
    copy[18] ^= 0x55;
    let mut fragment = copy.clone();
    fragment[21] = 1;
    let mut stranger = copy.clone();
    stranger[35] ^= 1;
    for frame in [&copy, &fragment, &stranger] {
        send(&mut card, frame);
    }
    let arrived = std::iter::repeat_with(|| receive(&mut peer)).find(|frame| *frame != request);
    assert_eq!(arrived.as_ref(), Some(&stranger), "the card's own connections go on");

    for frame in [&mut copy, &mut fragment, &mut stranger] {
        frame[..12].rotate_left(6);
        frame[26..34].rotate_left(4);
        frame[34..38].rotate_left(2);
        send(&mut peer, frame);
    }
    assert_eq!(receive(&mut card), stranger);
    let marker = frame(own, other, 60);
    send(&mut peer, &marker);
    assert_eq!(receive(&mut card), marker);
    daemon.check();
}
