//! Tests that frames that are joined and cut again do not change.
//!
//! Shows: network

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use proptest::prelude::*;
use vrnic_adapter::ethernet::{self, Joint, SEGMENT_MIN};
use vrnic_adapter::log_ratelimit::Limiter;
use vrnic_control_api::port_view::Kind;
use vrnic_packet::ethernet::HEADER_LEN;
use vrnic_packet::ip::{self, Addresses};
use vrnic_packet::pool::Buffer;
use vrnic_packet::segments::cut::{NotCut, cut};
use vrnic_packet::segments::headers::{FIRST, LAST, SegmentHeaders};
use vrnic_packet::{Ethernet, MacAddr, Nanos};
use vrnic_roce::psn::Psn;
use vrnic_roce::wire::body::{Body, Part, Request};
use vrnic_roce::wire::build::{FRAME_MAX, Layout, Path};
use vrnic_roce::wire::headers::Reth;
use vrnic_roce::wire::numbers::{Qpn, Rkey};
use vrnic_roce::wire::opcode::Transport;
use vrnic_roce::wire::packet::Head;
use vrnic_tcp::SeqNum;
use vrnic_tcp::wire::frame::{self, HEADROOM};
use vrnic_tcp::wire::{Flags, Header, Options, Timestamps};

use super::arrival::take_joined;
use super::cut::each_of;
use super::join::{Joined, cut_first};
use crate::net::account::{Account, LIMIT};
use crate::net::frame::Frame;
use crate::net::line::Log;
use crate::net::queue::SendQueue;
use crate::net::status::PortStatus;
use crate::net::uplinks::offload::{self, HEADER, Offload};

const V4: Addresses =
    Addresses::V4 { source: Ipv4Addr::new(10, 9, 0, 1), destination: Ipv4Addr::new(10, 9, 0, 2) };
const V6: Addresses =
    Addresses::V6 { source: Ipv6Addr::LOCALHOST, destination: Ipv6Addr::LOCALHOST };

/// The packets of a WRITE as an adapter makes them.
struct Message {
    addresses: Addresses,
    vlan: Option<u16>,
    psn: u32,
    mtu: usize,
}

impl Message {
    /// Frames of packets, the last of which has `last` bytes.
    fn frames(&self, packets: usize, last: usize) -> Vec<Frame> {
        let part = |nth| match nth {
            0 => Part::First(Reth { addr: 0x1000, key: Rkey(7), length: 1 << 20 }),
            nth if nth + 1 == packets => Part::Last(None),
            _ => Part::Middle,
        };
        let len = |nth| if nth + 1 == packets { last } else { self.mtu };
        (0..packets).map(|nth| self.frame(nth, part(nth), len(nth))).collect()
    }

    fn frame(
        &self,
        nth: usize,
        part: Part<Reth, Option<vrnic_roce::wire::headers::Imm>>,
        len: usize,
    ) -> Frame {
        let ethernet =
            Ethernet { destination: MacAddr([2; 6]), source: MacAddr([4; 6]), vlan: self.vlan };
        let network = ip::Header {
            addresses: self.addresses,
            traffic_class: 2,
            hop_limit: 64,
            flow_label: 0,
        };
        let path = Path { ethernet, network, source_port: 0xc000 };
        let psn = Psn::new(self.psn).plus(u32::try_from(nth).expect("small"));
        let head = Head::new(Transport::Rc, Qpn::new(9), psn);
        let mut buffer = vec![0; FRAME_MAX];
        let body = Body::Request(Request::Write(part));
        let layout = Layout::write(&mut buffer, &path, &head, &body, len).expect("room");
        buffer[layout.payload()].fill(u8::try_from(nth % 251).expect("small"));
        let end = layout.seal(&mut buffer).expect("room");
        buffer.truncate(end);
        Frame::new(buffer).expect("a frame")
    }
}

/// Joins all frames as for the kernel, and cuts them as the kernel does. Returns the frames, and
/// how many of them were joined each time.
fn there_and_back(frames: &[Frame]) -> (Vec<Vec<u8>>, Vec<usize>) {
    let mut queue = SendQueue::new(1 << 30);
    assert!(frames.iter().all(|frame| queue.push(frame.clone(), None)));
    let (mut back, mut counts) = (Vec::new(), Vec::new());
    while !queue.is_empty() {
        let next = Joined::next(&queue, true).expect("a frame");
        let bytes: Vec<u8> = next.slices(true).iter().flat_map(|slice| slice.to_vec()).collect();
        let (header, bytes) = bytes.split_first_chunk::<HEADER>().expect("a header");
        match Offload::from_bytes(*header).segment() {
            Some(segment) => {
                cut(bytes, segment, |frame| back.push(frame.bytes().to_vec())).expect("a datagram")
            }
            None => back.push(bytes.to_vec()),
        }
        counts.push(next.frames());
        let count = next.frames();
        drop(next);
        queue.remove(count);
    }
    (back, counts)
}

