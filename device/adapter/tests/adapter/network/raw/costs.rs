//! The work of sends that have no effect, frames that wait for room, and copies.
//!
//! Shows: raw

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vrnic_abi::cq::Status;
use vrnic_abi::flow::Kind;
use vrnic_abi::sq::{MIN_MSS, Opcode};
use vrnic_adapter::ethernet::{Frame, Uplink};
use vrnic_adapter::limits::MAX_FLOWS;
use vrnic_adapter::slice::SHORT_SLICE;
use vrnic_adapter::watch::Watcher;
use vrnic_packet::ip::Protocol;
use vrnic_packet::{MacAddr, ServiceFields};
use vrnic_testdriver::cq::status;
use vrnic_testdriver::flow::rule;
use vrnic_testdriver::wr::Wr;

use super::checksums::{segment, segment_of};
use super::frames::{Packet, mac, plain};
use super::sniffers::sniffer;
use super::{expect, received, setup, to_mac};
use crate::bus::Endpoint;
use crate::cable::Plug;
use crate::control::slices::{MAX_POLL_NS, settle};
use crate::host::Bar;
use crate::network::streams::pairs::Counter;
use crate::polls::{KINDS, Polls};
use crate::world::Pair;

/// Bytes of the data of a SEGMENT, which are cut into as many frames as possible.
const LEN: u32 = 30_000;
const FRAMES: u32 = LEN.div_ceil(MIN_MSS as u32);
/// The time after which a QP looks for room again.
const PAUSE: u64 = 10_000;

/// Returns a SEGMENT to B.
fn long(p: &Pair) -> Wr {
    let headers = Packet { protocol: Protocol::TCP, ..Packet::default() }.frame(b"");
    segment(p, &headers, MIN_MSS, LEN)
}

/// Sends SEGMENTs from A until there is no room at B, whose worker does not run.
fn fill(p: &mut Pair) {
    p.b.add_flow(&rule(Kind::AllDefault)).expect("CREATE_FLOW");
    let wr = long(p);
    for _ in 0..8 {
        p.a.post_send(&wr);
    }
    p.world.settle(&[&p.ga]);
    let mut sent = 0;
    while let Some(cqe) = p.sent() {
        assert_eq!(status(&cqe), Status::Success);
        sent += 1;
    }
    assert!((3..8).contains(&sent), "{sent} SEGMENTs were sent");
}

/// Returns QPs next to A's.
fn many(p: &Pair) -> Vec<Endpoint> {
    let qps = (0..40).map(|_| p.a.beside(|params| params.qp_type = setup().kind as u8));
    qps.inspect(Endpoint::ready_for_frames).collect()
}

#[test]
fn frames_by_a_closed_port_are_not_composed() {
    let mut p = Pair::raw();
    let wr = long(&p);
    p.ga.adapter.set_link(false);
    p.ga.host.restrict(p.a.buffer, LEN.into(), Bar::Unmapped);
    assert_eq!(status(&p.complete(&wr)), Status::Success);
    assert_eq!(p.ga.stats().tx_roce_discards.get(), u64::from(FRAMES));
}

#[test]
fn a_frame_that_waits_for_room_is_not_composed_again() {
    let mut p = Pair::raw();
    fill(&mut p);
    p.ga.host.restrict(p.a.buffer, LEN.into(), Bar::Unmapped);
    for _ in 0..10 {
        p.world.advance(PAUSE);
        p.world.settle(&[&p.ga]);
    }
    assert!(p.sent().is_none(), "there is no room");
    p.ga.host.unrestrict();
    for _ in 0..10 {
        p.world.advance(PAUSE);
        p.settle();
    }
    let left = std::iter::from_fn(|| p.sent()).map(|cqe| status(&cqe));
    let left: Vec<_> = left.collect();
    assert!(!left.is_empty() && left.iter().all(|status| *status == Status::Success), "{left:?}");
    assert_eq!(p.ga.stats().tx_pkts.get(), 8 * u64::from(FRAMES));
    assert_eq!(p.gb.stats().rx_raw_discards.get(), 8 * u64::from(FRAMES), "none has a receive");
}

#[test]
fn frames_that_find_no_room_are_charged() {
    let mut p = Pair::raw();
    fill(&mut p);
    let mut all = many(&p);
    let wr = long(&p);
    all.iter_mut().for_each(|qp| qp.post_send(&wr));
    p.take_time();
    p.ga.host.slow_memory();
    for _ in 0..50 {
        // The QPs look for room again and again, so that there is always work.
        let start = p.world.clock.load(Ordering::Acquire);
        p.ga.adapter.poll(0);
        let took = p.world.clock.load(Ordering::Acquire) - start;
        assert!(took <= MAX_POLL_NS, "a poll of {} µs", took / 1000);
    }
    assert!(all.iter().all(|qp| qp.send_cq.peek().is_none()));
}

