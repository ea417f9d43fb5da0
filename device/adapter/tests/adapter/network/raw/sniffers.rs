//! Copies of all frames, in both directions.
//!
//! Shows: raw

use vrnic_abi::cq::Status;
use vrnic_abi::flow::Kind;
use vrnic_abi::sq::Opcode;
use vrnic_adapter::ethernet::{Frame, Offered};
use vrnic_simlink::Faults;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::flow::rule;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use super::frames::{mac, plain};
use super::{endpoint, expect, received, to_mac};
use crate::bus::Endpoint;
use crate::cable::Cable;
use crate::world::Pair;

/// Returns a QP of this endpoint's guest that gets copies of all frames, with some receives.
pub(super) fn sniffer(of: &Endpoint) -> Endpoint {
    let mut sniffer = of.apart(super::setup());
    sniffer.ready_for_frames();
    sniffer.add_flow(&rule(Kind::Sniffer)).expect("CREATE_FLOW");
    (0..8).for_each(|at| expect(&mut sniffer, at * 8192, 8192));
    sniffer
}

#[test]
fn raw_packets_are_copied_where_they_leave_and_where_they_arrive() {
    let mut p = Pair::raw();
    let mut sniffers = [sniffer(&p.a), sniffer(&p.b)];
    p.b.add_flow(&to_mac(mac(2))).expect("CREATE_FLOW");
    expect(&mut p.b, 0, 2048);
    let frame = plain(mac(2), 100);
    assert_eq!(p.send_frame(&frame), Status::Success);
    assert_eq!(received(&mut p.b).expect("received").0, frame);
    for sniffer in &mut sniffers {
        assert_eq!(received(sniffer).expect("a copy").0, frame);
        assert!(received(sniffer).is_none());
    }
    // A frame that no adapter takes is copied where it leaves, and counted as lost there.
    let lost_before = p.ga.stats().tx_roce_discards.get();
    let lost = plain(mac(9), 100);
    assert_eq!(p.send_frame(&lost), Status::Success);
    assert_eq!(received(&mut sniffers[0]).expect("a copy").0, lost);
    assert!(received(&mut sniffers[1]).is_none());
    assert_eq!(p.ga.stats().tx_roce_discards.get(), lost_before + 1);
}

#[test]
fn packets_of_rdma_are_copied_in_both_directions() {
    let cable = Cable::new(1, Faults::default());
    let (mut a, mut b) = cable.connected(Setup::default(), |_| {});
    let mut sniffers = [sniffer(&a), sniffer(&b)];
    b.post_recv(1, &[b.sge(0, 100)]);
    a.fill(0, b"message");
    let send = Wr::new(Opcode::Send, &[a.sge(0, 7)]);
    let sent = cable.complete(&mut a, &send);
    assert_eq!(status(&sent), Status::Success);
    cable.settle();
    assert_eq!(status(&b.recv_cq.poll().expect("the receive")), Status::Success);
    for sniffer in &mut sniffers {
        let (request, _) = received(sniffer).expect("the request");
        assert_eq!((&request[..6], &request[6..12]), (&mac(2)[..], &mac(1)[..]));
        assert!(request.windows(7).any(|bytes| bytes == b"message"));
        let (ack, _) = received(sniffer).expect("the acknowledgement");
        assert_eq!((&ack[..6], &ack[6..12]), (&mac(1)[..], &mac(2)[..]));
        assert!(received(sniffer).is_none());
    }
}

#[test]
fn frames_of_the_network_card_are_copied_and_reach_it() {
    let p = Pair::raw();
    let mut sniffer = sniffer(&p.b);
    let [inbound, outbound] = [mac(2), mac(9)].map(|to| plain(to, 70));
    let offered = p.gb.adapter.offer(Frame::copy(&inbound));
    assert_eq!(offered, Offered::Other(Frame::copy(&inbound)));
    p.gb.adapter.sniff(&Frame::copy(&outbound));
    p.settle();
    for frame in [inbound, outbound] {
        assert_eq!(received(&mut sniffer).expect("a copy").0, frame);
    }
    assert!(received(&mut sniffer).is_none());
}

/// If the switch brings a frame again, the first offer gives it to no QP.
#[test]
fn a_frame_that_comes_by_the_switch_is_copied_once() {
    let cable = Cable::new(1, Faults::default());
    let guest = cable.world.guest(3);
    let other = endpoint(&guest);
    let mut sniffer = sniffer(&other);
    let mut a = endpoint(&cable.ga);
    let frame = plain(mac(3), 60);
    let wr = Wr::new(Opcode::Send, &[]).inline(&frame);
    assert_eq!(status(&cable.complete(&mut a, &wr)), Status::Success);
    cable.world.settle(&[&guest]);
    assert!(received(&mut sniffer).is_none(), "the network card comes after the switch");
    assert!(matches!(guest.adapter.offer(Frame::copy(&frame)), Offered::Other(_)));
    cable.world.settle(&[&guest]);
    assert_eq!(received(&mut sniffer).expect("a copy").0, frame);
    // A frame that a rule takes comes directly.
    other.add_flow(&rule(Kind::AllDefault)).expect("CREATE_FLOW");
    assert_eq!(status(&cable.complete(&mut a, &wr)), Status::Success);
    cable.world.settle(&[&guest]);
    assert_eq!(received(&mut sniffer).expect("a copy").0, frame);
    assert!(received(&mut sniffer).is_none());
}