#[test]
fn packets_of_a_message_are_joined() {
    for addresses in [V4, V6] {
        // The first packet has a header that the others do not have, so the second one is shorter.
        // The identification starts again at zero in between.
        let message = Message { addresses, vlan: None, psn: 0xff_fffa, mtu: 4096 };
        let frames = message.frames(40, 100);
        let (back, counts) = there_and_back(&frames);
        assert!(frames.iter().map(Frame::bytes).eq(back.iter().map(Vec::as_slice)));
        assert_eq!(counts, [2, 15, 15, 8], "{addresses:?}");
        // Joins no more short packets than older kernels can cut.
        let message = Message { addresses, vlan: None, psn: 7, mtu: 256 };
        let (_, counts) = there_and_back(&message.frames(100, 256));
        assert_eq!(counts, [2, 64, 34]);
    }
}

#[test]
fn what_the_kernel_would_change_is_not_joined() {
    let message = Message { addresses: V4, vlan: None, psn: 7, mtu: 256 };
    let frames = message.frames(4, 256);
    let stays_single = |change: &dyn Fn(&mut Vec<u8>), completes: bool| {
        let mut frames = frames[1..3].to_vec();
        let mut bytes = frames[1].bytes().to_vec();
        change(&mut bytes);
        if let Some(at) = SegmentHeaders::find(&bytes).filter(|_| completes) {
            let id = at.id(&bytes).expect("IPv4");
            at.set_id(&mut bytes, id).expect("room");
        }
        frames[1] = Frame::new(bytes).expect("a frame");
        let (back, counts) = there_and_back(&frames);
        assert!(frames.iter().map(Frame::bytes).eq(back.iter().map(Vec::as_slice)));
        counts == [1, 1]
    };
    assert!(!stays_single(&|_| (), true));
    // The station, the traffic class, the length, the identification, the fragment, the address,
    // the port, the length of UDP, its checksum; bytes behind the end.
    for at in [3, 15, 17, 19, 21, 30, 34, 39, 41] {
        assert!(stays_single(&|bytes| bytes[at] ^= 1, true), "byte {at}");
    }
    // The checksum of IPv4.
    for at in [24, 25] {
        assert!(stays_single(&|bytes| bytes[at] ^= 1, false), "byte {at}");
    }
    assert!(stays_single(&|bytes| bytes.push(0), true));
    let tagged = Message { vlan: Some(5), ..message };
    assert_eq!(there_and_back(&tagged.frames(4, 256)).1, [1; 4]);
}

#[test]
fn long_frames_that_are_no_datagrams_are_refused() {
    let message = Message { addresses: V4, vlan: None, psn: 7, mtu: 1024 };
    let frame = message.frames(1, 1000).remove(0).bytes().to_vec();
    let refused = |frame: &[u8], segment| cut(frame, segment, |_| ()).is_err();
    assert!(!refused(&frame, 500));
    assert!(refused(&frame, 0), "segments without data");
    assert!(refused(&frame, 3), "more frames than anybody sends");
    assert!(refused(&frame[..41], 500));
    let mut other = frame.clone();
    other[23] = 132;
    assert_eq!(cut(&other, 500, |_| ()), Err(NotCut::Kind));
    let mut fragment = frame;
    fragment[20] |= 0x20;
    assert!(refused(&fragment, 500));
}

/// Datagrams that are not RoCE get a checksum.
#[test]
fn other_datagrams_get_checksums() {
    let message = Message { addresses: V4, vlan: None, psn: 7, mtu: 1024 };
    let mut frame = message.frames(1, 1000).remove(0).bytes().to_vec();
    frame[36] ^= 0x40;
    let mut count = 0;
    cut(&frame, 300, |frame| {
        let frame = frame.bytes();
        assert_ne!(frame[40..42], [0, 0]);
        let packet = ip::Packet::v4(&frame[HEADER_LEN..]).expect("a header");
        assert_eq!(packet.checksum(), 0);
        count += 1;
    })
    .expect("a datagram");
    assert_eq!(count, 4);
}

