//! Raw packets that are sent, and work requests that are refused.
//!
//! Shows: raw

use vrnic_abi::admin::Transport;
use vrnic_abi::cq::{self, Status};
use vrnic_abi::flow::Kind;
use vrnic_abi::qp::{Attr, AttrMask, State};
use vrnic_abi::sq::{Flags, MAX_FRAME, MIN_FRAME, MIN_MSS, Opcode, SegmentSeg};
use vrnic_packet::ip::Protocol;
use vrnic_simlink::Faults;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::flow::rule;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;
use zerocopy::IntoBytes;

use super::checksums::segment;
use super::frames::{Packet, mac, plain};
use super::{endpoint, expect, received, setup, to_mac};
use crate::cable::Cable;
use crate::network::streams::connected;
use crate::network::streams::ends::first_segment;
use crate::world::{Pair, World};

#[test]
fn a_gather_list_is_a_frame_and_goes_whole_into_the_next_receive() {
    let mut p = Pair::raw();
    p.b.add_flow(&to_mac(mac(2))).expect("CREATE_FLOW");
    for len in [MIN_FRAME as usize, 60, 61, 1514, 9018, MAX_FRAME as usize] {
        let frame = plain(mac(2), len);
        let places = [p.b.sge(0, 13), p.b.sge(100, 20_000)];
        p.b.post_recv(77, &places);
        p.a.fill(0, &frame[..10]);
        p.a.fill(5000, &frame[10..]);
        let wr = Wr::new(Opcode::Send, &[p.a.sge(0, 10), p.a.sge(5000, len as u32 - 10)]);
        let sent = p.complete(&wr);
        assert_eq!((status(&sent), sent.opcode), (Status::Success, cq::Opcode::Send as u8));
        let got = p.received().expect("received");
        assert_eq!((status(&got), got.wr_id.get()), (Status::Success, 77));
        assert_eq!((got.byte_len.get() as usize, got.flags.get()), (len, 0));
        assert_eq!(p.b.bytes(0, 13), frame[..13]);
        assert_eq!(p.b.bytes(100, len - 13), frame[13..]);
    }
    // The same by inline data.
    expect(&mut p.b, 0, 100);
    let frame = plain(mac(2), 60);
    assert_eq!(status(&p.complete(&Wr::new(Opcode::Send, &[]).inline(&frame))), Status::Success);
    assert_eq!(received(&mut p.b).expect("received").0, frame);
}

/// A port in loopback mode gets its own frames, whatever their addresses are, and sends none.
///
/// Shows: raw: a port in loopback mode: frames come back to their sender, and none leaves
#[test]
fn frames_of_a_port_in_loopback_mode_come_back() {
    let mut p = Pair::raw();
    p.b.add_flow(&rule(Kind::AllDefault)).expect("CREATE_FLOW");
    p.a.add_flow(&to_mac(mac(9))).expect("CREATE_FLOW");
    for (loops, to) in [(false, mac(2)), (true, mac(9)), (true, mac(2)), (false, mac(2))] {
        p.world.fabric.faults.clear();
        if loops {
            p.world.rule("loop-back function=f1");
        }
        p.ga.adapter.run_faults();
        expect(&mut p.a, 0, 2000);
        expect(&mut p.b, 4000, 2000);
        let mut frame = plain(to, 300);
        // A foreign source.
        frame[6..12].copy_from_slice(&[2, 3, 4, 5, 6, 7]);
        if !loops {
            frame[6..12].copy_from_slice(&mac(1));
        }
        assert_eq!(p.send_frame(&frame), Status::Success);
        let own = received(&mut p.a).map(|(frame, ..)| frame);
        assert_eq!(own, (loops && to == mac(9)).then(|| frame.clone()));
        let others = received(&mut p.b).map(|(frame, ..)| frame);
        assert_eq!(others, (!loops).then_some(frame));
    }
}

#[test]
fn a_sniffer_and_a_default_rule_receive() {
    let mut p = Pair::raw();
    let mut sniffer = p.b.beside(|params| params.qp_type = setup().kind as u8);
    sniffer.ready_for_frames();
    sniffer.add_flow(&rule(Kind::Sniffer)).expect("CREATE_FLOW");
    p.b.add_flow(&rule(Kind::AllDefault)).expect("CREATE_FLOW");
    expect(&mut p.b, 0, 2000);
    expect(&mut sniffer, 4000, 2000);
    let frame = plain(mac(2), 300);
    assert_eq!(p.send_frame(&frame), Status::Success);
    assert_eq!(received(&mut p.b).expect("received").0, frame);
    assert_eq!(received(&mut sniffer).expect("received").0, frame);
}

