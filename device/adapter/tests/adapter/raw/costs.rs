//! Copies for sniffers.

use vrnic_abi::cq::Status;
use vrnic_abi::sq::Opcode;
use vrnic_adapter::ethernet::Frame;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::wr::Wr;

use super::frames::{mac, plain};
use super::sniffers::sniffer;
use super::{expect, received, to_mac};
use crate::world::Pair;

/// Sniffers may lose their copies, and nothing else may be lost because of them.
#[test]
fn copies_leave_room_for_frames() {
    let mut p = Pair::raw();
    p.b.add_flow(&to_mac(mac(2))).expect("CREATE_FLOW");
    expect(&mut p.b, 0, 500);
    let mut sniffers: Vec<_> = (0..16).map(|_| sniffer(&p.b)).collect();
    let leaves = plain(mac(9), 100);
    for _ in 0..1000 {
        p.gb.adapter.sniff(&Frame::copy(&leaves));
    }
    assert!(p.gb.adapter.has_frame_room());
    let frame = plain(mac(2), 60);
    p.a.post_send(&Wr::new(Opcode::Send, &[]).inline(&frame));
    p.world.settle(&[&p.ga]);
    assert_eq!(p.sent().map(|cqe| status(&cqe)), Some(Status::Success));
    p.settle();
    assert_eq!(received(&mut p.b).expect("the frame").0, frame);
    for sniffer in &mut sniffers {
        assert_eq!(received(sniffer).expect("an early copy").0, leaves);
    }
    assert!(p.gb.stats().rx_raw_discards.get() > 14_000, "the others are counted");
}