/// Segments of a TCP connection, `last` bytes in the last one, which has PSH.
fn stream(v6: bool, number: u32, lens: &[usize]) -> Vec<Frame> {
    let address = |last, port| match v6 {
        false => SocketAddr::from(([10, 9, 0, last], port)),
        true => SocketAddr::new(Ipv6Addr::from_bits(last.into()).into(), port),
    };
    let path = frame::Path {
        to: MacAddr([2; 6]),
        from: MacAddr([4; 6]),
        vlan: None,
        source: address(1, 4000),
        destination: address(2, 5000),
        traffic_class: 0,
        hop_limit: 64,
    };
    let (mut at, mut frames) = (number, Vec::new());
    for (nth, len) in lens.iter().enumerate() {
        let mut buffer = vec![0; HEADROOM + len];
        buffer[HEADROOM..].fill(u8::try_from(nth % 251).expect("small"));
        let last = if nth + 1 == lens.len() { Flags::PSH } else { Flags::empty() };
        let timestamps = Some(Timestamps { value: 7, echo: 9 });
        let header = Header {
            seq: SeqNum(at),
            ack: SeqNum(1),
            flags: Flags::ACK | last,
            window: 500,
            options: Options { timestamps, ..Options::default() },
        };
        let id = 0xfff0_u16.wrapping_add(u16::try_from(nth).expect("small"));
        let range = frame::build(&path, id, &header, &mut buffer, *len).expect("room");
        frames.push(Frame::new(buffer[range].to_vec()).expect("a frame"));
        at = at.wrapping_add(u32::try_from(*len).expect("small"));
    }
    frames
}

#[test]
fn segments_of_a_connection_are_joined() {
    for v6 in [false, true] {
        // The number starts again at zero in between. A short segment ends a message.
        let lens = [&[4096; 33][..], &[340], &[4096; 5], &[100]].concat();
        let frames = stream(v6, 0xffff_f000, &lens);
        let (back, counts) = there_and_back(&frames);
        assert!(frames.iter().map(Frame::bytes).eq(back.iter().map(Vec::as_slice)));
        assert_eq!(counts, [15, 15, 4, 6], "IPv6: {v6}");
    }
}

#[test]
fn segments_that_the_kernel_would_change_are_not_joined() {
    let frames = stream(false, 7, &[1000; 3]);
    let counts = |change: &dyn Fn(&mut Vec<u8>), completes: bool| {
        let mut frames = frames.clone();
        let mut bytes = frames[1].bytes().to_vec();
        change(&mut bytes);
        if completes {
            SegmentHeaders::find(&bytes).expect("TCP").complete(&mut bytes).expect("room");
        }
        frames[1] = Frame::new(bytes).expect("a frame");
        let (back, counts) = there_and_back(&frames);
        assert!(frames.iter().map(Frame::bytes).eq(back.iter().map(Vec::as_slice)));
        counts
    };
    assert_eq!(counts(&|_| (), true), [3]);
    // The checksum of IPv4, and a byte of the data, whose checksum is then wrong.
    for at in [24, 25, 500] {
        assert_eq!(counts(&|bytes| bytes[at] ^= 1, false), [1, 1, 1], "byte {at}");
    }
    // The number, the acknowledgement, the window, the urgent pointer, a timestamp.
    for at in [41, 45, 49, 53, 60] {
        assert_eq!(counts(&|bytes| bytes[at] ^= 1, true), [1, 1, 1], "byte {at}");
    }
    for flag in [0x02, 0x04, 0x20, 0x40, 0x80] {
        assert_eq!(counts(&|bytes| bytes[47] |= flag, true), [1, 1, 1], "flag {flag:#x}");
    }
    // FIN and PSH end a series.
    for flag in [0x01, 0x08] {
        assert_eq!(counts(&|bytes| bytes[47] |= flag, true), [2, 1], "flag {flag:#x}");
    }
}

#[test]
fn the_kernel_s_segments_are_cut() {
    let mut whole = stream(true, 5, &[1000]).remove(0).bytes().to_vec();
    let at = SegmentHeaders::find(&whole).expect("TCP");
    at.set_flags(&mut whole, 0x10 | LAST | FIRST).expect("room");
    let mut flags = Vec::new();
    cut(&whole, 300, |frame| {
        let frame = frame.bytes();
        assert!(at.is_right(frame) && at.fits(frame, frame.len()));
        flags.push((at.number(frame).expect("a number"), at.flags(frame).expect("flags")));
    })
    .expect("a segment");
    assert_eq!(flags, [(5, 0x90), (305, 0x10), (605, 0x10), (905, 0x19)]);
    assert_eq!(cut(&whole, 20, |_| ()), Err(NotCut::Kind), "too many frames");
}