#[test]
fn frames_that_cannot_be_read_are_charged() {
    let p = Pair::raw();
    let mut all = many(&p);
    p.ga.host.restrict(p.a.buffer + u64::from(LEN) - 1, 1, Bar::Unmapped);
    let mut wr = long(&p);
    wr.sges = vec![p.a.sge(0, LEN - 4096), p.a.sge(u64::from(LEN) - 4096, 4096)];
    all.iter_mut().for_each(|qp| qp.post_send(&wr));
    p.take_time();
    p.ga.host.slow_memory();
    settle(&p.world, &[&p.ga], "frames in bad memory", || {});
    for qp in &mut all {
        let failed = qp.send_cq.poll().expect("a completion");
        assert_eq!(status(&failed), Status::LocProtErr);
    }
}

/// Makes B do as much as possible for each frame that A sends.
fn slow_receivers(p: &Pair) -> Vec<Endpoint> {
    for _ in 0..MAX_FLOWS - 17 {
        p.b.add_flow(&to_mac(mac(9))).expect("CREATE_FLOW");
    }
    p.b.add_flow(&rule(Kind::AllDefault)).expect("CREATE_FLOW");
    (0..16).map(|_| sniffer(&p.b)).collect()
}

/// However many frames a work request has, and however much each of them costs, a poll ends soon
/// after its slice.
#[test]
fn a_long_segment_is_sent_in_portions() {
    /// Frames in the slice, and a portion after it.
    const MOST: u64 = 100;
    let mut p = Pair::raw();
    let _sniffers = slow_receivers(&p);
    let wr = long(&p);
    p.a.post_send(&wr);
    p.take_time();
    p.ga.host.slow_memory();
    let mut before = 0;
    for _ in 0..10 * FRAMES {
        p.ga.adapter.poll_for(0, SHORT_SLICE);
        let sent = p.ga.stats().tx_pkts.get();
        assert!(sent - before <= MOST, "{} frames in a poll", sent - before);
        before = sent;
        while p.gb.adapter.poll(0).busy {}
    }
    assert!(p.a.send_cq.peek().is_some(), "it has not completed");
    assert_eq!(before, u64::from(FRAMES));
}

/// Shows: raw: the longest portion of work of a long segment
#[test]
fn a_long_segment_exceeds_no_slice_for_long() {
    for kind in KINDS {
        let mut p = Pair::raw();
        let _sniffers = slow_receivers(&p);
        let wr = long(&p);
        p.a.post_send(&wr);
        let polls = Polls::new(&p.world.clock);
        polls.measure(&[&p.ga, &p.gb], kind);
        for _ in 0..10 * FRAMES {
            polls.poll(&p.ga);
            while polls.poll(&p.gb).busy {}
        }
        polls.check("a long SEGMENT");
        assert!(p.a.send_cq.peek().is_some(), "it has not completed");
    }
}

/// The frames of all portions together are those of the whole.
#[test]
fn portions_of_a_segment_make_a_whole() {
    const COUNT: u8 = 200;
    let mut p = Pair::to_all(COUNT);
    let data: Vec<u8> = (0..u32::from(COUNT) * u32::from(MIN_MSS) - 5).map(|at| at as u8).collect();
    p.a.fill(0, &data);
    let start = Packet { protocol: Protocol::TCP, ..Packet::default() }.frame(b"");
    let wr = segment(&p, &start, MIN_MSS, data.len() as u32);
    p.a.post_send(&wr);
    p.take_time();
    p.ga.host.slow_memory();
    for _ in 0..COUNT {
        p.ga.adapter.poll_for(0, SHORT_SLICE);
        while p.gb.adapter.poll(0).busy {}
    }
    assert_eq!(p.sent().map(|cqe| status(&cqe)), Some(Status::Success));
    let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
    let (id, seq, last) = (number(&start[18..20]), number(&start[38..42]), start[47]);
    let mut got: Vec<u8> = Vec::new();
    for nth in 0..COUNT {
        let (frame, _) = received(&mut p.b).expect("a frame");
        assert_eq!(number(&frame[18..20]), (id + u32::from(nth)) & 0xffff);
        let before = u32::from(nth) * u32::from(MIN_MSS);
        assert_eq!(number(&frame[38..42]), seq.wrapping_add(before));
        let ends = nth + 1 == COUNT;
        assert_eq!(frame[47], if ends { last } else { last & !9 }, "frame {nth}");
        got.extend(&frame[start.len()..]);
    }
    assert!(got == data);
}

