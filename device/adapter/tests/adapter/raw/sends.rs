//! What is sent, and what is refused.

use vrnic_abi::cq::{self, Status};
use vrnic_abi::flow::Kind;
use vrnic_abi::sq::{MAX_FRAME, MIN_FRAME, Opcode};
use vrnic_testdriver::cq::status;
use vrnic_testdriver::wr::Wr;

use super::frames::{mac, plain};
use super::{add, expect, ready, received, rule, setup, to_mac};
use crate::world::Pair;

#[test]
fn a_gather_list_is_a_frame_and_goes_whole_into_the_next_receive() {
    let mut p = Pair::raw();
    add(&p.b, &to_mac(mac(2))).expect("CREATE_FLOW");
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

#[test]
fn a_sniffer_and_a_default_rule_receive() {
    let mut p = Pair::raw();
    let mut sniffer = p.b.beside(|params| params.qp_type = setup().kind as u8);
    ready(&sniffer);
    add(&sniffer, &rule(Kind::Sniffer)).expect("CREATE_FLOW");
    add(&p.b, &rule(Kind::AllDefault)).expect("CREATE_FLOW");
    expect(&mut p.b, 0, 2000);
    expect(&mut sniffer, 4000, 2000);
    let frame = plain(mac(2), 300);
    assert_eq!(p.send_frame(&frame), Status::Success);
    assert_eq!(received(&mut p.b).expect("received").0, frame);
    assert_eq!(received(&mut sniffer).expect("received").0, frame);
}