#[test]
fn no_segment_gets_the_right_checksum_of_ip_instead_of_a_wrong_one() {
    let whole = stream(false, 5, &[1000]).remove(0).bytes().to_vec();
    let header = |segment: u16| {
        let at = SegmentHeaders::find(&whole).expect("TCP");
        let kind = offload::Kind::TcpV4;
        let offload = Offload::segments(kind, at.transport, 16, at.data, segment.into());
        offload.expect("small").to_bytes()
    };
    // Left joined, and cut.
    for segment in [300, 200] {
        assert!(!arrive(&[&header(segment)[..], &whole].concat()).is_empty());
        for at in [24, 25] {
            let mut wrong = whole.clone();
            wrong[at] ^= 1;
            assert_eq!(arrive(&[&header(segment)[..], &wrong].concat()), [], "byte {at}");
            assert_eq!(cut(&wrong, segment.into(), |_| ()), Err(NotCut::Header));
        }
    }
}

#[test]
fn short_segments_from_the_kernel_are_cut() {
    let whole = stream(false, 5, &[1000]).remove(0).bytes().to_vec();
    let at = SegmentHeaders::find(&whole).expect("TCP");
    for (segment, counts) in [(SEGMENT_MIN, &[4][..]), (SEGMENT_MIN - 1, &[1; 4])] {
        let kind = offload::Kind::TcpV4;
        let offload = Offload::segments(kind, at.transport, 16, at.data, segment);
        let header = offload.expect("small").to_bytes();
        let frames = arrive(&[&header[..], &whole].concat());
        assert!(frames.iter().map(Frame::count).eq(counts.iter().copied()));
    }
}

/// A frame that cannot be cut is lost, and the one after it is cut nevertheless.
#[test]
fn joined_frames_that_cannot_pass_are_lost() {
    let good = stream(false, 5, &[1000]).remove(0).bytes().to_vec();
    let headers = SegmentHeaders::find(&good).expect("TCP").data;
    let joined = |bytes: &[u8]| {
        let joint = Joint { headers: headers.try_into().expect("small"), segment: 300 };
        Frame::try_from(ethernet::Frame::joined(bytes.to_vec(), joint)).expect("a frame")
    };
    let mut bad = good.clone();
    bad[23] = 132;
    let queue = || {
        let mut queue = SendQueue::new(1 << 20);
        assert!(queue.push(joined(&bad), None) && queue.push(joined(&good), None));
        queue
    };
    let mut cuts = queue();
    assert_eq!(cut_first(&mut cuts, false), 4);
    assert!(cuts.frames().map(Frame::count).eq([1; 4]));
    let mut joins = queue();
    assert_eq!(cut_first(&mut joins, true), 4);
    assert!(joins.frames().map(Frame::count).eq([4]));
    assert_eq!(Joined::next(&joins, true).map(|next| next.frames()), Some(4));
}

/// Reads bytes as from a TAP device, and leaves segments joined.
fn arrive(bytes: &[u8]) -> Vec<Frame> {
    let (status, limiter) = (PortStatus::new("up", Kind::Tap), Limiter::default());
    let mut frames = Vec::new();
    let log = Log::new(&status, &limiter);
    take_joined(&mut Buffer::exact(bytes), bytes.len(), &mut frames, &log);
    frames
}

/// Returns the bytes of the frames that a frame stands for.
fn cut_up(frame: &Frame) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    each_of(frame.clone(), |piece| pieces.push(piece.bytes().to_vec())).expect("joined segments");
    pieces
}