/// A rule of one guest does not make the frames of another one slower.
#[test]
fn frames_of_functions_without_rules_for_faults_are_not_watched() {
    let mut p = Pair::raw();
    let frames = Arc::new(Counter::default());
    p.world.fabric.watch.attach(Arc::clone(&frames) as Arc<dyn Watcher>);
    p.world.rule("drop function=f2 opcode=rc-write-only");
    p.world.fabric.watch.want_frames(true);
    let wr = |to| Wr::new(Opcode::Send, &[]).inline(&plain(mac(to), 60));
    p.a.post_send(&wr(2));
    p.settle();
    assert_eq!(frames.0.load(Ordering::Relaxed), 0, "frames of the other function");
    p.b.post_send(&wr(1));
    p.settle();
    assert_eq!(frames.0.load(Ordering::Relaxed), 1, "frames of the function of the rule");
}

/// An uplink that takes joined frames.
#[derive(Debug, Default)]
struct Joining(Plug);

impl Uplink for Joining {
    fn send(&self, source: MacAddr, frames: &mut Vec<Frame>) {
        self.0.send(source, frames);
    }

    fn room(&self, source: MacAddr, service: ServiceFields) -> usize {
        self.0.room(source, service)
    }

    fn joins(&self) -> bool {
        true
    }
}

/// A rule of one guest does not keep the segments of another one apart.
#[test]
fn segments_of_functions_without_rules_for_faults_are_joined() {
    const MSS: u16 = 1000;
    let mut p = Pair::raw();
    let plug = Plug::default();
    p.world.fabric.attach(Arc::new(Joining(plug.clone())));
    p.world.fabric.watch.attach(Arc::new(Counter::default()) as Arc<dyn Watcher>);
    p.world.rule("drop function=f2 opcode=rc-write-only");
    p.world.fabric.watch.want_frames(true);
    let outside = Packet { to: mac(9), protocol: Protocol::TCP, ..Packet::default() }.frame(b"");
    let mut leave = |own: u8| {
        let mut headers = outside.clone();
        headers[6..12].copy_from_slice(&mac(own));
        let end = if own == 1 { &mut p.a } else { &mut p.b };
        let sges = vec![end.sge(0, LEN)];
        let wr = Wr { sges, ..segment_of(&headers, MSS) };
        end.post_send(&wr);
        p.world.settle(&[&p.ga, &p.gb]);
        plug.waiting.lock().drain(..).count()
    };
    assert_eq!(leave(1), 1, "frames of the other function");
    assert_eq!(leave(2), LEN.div_ceil(MSS.into()) as usize, "frames of the function of the rule");
}

/// Shows: network: a paused class of an adapter
#[test]
fn frames_of_a_paused_class_wait() {
    let mut p = Pair::raw();
    let plug = Plug::default();
    p.world.fabric.attach(Arc::new(plug.clone()));
    p.world.fabric.use_switch(true);
    plug.pause(Some(26));
    for (dscp, end) in [(26, &mut p.a), (0, &mut p.b)] {
        let mut frame = plain(mac(9), 60);
        frame[12..16].copy_from_slice(&[8, 0, 0x45, dscp << 2]);
        end.post_send(&Wr::new(Opcode::Send, &[]).inline(&frame));
    }
    let left = |p: &Pair| -> Vec<u8> {
        p.world.settle(&[&p.ga, &p.gb]);
        plug.waiting.lock().drain(..).map(|frame| frame.bytes()[15] >> 2).collect()
    };
    assert_eq!(left(&p), [0]);
    plug.pause(None);
    p.world.clock.fetch_add(PAUSE, Ordering::AcqRel);
    assert_eq!(left(&p), [26]);
}

/// A frame costs its sender the rules with which it is compared.
#[test]
fn comparisons_with_rules_are_charged() {
    let spent = |prepare: &dyn Fn(&Pair)| {
        let mut p = Pair::raw();
        prepare(&p);
        p.a.post_send(&Wr::new(Opcode::Send, &[]).inline(&plain(mac(2), 60)));
        p.ga.adapter.poll(0).spent
    };
    let plainly = spent(&|_| {});
    let compared = spent(&|p| drop(slow_receivers(p)));
    // 16 copies, and 239 comparisons, of which 32 cost as much as a copy.
    assert!(compared >= plainly + (16 + 239 / 32) * 150, "{compared} ns instead of {plainly}");
}

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
