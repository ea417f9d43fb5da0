//! What segments may have: urgent data, marks of congestion, great lengths, selective
//! acknowledgements; and the probes of idle connections.
//!
//! Shows: tcp

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use vrnic_abi::connection::{Ending, Stage};
use vrnic_abi::cq::Status;
use vrnic_abi::qp::State;
use vrnic_adapter::ethernet::Frame;
use vrnic_simlink::{Fate, Faults};
use vrnic_tcp::wire::Flags;
use vrnic_tcp::wire::frame::Frame as TcpFrame;

use super::{cable, connected, pass, received, segment, send, sent};
use crate::cable::Cable;
use crate::network::streams::ends::{ending, lose, reach, stage};
use crate::network::streams::pattern;

const MS: u64 = 1_000_000;

/// Calls `visit` for each segment of an end.
fn watch(cable: &Cable, number: usize, mut visit: impl FnMut(&TcpFrame<'_>) -> Fate + 'static) {
    cable.links[number].borrow_mut().rule(move |bytes| {
        TcpFrame::parse(bytes).ok().flatten().map_or(Fate::Pass, |frame| visit(&frame))
    });
}

/// Urgent data has no meaning of its own: its bytes are in the stream, at their places.
#[test]
fn urgent_bytes_are_bytes_of_the_stream() {
    let cable = cable(1, Faults::default());
    let (_a, mut b) = connected(&cable, false);
    b.post_recv(1, &[b.sge(0, 9)]);
    for (at, flags, bytes) in [(0, Flags::URG, b"urgent"), (6, Flags::URG | Flags::PSH, b"behind")]
    {
        let frame = segment(&cable, 0, at, 0, flags, bytes);
        let _taken = cable.gb.adapter.offer(Frame::new(frame));
    }
    assert_eq!((received(&cable, &mut b), b.bytes(0, 9)), (9, b"urgentbeh".to_vec()));
    assert_eq!(b.state(), State::Rts);
}

/// The connection has not agreed on ECN: marks of routers and the flags of a peer have no effect,
/// and nothing that the adapter sends has either.
#[test]
fn marks_of_congestion_are_ignored() {
    let cable = cable(2, Faults::default());
    let (mut a, mut b) = connected(&cable, false);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let all = Rc::clone(&seen);
    watch(&cable, 1, move |frame| {
        all.borrow_mut().push((frame.path.traffic_class & 3, frame.segment.header.flags));
        Fate::Pass
    });
    b.fill(0, &pattern(100_000, 2));
    a.post_recv(1, &[a.sge(0, 100_000)]);
    send(&mut b, 0, 100_000);
    assert_eq!((received(&cable, &mut a), sent(&cable, &mut b)), (100_000, Status::Success));
    assert!(a.bytes(0, 100_000) == pattern(100_000, 2));
    let before = seen.borrow().len();
    assert!(before > 50, "{before} segments");
    b.post_recv(1, &[b.sge(0, 4)]);
    let mut marked = segment(&cable, 0, 0, 0, Flags::ECE | Flags::CWR, b"data");
    // The type of service says that a router has marked it. The sum of the IPv4 header follows.
    marked[15] = 3;
    marked[24..26].fill(0);
    let sum = header_sum(&marked[14..34]);
    marked[24..26].copy_from_slice(&sum.to_be_bytes());
    let _taken = cable.gb.adapter.offer(Frame::new(marked));
    assert_eq!((received(&cable, &mut b), b.bytes(0, 4)), (4, b"data".to_vec()));
    send(&mut b, 0, 8);
    pass(&cable, 10 * MS);
    let seen = seen.borrow();
    assert!(seen.len() > before + 1, "its acknowledgement, and data");
    let plain = |&(class, flags): &(u8, Flags)| {
        class == 0 && !flags.intersects(Flags::ECE | Flags::CWR | Flags::URG)
    };
    assert!(seen.iter().all(plain));
}

/// Returns the checksum of an IPv4 header (RFC 791).
fn header_sum(header: &[u8]) -> u16 {
    let words = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    !(((sum & 0xffff) + (sum >> 16)) as u16)
}

/// The kernel may have agreed on segments as long as its network's MTU.
#[test]
fn segments_of_jumbo_frames_are_received() {
    let cable = cable(3, Faults::default());
    let (_a, mut b) = connected(&cable, false);
    let data = pattern(8960 + 65_000, 3);
    b.post_recv(1, &[b.sge(0, 70_000)]);
    b.post_recv(2, &[b.sge(100_000, 3960)]);
    for (at, bytes) in [(8960, &data[8960..]), (0, &data[..8960])] {
        let frame = segment(&cable, 0, at, 0, Flags::empty(), bytes);
        let _taken = cable.gb.adapter.offer(Frame::new(frame));
    }
    assert_eq!((received(&cable, &mut b), received(&cable, &mut b)), (70_000, 3960));
    assert!(b.bytes(0, 70_000) == data[..70_000] && b.bytes(100_000, 3960) == data[70_000..]);
    assert_eq!(cable.gb.stats().rx_roce_discards.get(), 0);
}

/// Each end reports what has arrived after a gap, and sends only what is missing again, without
/// the wait of a time-out.
#[test]
fn both_ends_acknowledge_selectively() {
    let cable = cable(4, Faults::default());
    let (mut a, mut b) = connected(&cable, false);
    let counts = Rc::new(RefCell::new([(0, 0); 2]));
    for number in 0..2 {
        let counts = Rc::clone(&counts);
        let mut data = 0;
        watch(&cable, number, move |frame| {
            let (lost, blocks) = &mut counts.borrow_mut()[number];
            *blocks += usize::from(!frame.segment.header.options.sack.is_empty());
            data += usize::from(!frame.segment.payload.is_empty());
            let fresh = data % 40 == 20 && *lost < 5 && !frame.segment.payload.is_empty();
            *lost += u64::from(fresh);
            if fresh { Fate::Drop } else { Fate::Pass }
        });
    }
    for (end, seed) in [(&mut a, 1), (&mut b, 2)] {
        end.fill(0, &pattern(400_000, seed));
        end.post_recv(1, &[end.sge(1_000_000, 400_000)]);
        send(end, 0, 400_000);
    }
    for (end, seed) in [(&mut a, 2), (&mut b, 1)] {
        assert_eq!(received(&cable, end), 400_000);
        assert!(end.bytes(1_000_000, 400_000) == pattern(400_000, seed));
        assert_eq!(sent(&cable, end), Status::Success);
    }
    for (guest, (lost, blocks)) in [&cable.ga, &cable.gb].into_iter().zip(*counts.borrow()) {
        assert!(lost == 5 && blocks > 0, "{lost} lost, {blocks} segments with SACK");
        let stats = guest.stats();
        assert_eq!((stats.tcp_retrans_segs.get(), stats.tcp_timeouts.get()), (lost, 0));
    }
}

/// An idle connection stays while its peer answers probes, and ends when it does not.
#[test]
fn an_idle_stream_ends_when_its_peer_answers_no_probe() {
    const IDLE: u64 = 5_000 * MS;
    let cable = cable(5, Faults::default());
    let guests = [&cable.ga, &cable.gb];
    guests.iter().for_each(|it| it.adapter.set_keepalive(Some(Duration::from_nanos(IDLE))));
    let (a, b) = connected(&cable, false);
    pass(&cable, 1000 * MS);
    let before = guests.map(|guest| guest.stats().tx_pkts.get());
    pass(&cable, 12 * IDLE);
    for (guest, before) in guests.iter().zip(before) {
        let sent = guest.stats().tx_pkts.get() - before;
        assert!((12..=24).contains(&sent), "{sent} probes and answers");
    }
    assert_eq!([stage(&a), stage(&b)], [Stage::Open; 2]);
    lose(&cable, true);
    let cut = cable.now();
    for end in [&a, &b] {
        reach(&cable, end, Stage::Gone);
        assert_eq!((ending(end), end.state()), (Ending::TimedOut, State::Err));
    }
    assert!((9 * IDLE..=10 * IDLE).contains(&(cable.now() - cut)));
}