#[test]
fn lengths_are_checked() {
    for (len, expected) in [
        (MIN_FRAME - 1, Status::LocLenErr),
        (MIN_FRAME, Status::Success),
        (MAX_FRAME, Status::Success),
        (MAX_FRAME + 1, Status::LocLenErr),
    ] {
        let mut p = Pair::raw();
        let wr = Wr::new(Opcode::Send, &[p.a.sge(0, len)]);
        assert_eq!(status(&p.complete(&wr)), expected, "{len} bytes");
        let state = if expected == Status::Success { State::Rts } else { State::Sqe };
        assert_eq!(p.a.state(), state);
    }
}

#[test]
fn faulty_work_requests_fail_the_send_queue() {
    let good = |p: &Pair| Wr::new(Opcode::Send, &[p.a.sge(0, 60)]);
    type Case = (&'static str, Status, fn(&mut Wr));
    let cases: [Case; 6] = [
        ("key", Status::LocProtErr, |wr| wr.sges[0].lkey = 1.into()),
        ("WRITE", Status::LocQpOpErr, |wr| wr.opcode = Opcode::Write as u8),
        ("SEND with immediate", Status::LocQpOpErr, |wr| wr.opcode = Opcode::SendImm as u8),
        ("READ", Status::LocQpOpErr, |wr| wr.opcode = Opcode::Read as u8),
        ("REG_MR", Status::LocQpOpErr, |wr| wr.opcode = Opcode::RegMr as u8),
        ("SEGMENT without its segment", Status::LocQpOpErr, |wr| {
            wr.opcode = Opcode::Segment as u8;
        }),
    ];
    for (name, expected, change) in cases {
        let mut p = Pair::raw();
        let mut wr = good(&p);
        change(&mut wr);
        assert_eq!(status(&p.complete(&wr)), expected, "{name}");
        assert_eq!(p.a.state(), State::Sqe, "{name}");
        let next = good(&p);
        assert_eq!(status(&p.complete(&next)), Status::WrFlushErr, "{name}");
    }
}

/// What only QPs of raw packets have is refused for others.
#[test]
fn other_qps_compute_no_checksums_and_cut_nothing() {
    let segment = SegmentSeg { mss: 100.into(), ..SegmentSeg::default() };
    for (opcode, flags) in [
        (Opcode::Send, Flags::SIGNALED | Flags::IP_CSUM),
        (Opcode::Write, Flags::SIGNALED | Flags::IP_CSUM),
        (Opcode::Segment, Flags::SIGNALED),
    ] {
        let mut p = Pair::new();
        let wr = Wr::new(opcode, &[p.a.sge(0, 8)]).flags(flags).body(segment.as_bytes());
        assert_eq!(status(&p.complete(&wr)), Status::LocQpOpErr, "{opcode:?}");
    }
}

#[test]
fn a_frame_by_a_closed_port_is_lost_without_an_error() {
    let mut p = Pair::raw();
    p.b.add_flow(&to_mac(mac(2))).expect("CREATE_FLOW");
    expect(&mut p.b, 0, 500);
    p.ga.adapter.set_link(false);
    assert_eq!(p.send_frame(&plain(mac(2), 60)), Status::Success);
    assert!(p.received().is_none());
    assert_eq!((p.ga.stats().tx_roce_discards.get(), p.ga.stats().tx_pkts.get()), (1, 0));
    p.ga.adapter.set_link(true);
    assert_eq!(p.send_frame(&plain(mac(2), 60)), Status::Success);
    assert!(p.received().is_some());
    assert_eq!((p.ga.stats().tx_pkts.get(), p.ga.stats().tx_bytes.get()), (1, 60));
    assert_eq!((p.gb.stats().rx_pkts.get(), p.gb.stats().rx_bytes.get()), (1, 60));
}

/// Unsignaled sends complete without an entry, and an error state flushes what was not sent.
#[test]
fn completions_and_the_flush_are_those_of_other_qps() {
    let mut p = Pair::raw();
    let wr = Wr::new(Opcode::Send, &[p.a.sge(0, 60)]);
    p.run(&wr.clone().flags(Flags::empty()));
    assert!(p.sent().is_none());
    p.a.set_state(State::Err);
    for id in 0..3 {
        p.a.post_send(&wr.clone().id(id));
    }
    expect(&mut p.a, 9, 500);
    p.settle();
    for id in 0..3 {
        let flushed = p.sent().expect("flushed");
        assert_eq!((status(&flushed), flushed.wr_id.get()), (Status::WrFlushErr, id));
    }
    let flushed = p.a.recv_cq.poll().expect("flushed");
    assert_eq!((status(&flushed), flushed.wr_id.get()), (Status::WrFlushErr, 9));
}

/// A sender waits for a receiver whose worker does not keep up.
#[test]
fn no_frame_is_lost_while_the_sender_can_wait() {
    let mut p = Pair::apart(World::default(), Setup { log_wqes: 10, ..setup() });
    p.a.ready_for_frames();
    p.b.ready_for_frames();
    p.b.add_flow(&to_mac(mac(2))).expect("CREATE_FLOW");
    let frame = plain(mac(2), 60);
    p.a.fill(0, &frame);
    let wr = Wr::new(Opcode::Send, &[p.a.sge(0, 60)]);
    let mut sent = 0;
    for _ in 0..4000 {
        p.a.post_send(&wr);
        p.ga.adapter.poll(0);
        while p.sent().is_some() {
            sent += 1;
        }
        if sent < p.a.sq_pi {
            break;
        }
    }
    assert!((1000..4000).contains(&sent), "{sent} frames were sent");
    assert_eq!(p.gb.stats().rx_raw_discards.get(), 0);
    p.gb.adapter.poll(0);
    p.world.advance(1_000_000);
    p.settle();
    assert!(p.sent().is_some(), "it goes on");
}

#[test]
fn a_rate_limit_holds_frames_back() {
    let mut p = Pair::raw();
    let limit = Attr { rate_limit: 8_000.into(), ..Attr::default() };
    p.ga.modify_qp(p.a.qpn, AttrMask::RATE_LIMIT, &limit).expect("MODIFY_QP");
    let wr = Wr::new(Opcode::Send, &[p.a.sge(0, 9000)]);
    let mut sent = 0;
    for _ in 0..10 {
        p.a.post_send(&wr);
    }
    // 8 Mbit/s are 1,000 bytes per millisecond.
    for _ in 0..20 {
        p.settle();
        while p.sent().is_some() {
            sent += 1;
        }
        p.world.advance(1_000_000);
    }
    assert!((2..=5).contains(&sent), "{sent} frames in 20 ms");
}

/// The limit counts the headers of each frame that a SEGMENT is cut into.
#[test]
fn a_rate_limit_counts_all_bytes_of_segments() {
    let mut p = Pair::raw();
    let limit = Attr { rate_limit: 8_000.into(), ..Attr::default() };
    p.ga.modify_qp(p.a.qpn, AttrMask::RATE_LIMIT, &limit).expect("MODIFY_QP");
    let headers = Packet { protocol: Protocol::TCP, ..Packet::default() }.frame(b"");
    let wr = segment(&p, &headers, MIN_MSS, 1000);
    for _ in 0..15 {
        p.a.post_send(&wr);
    }
    for _ in 0..20 {
        p.settle();
        p.world.advance(1_000_000);
    }
    // 21 frames with headers of 54 bytes, of which the work request has one.
    let bytes = p.ga.stats().tx_bytes.get();
    assert!((15_000..=25_000).contains(&bytes), "{bytes} bytes in 20 ms");
}

/// A program cannot speak in the place of an adapter that has a TCP connection.
#[test]
fn frames_of_a_connection_that_the_adapter_has_are_lost() {
    let cable = Cable::new(1, Faults::default());
    let (mut a, mut b) = connected(&cable);
    let mut raw = endpoint(&cable.ga);
    // No message has these bytes, so a connection that gets them ends.
    let forged = first_segment(&cable, 0, &[0; 40]);
    raw.fill(0, &forged);
    let wr = Wr::new(Opcode::Send, &[raw.sge(0, forged.len() as u32)]);
    assert_eq!(status(&cable.complete(&mut raw, &wr)), Status::Success);
    assert_eq!(cable.ga.stats().tx_roce_discards.get(), 1);
    b.post_recv(1, &[b.sge(0, 100)]);
    let send = Wr::new(Opcode::Send, &[a.sge(0, 10)]);
    assert_eq!(status(&cable.complete(&mut a, &send)), Status::Success);
    // A frame with another port is sent.
    let mut other = forged;
    other[35] ^= 1;
    raw.fill(0, &other);
    assert_eq!(status(&cable.complete(&mut raw, &wr)), Status::Success);
    assert_eq!(cable.ga.stats().tx_roce_discards.get(), 1);
}

/// An iWARP adapter has these QPs, too.
#[test]
fn an_iwarp_adapter_sends_and_receives_frames() {
    let world = World::default();
    let guests = [1, 2].map(|number| world.guest(number));
    guests.iter().for_each(|guest| guest.adapter.set_transport(Transport::Iwarp));
    let [mut a, mut b] = guests.each_ref().map(endpoint);
    b.add_flow(&rule(Kind::AllDefault)).expect("CREATE_FLOW");
    expect(&mut b, 0, 500);
    let frame = plain(mac(2), 77);
    a.post_send(&Wr::new(Opcode::Send, &[]).inline(&frame));
    world.settle(&[&guests[0], &guests[1]]);
    assert_eq!(status(&a.send_cq.poll().expect("sent")), Status::Success);
    assert_eq!(received(&mut b).expect("received").0, frame);
}