#[test]
fn joined_segments_stay_joined_until_a_line_needs_single_ones() {
    for v6 in [false, true] {
        let lens = [&[4096; 14][..], &[340]].concat();
        let frames = stream(v6, 0xffff_f000, &lens);
        let singles: Vec<_> = frames.iter().map(|frame| frame.bytes().to_vec()).collect();
        let mut queue = SendQueue::new(1 << 20);
        assert!(frames.iter().all(|frame| queue.push(frame.clone(), None)));
        let bytes = |queue: &SendQueue| {
            let next = Joined::next(queue, true).expect("a frame");
            assert_eq!(next.frames(), 15);
            (
                next.slices(true).iter().flat_map(|slice| slice.to_vec()).collect::<Vec<u8>>(),
                next.entries(),
            )
        };
        let (written, entries) = bytes(&queue);
        assert_eq!(entries, 15);
        // The kernel may leave any checksum.
        let mut read = written.clone();
        let checksum = HEADER + SegmentHeaders::find(&read[HEADER..]).expect("TCP").transport + 16;
        read[checksum] ^= 0x55;
        let [whole] = &arrive(&read)[..] else { panic!("one frame") };
        assert_eq!((whole.count(), whole.longest()), (15, singles[0].len()));
        assert_eq!(whole.total(), singles.iter().map(Vec::len).sum::<usize>());
        assert!(cut_up(whole) == singles);
        // The joined frame leaves as it came.
        let mut queue = SendQueue::new(1 << 20);
        let account = Arc::new(Account::default());
        assert!(queue.push(whole.clone(), Some(account.charge(LIMIT))));
        assert!(queue.push(frames[0].clone(), None));
        assert!(bytes(&queue) == (written, 1));
        // The line has refused it, and gets single frames.
        assert_eq!(cut_first(&mut queue, false), 0);
        assert!(queue.frames().take(15).map(Frame::bytes).eq(singles.iter().map(Vec::as_slice)));
        queue.remove(14);
        assert_eq!(
            (account.room(1, Nanos(5)), cut_first(&mut queue, false)),
            (0, 0),
            "the last one is left"
        );
        queue.remove(1);
        assert_eq!(account.room(1, Nanos(5)), LIMIT);
        assert_eq!(queue.frames().count(), 1);
    }
}

proptest! {
    #[test]
    fn any_bytes_from_the_kernel_are_survived(
        gso in prop_oneof![Just(1u8), Just(4), Just(5), any::<u8>()],
        segment in 0..500u16,
        at in 0..80usize,
        byte in any::<u8>(),
        len in 0..1066usize,
    ) {
        let mut frame = stream(gso == 4, 9, &[1000]).remove(0).bytes().to_vec();
        frame[at] = byte;
        let [low, high] = segment.to_ne_bytes();
        let bytes = [&[1, gso, 0, 0, low, high, 0, 0, 0, 0][..], &frame[..len]].concat();
        for frame in arrive(&bytes) {
            prop_assert!(frame.count() <= 600 && frame.bytes().len() <= len);
            prop_assert_eq!(cut_up(&frame).len(), frame.count());
        }
    }

    #[test]
    fn any_segments_come_back_as_they_were(
        v6 in any::<bool>(),
        number in any::<u32>(),
        lens in proptest::collection::vec(prop_oneof![Just(0usize), Just(400), 1..400usize], 1..100),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), 0..90usize, any::<u8>()), 0..4),
    ) {
        let mut frames = stream(v6, number, &lens);
        for (which, at, byte) in damage {
            let which = which.index(frames.len());
            let mut bytes = frames[which].bytes().to_vec();
            if let Some(changed) = bytes.get_mut(at) {
                *changed = byte;
            }
            frames[which] = Frame::new(bytes).expect("a frame");
        }
        let (back, _) = there_and_back(&frames);
        prop_assert_eq!(back.len(), frames.len());
        for (nth, (frame, back)) in frames.iter().zip(&back).enumerate() {
            prop_assert!(frame.bytes() == &**back, "frame {}", nth);
        }
    }

    #[test]
    fn any_frames_come_back_as_they_were(
        v6 in any::<bool>(),
        psn in 0..0x100_0000u32,
        messages in proptest::collection::vec((1..70usize, 1..=256usize), 1..4),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), 0..64usize, any::<u8>()), 0..4),
    ) {
        let mut frames = Vec::new();
        let mut psn = psn;
        for (packets, last) in messages {
            let addresses = if v6 { V6 } else { V4 };
            let message = Message { addresses, vlan: None, psn, mtu: 256 };
            frames.extend(message.frames(packets, last));
            psn += u32::try_from(packets).expect("small");
        }
        for (which, at, byte) in damage {
            let which = which.index(frames.len());
            let mut bytes = frames[which].bytes().to_vec();
            bytes[at] = byte;
            frames[which] = Frame::new(bytes).expect("a frame");
        }
        let (back, counts) = there_and_back(&frames);
        prop_assert_eq!(counts.iter().sum::<usize>(), frames.len());
        prop_assert_eq!(back.len(), frames.len());
        for (nth, (frame, back)) in frames.iter().zip(&back).enumerate() {
            prop_assert!(frame.bytes() == &**back, "frame {}", nth);
        }
    }

    #[test]
    fn any_bytes_are_survived(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        segment in 0..100usize,
    ) {
        let mut count = 0;
        let _result = cut(&bytes, segment, |_| count += 1);
        prop_assert!(count <= 256);
    }
}
