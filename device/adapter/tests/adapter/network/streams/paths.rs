//! TCP connections of QPs over paths with a smaller MTU than the networks at their ends.
//!
//! Shows: iwarp

use std::cell::RefCell;
use std::rc::Rc;

use vrnic_abi::cq::Status;
use vrnic_abi::sq::Opcode;
use vrnic_adapter::ethernet::{Frame, Joint};
use vrnic_packet::checksum::Sum;
use vrnic_roce::wire::build::FRAME_MAX;
use vrnic_simlink::{Fate, Faults};
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::stream;
use vrnic_testdriver::wr::Wr;

use crate::bus::Endpoint;
use crate::cable::Cable;

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// The MTU of the link behind the router.
const MTU: u16 = 1000;
/// Offset of the sequence number in a frame with IPv4.
const SEQ: usize = ETHERNET + 20 + 4;

/// Writes the checksum of bytes to this offset in them.
fn seal(bytes: &mut [u8], at: usize) {
    let sum = Sum::default().bytes(bytes).finish();
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Returns the ICMP message by which a router reports that a frame was too long.
fn notice(frame: &[u8], mtu: u16) -> Frame {
    let [high, low] = mtu.to_be_bytes();
    let mut icmp = [&[3, 4, 0, 0, 0, 0, high, low], &frame[ETHERNET..ETHERNET + 28]].concat();
    seal(&mut icmp, 2);
    let total = u8::try_from(20 + icmp.len()).expect("short");
    let mut ip = [0x45, 0, 0, total, 0, 0, 0, 0, 64, 1, 0, 0, 10, 9, 0, 9, 0, 0, 0, 0];
    ip[16..].copy_from_slice(&frame[ETHERNET + 12..ETHERNET + 16]);
    seal(&mut ip, 10);
    Frame::new([&frame[6..12], &[2, 0, 0, 0, 0, 9, 8, 0], &ip[..], &icmp].concat())
}

#[test]
fn segments_become_shorter_when_a_router_says_so() {
    const LEN: usize = 50_000;
    let cable = Cable::new(1, Faults::default());
    let (mut a, b) =
        (Endpoint::new(&cable.ga, Setup::default()), Endpoint::new(&cable.gb, Setup::default()));
    stream::connect_pair(&a, &b);
    // The frames that the router has dropped, and the length of the longest frame that it has not
    // dropped.
    let seen = Rc::new(RefCell::new((Vec::new(), 0)));
    let router = Rc::clone(&seen);
    cable.links[0].borrow_mut().rule(move |frame| {
        let (dropped, longest) = &mut *router.borrow_mut();
        if frame.len() > ETHERNET + usize::from(MTU) {
            dropped.push(frame.to_vec());
            return Fate::Drop;
        }
        *longest = frame.len().max(*longest);
        Fate::Pass
    });
    let data: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
    a.fill(0, &data);
    a.post_send(&Wr::new(Opcode::Write, &[a.sge(0, LEN as u32)]).to(b.buffer, b.key));
    cable.run_until(|| !seen.borrow().0.is_empty());
    let first = std::mem::take(&mut seen.borrow_mut().0).remove(0);

    // A forged ICMP message, about bytes that are not outstanding, has no effect.
    let mut forged = first.clone();
    forged[SEQ] ^= 0x40;
    for notice in [notice(&forged, 600), notice(&first, MTU)] {
        let kept = cable.ga.adapter.offer(notice.clone()).other();
        assert_eq!(kept.as_ref(), Some(&notice), "the guest's kernel gets the ICMP message, too");
    }
    let mut done = None;
    cable.run_until(|| {
        done = done.or_else(|| a.send_cq.poll());
        done.is_some()
    });
    assert_eq!(done.as_ref().map(status), Some(Status::Success));
    assert!(b.bytes(0, LEN) == data);
    assert_eq!(
        seen.borrow().1,
        ETHERNET + usize::from(MTU),
        "the longest segments have the new size"
    );
    assert!(seen.borrow().0.is_empty(), "no segment is longer");
}

#[test]
fn frames_are_not_longer_than_those_of_roce() {
    const LEN: usize = 50_000;
    let cable = Cable::new(1, Faults::default());
    let (mut a, b) =
        (Endpoint::new(&cable.ga, Setup::default()), Endpoint::new(&cable.gb, Setup::default()));
    // Kernels agree on this size with an MTU of 9000.
    stream::connect_pair_with(&a, &b, 8960);
    let longest = Rc::new(RefCell::new(0));
    let seen = Rc::clone(&longest);
    cable.links[0].borrow_mut().rule(move |frame| {
        let mut longest = seen.borrow_mut();
        *longest = frame.len().max(*longest);
        Fate::Pass
    });
    let data: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
    a.fill(0, &data);
    a.post_send(&Wr::new(Opcode::Write, &[a.sge(0, LEN as u32)]).to(b.buffer, b.key));
    let mut done = None;
    cable.run_until(|| {
        done = done.or_else(|| a.send_cq.poll());
        done.is_some()
    });
    assert_eq!(done.as_ref().map(status), Some(Status::Success));
    assert!(b.bytes(0, LEN) == data);
    let longest = *longest.borrow();
    assert!((4096..=FRAME_MAX).contains(&longest), "the longest frame has {longest} bytes");
}

#[test]
fn each_segment_of_a_frame_that_is_dropped_is_counted() {
    let cable = Cable::new(1, Faults::default());
    let (mut a, mut b) =
        (Endpoint::new(&cable.ga, Setup::default()), Endpoint::new(&cable.gb, Setup::default()));
    let last = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&last);
    cable.links[1].borrow_mut().rule(move |frame| {
        *seen.borrow_mut() = frame.to_vec();
        Fate::Pass
    });
    stream::connect_pair(&a, &b);
    let write = Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key);
    assert_eq!(status(&cable.complete(&mut a, &write)), Status::Success);
    let write = Wr::new(Opcode::Write, &[b.sge(0, 8)]).to(a.buffer, a.key);
    assert_eq!(status(&cable.complete(&mut b, &write)), Status::Success);
    let discards = || cable.ga.stats().rx_roce_discards.get();
    let before = discards();
    let frame = |fragment| {
        let mut bytes = last.borrow().clone();
        bytes[21] |= fragment;
        bytes.resize(54 + 20_000, 0);
        Frame::joined(bytes, Joint { headers: 54, segment: 9000 })
    };
    // The segments are too long, or not complete.
    assert!(cable.ga.adapter.offer(frame(0)).other().is_none());
    assert_eq!(discards(), before + 3);
    assert!(cable.ga.adapter.offer(frame(1)).other().is_none());
    assert_eq!(discards(), before + 6);
}
