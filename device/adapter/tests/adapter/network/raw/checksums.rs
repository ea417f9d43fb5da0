//! Checksums and segmentation.
//!
//! Shows: raw

use vrnic_abi::cq::{self, Flags as CqeFlags, Status};
use vrnic_abi::flow::Kind;
use vrnic_abi::qp::State;
use vrnic_abi::sq::{Flags, MAX_FRAME, MAX_SEGMENT, MIN_MSS, Opcode, SegmentSeg};
use vrnic_adapter::ethernet::{Frame, Joint, Offered};
use vrnic_packet::ip::Protocol;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::flow::rule;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;
use zerocopy::IntoBytes;

use super::frames::{Packet, V6, mac, plain};
use super::{expect, received, setup};
use crate::world::{Pair, World};

/// Returns the sum of 16-bit words in the simplest way (RFC 1071).
fn sum(bytes: &[u8]) -> u32 {
    let words = bytes
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0)));
    words.fold(0, |sum, word| {
        let sum = sum + word;
        (sum & 0xffff) + (sum >> 16)
    })
}

/// Returns whether the checksums of a frame of IPv4 or IPv6 with TCP or UDP are right. `tag` is the
/// length of its VLAN tag.
fn are_right(frame: &[u8], tag: usize) -> bool {
    let ip = &frame[14 + tag..];
    let (addresses, protocol, payload) = if ip[0] >> 4 == 4 {
        let len = usize::from(ip[0] & 15) * 4;
        let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        if sum(&ip[..len]) != 0xffff {
            return false;
        }
        (&ip[12..20], ip[9], &ip[len..total])
    } else {
        let total = 40 + usize::from(u16::from_be_bytes([ip[4], ip[5]]));
        (&ip[8..40], ip[6], &ip[40..total])
    };
    let pseudo = [addresses, &[0, protocol], &(payload.len() as u16).to_be_bytes()].concat();
    sum(&[&pseudo[..], payload].concat()) == 0xffff
}

impl Pair {
    /// Returns two QPs, of which B receives all frames, in receives for this number of frames.
    pub(super) fn to_all(count: u8) -> Self {
        let mut p = Self::apart(World::default(), Setup { log_wqes: 8, log_cqes: 9, ..setup() });
        p.a.ready_for_frames();
        p.b.ready_for_frames();
        p.b.add_flow(&rule(Kind::AllDefault)).expect("CREATE_FLOW");
        for at in 0..u64::from(count) {
            expect(&mut p.b, at * 16_384, 16_384);
        }
        p
    }

    /// Sends a frame with IP_CSUM. Returns the frame that B gets, and the flags of its completion.
    fn summed(&mut self, frame: &[u8]) -> (Vec<u8>, CqeFlags) {
        self.a.fill(0, frame);
        let wr = Wr::new(Opcode::Send, &[self.a.sge(0, frame.len() as u32)]);
        let wr = wr.flags(Flags::SIGNALED | Flags::IP_CSUM);
        assert_eq!(status(&self.complete(&wr)), Status::Success);
        let (frame, cqe) = received(&mut self.b).expect("received");
        (frame, CqeFlags::from_bits_truncate(cqe.flags.get()))
    }
}

#[test]
fn checksums_are_computed_and_reported() {
    let mut p = Pair::to_all(100);
    let data: Vec<u8> = (0..=255).collect();
    let base = Packet::default();
    for addresses in [base.addresses, V6] {
        for (protocol, vlan) in [(Protocol::UDP, None), (Protocol::TCP, Some(5))] {
            for len in [0, 1, 2, 255] {
                let packet = Packet { addresses, protocol, vlan, ..base };
                let mut frame = packet.frame(&data[..len]);
                let tag = if vlan.is_some() { 4 } else { 0 };
                if addresses == base.addresses {
                    // The sender leaves anything there.
                    frame[14 + tag + 10] = 0x77;
                }
                // Padding of a short frame is not summed.
                frame.resize(frame.len().max(60), 0xee);
                assert!(!are_right(&frame, tag));
                let (got, flags) = p.summed(&frame);
                assert!(are_right(&got, tag), "{packet:?}, {len} bytes");
                assert!(flags.contains(CqeFlags::IP_CSUM_OK), "{packet:?}, {len} bytes");
                assert_eq!(got.len(), frame.len());
                let changed = got.iter().zip(&frame).filter(|(a, b)| a != b).count();
                assert!(changed <= 4, "only checksums change: {changed} bytes");
                // Without the flag the frame stays as it is.
                assert_eq!(p.send_frame(&frame), Status::Success);
                let (same, cqe) = received(&mut p.b).expect("received");
                assert_eq!((same, cqe.flags.get()), (frame, 0));
            }
        }
    }
}

/// The header of IPv4 has a checksum even if what it carries has none that is known.
#[test]
fn other_packets_get_the_checksum_of_their_ip_header() {
    let mut p = Pair::to_all(20);
    let mut icmp = Packet { protocol: Protocol::ICMP, ..Packet::default() }.frame(b"echo");
    icmp[24] = 0x55;
    let (got, flags) = p.summed(&icmp);
    assert_eq!((sum(&got[14..34]), flags), (0xffff, CqeFlags::empty()));
    // A fragment's checksum covers more than the fragment.
    let mut fragment = Packet::default().frame(b"part");
    fragment[20] = 0x20;
    let (got, flags) = p.summed(&fragment);
    assert_eq!((sum(&got[14..34]), flags), (0xffff, CqeFlags::empty()));
    assert_eq!(got[34..], fragment[34..]);
    // With options of IPv4.
    let whole = Packet::default().frame(b"data");
    let mut options = [&whole[..34], &[1; 4], &whole[34..]].concat();
    (options[14], options[17]) = (0x46, options[17] + 4);
    let (got, flags) = p.summed(&options);
    assert!(are_right(&got, 0) && flags.contains(CqeFlags::IP_CSUM_OK));
    // No IP at all, and headers that end too early.
    for frame in [plain(mac(2), 60), whole[..36].to_vec(), whole[..20].to_vec()] {
        let (got, flags) = p.summed(&frame);
        assert_eq!((got.len(), flags), (frame.len(), CqeFlags::empty()));
        assert_eq!(got.get(26..), frame.get(26..), "behind the checksum of IP");
    }
}

#[test]
fn wrong_and_missing_checksums_are_not_reported_as_right() {
    let mut p = Pair::to_all(20);
    let mut report = |frame: &[u8]| {
        assert_eq!(p.send_frame(frame), Status::Success);
        let (_, cqe) = received(&mut p.b).expect("received");
        CqeFlags::from_bits_truncate(cqe.flags.get()).contains(CqeFlags::IP_CSUM_OK)
    };
    let tcp = Packet { protocol: Protocol::TCP, ..Packet::default() }.frame(b"data");
    assert!(!report(&tcp));
    // A datagram over IPv4 may have no checksum, and one over IPv6 must have one.
    let udp = Packet::default().frame(b"data");
    assert!(report(&udp));
    assert!(!report(&Packet { addresses: V6, ..Packet::default() }.frame(b"data")));
    let mut header = udp.clone();
    header[24] ^= 1;
    assert!(!report(&header), "the checksum of IP");
    let mut cut = udp;
    cut.truncate(40);
    assert!(!report(&cut), "a part of a packet");
}

/// A packet that ends before its header says so has no checksum, whatever else is wrong with it.
#[test]
fn parts_of_packets_get_no_checksum_and_are_not_reported_as_right() {
    let mut p = Pair::to_all(20);
    let tcp = Packet { protocol: Protocol::TCP, ..Packet::default() };
    let whole = tcp.frame(&[7; 100]);
    let mut options = [&whole[..34], &[1; 4], &whole[34..]].concat();
    (options[14], options[17]) = (0x46, options[17] + 4);
    let mut wrong = whole.clone();
    wrong[24] ^= 1;
    let v6 = Packet { addresses: V6, ..tcp }.frame(&[7; 100]);
    for (name, frame, upper) in [
        ("plain", whole, 34),
        ("options", options, 38),
        ("a wrong sum", wrong, 34),
        ("IPv6", v6, 54),
    ] {
        let part = &frame[..frame.len() - 10];
        let (got, flags) = p.summed(part);
        assert_eq!((&got[upper..], flags), (&part[upper..], CqeFlags::empty()), "{name}");
        // The receiver must not be told that the checksum of the part is right.
        let (mut right, _) = p.summed(&frame);
        let field = upper + 16;
        right.truncate(part.len());
        let pseudo_len = (right.len() - upper) as u16;
        let ip = &right[14..upper];
        let addresses = if upper == 54 { &ip[8..40] } else { &ip[12..20] };
        let pseudo = [addresses, &[0, 6], &pseudo_len.to_be_bytes()].concat();
        right[field..field + 2].fill(0);
        let check = !(sum(&[&pseudo[..], &right[upper..]].concat()) as u16);
        right[field..field + 2].copy_from_slice(&check.to_be_bytes());
        assert_eq!(p.send_frame(&right), Status::Success);
        let (_, cqe) = received(&mut p.b).expect("received");
        assert_eq!(cqe.flags.get() & CqeFlags::IP_CSUM_OK.bits(), 0, "{name}");
    }
}

/// A datagram may be shorter than the packet that contains it, and not longer.
#[test]
fn the_length_of_a_datagram_is_that_of_its_header() {
    for addresses in [Packet::default().addresses, V6] {
        let mut p = Pair::to_all(20);
        let frame = Packet { addresses, ..Packet::default() }.frame(b"datagram");
        let udp = frame.len() - 16;
        for (len, has_sum) in
            [(16, true), (11, true), (8, true), (7, false), (0, false), (17, false)]
        {
            let mut changed = frame.clone();
            changed[udp + 5] = len;
            let (got, flags) = p.summed(&changed);
            let stated = [got[udp + 6], got[udp + 7]];
            assert_eq!(stated != [0; 2], has_sum, "a length of {len}");
            assert_eq!(flags.contains(CqeFlags::IP_CSUM_OK), has_sum, "a length of {len}");
            if has_sum {
                let ip = &got[14..udp];
                let parts = if ip[0] >> 4 == 6 { &ip[8..40] } else { &ip[12..20] };
                let pseudo = [parts, &[0, 17, 0, len]].concat();
                let datagram = &got[udp..udp + usize::from(len)];
                assert_eq!(sum(&[&pseudo[..], datagram].concat()), 0xffff);
            }
        }
    }
}

/// Returns a SEGMENT of these headers, whose payload is the first `len` bytes of A's memory.
pub(super) fn segment(p: &Pair, headers: &[u8], mss: u16, len: u32) -> Wr {
    let sges = vec![p.a.sge(0, len / 3), p.a.sge(u64::from(len / 3), len - len / 3)];
    Wr { sges, ..segment_of(headers, mss) }
}

/// Returns a SEGMENT of these headers without a payload.
pub(super) fn segment_of(headers: &[u8], mss: u16) -> Wr {
    let header_len = (headers.len() as u16).into();
    let seg = SegmentSeg { mss: mss.into(), header_len, reserved: [0; 12] };
    let mut body = [seg.as_bytes(), headers].concat();
    body.resize(body.len().next_multiple_of(16), 0);
    Wr::new(Opcode::Segment, &[]).body(&body)
}

#[test]
fn a_large_segment_leaves_as_frames() {
    for addresses in [Packet::default().addresses, V6] {
        for (mss, len, vlan) in [
            (1000, 2500, None),
            (1000, 2000, Some(3)),
            (1000, 999, None),
            (1000, 1, None),
            (MIN_MSS, 500, None),
            (8948, 60_000, None),
        ] {
            let mut p = Pair::to_all(60);
            let packet = Packet { addresses, vlan, protocol: Protocol::TCP, ..Packet::default() };
            let headers = packet.frame(b"");
            let data: Vec<u8> = (0..len).map(|at| (at * 7 % 251) as u8).collect();
            p.a.fill(0, &data);
            let sent = p.complete(&segment(&p, &headers, mss, len));
            let expected = (Status::Success, cq::Opcode::Segment as u8);
            assert_eq!((status(&sent), sent.opcode), expected);
            let (tag, mut back, mut count) =
                (if vlan.is_some() { 4 } else { 0 }, Vec::<u8>::new(), 0u32);
            while let Some((frame, cqe)) = received(&mut p.b) {
                assert!(are_right(&frame, tag), "frame {count} of {len} by {mss}");
                assert_ne!(cqe.flags.get() & CqeFlags::IP_CSUM_OK.bits(), 0);
                let tcp = &frame[headers.len() - 20..];
                let number = u32::from_be_bytes(*tcp[4..].first_chunk().expect("the number"));
                assert_eq!(number as usize, 7 + back.len());
                back.extend(&frame[headers.len()..]);
                let push = tcp[13] & 8 != 0;
                assert_eq!(push, back.len() == data.len(), "PSH is for the last frame");
                if tag + 14 + 20 + 20 == headers.len() {
                    let id = u16::from_be_bytes([frame[14 + tag + 4], frame[14 + tag + 5]]);
                    assert_eq!(u32::from(id), 3 + count);
                }
                count += 1;
            }
            assert_eq!((count, back == data), (len.div_ceil(mss.into()), true));
            assert_eq!(p.ga.stats().tx_pkts.get(), u64::from(count));
        }
    }
}

#[test]
fn what_cannot_be_cut_is_refused() {
    let tcp = Packet { protocol: Protocol::TCP, ..Packet::default() }.frame(b"");
    let udp = Packet::default().frame(b"");
    let mut reserved = SegmentSeg { mss: 500.into(), ..SegmentSeg::default() };
    (reserved.header_len, reserved.reserved[11]) = ((tcp.len() as u16).into(), 1);
    let with_reserved = [reserved.as_bytes(), &tcp, &[0; 10]].concat();
    let long = MAX_SEGMENT - tcp.len() as u32;
    let longest = MAX_FRAME as u16 - tcp.len() as u16;
    type Change = fn(&mut Wr, Vec<u8>);
    type Case<'a> = (&'a str, &'a [u8], u16, u32, Status, Change);
    let cases: [Case<'_>; 10] = [
        ("the longest", &tcp, 1460, long, Status::Success, |_, _| ()),
        ("one byte more", &tcp, 1460, long + 1, Status::LocLenErr, |_, _| ()),
        ("the longest frames", &tcp, longest, 20_000, Status::Success, |_, _| ()),
        ("longer frames", &tcp, longest + 1, 20_000, Status::LocLenErr, |_, _| ()),
        ("short frames", &tcp, MIN_MSS - 1, 500, Status::LocQpOpErr, |_, _| ()),
        ("UDP", &udp, 500, 900, Status::LocQpOpErr, |_, _| ()),
        ("a part of the headers", &tcp[..53], 500, 900, Status::LocQpOpErr, |_, _| ()),
        ("no headers", &[], 500, 900, Status::LocQpOpErr, |_, _| ()),
        ("inline", &tcp, 500, 0, Status::LocQpOpErr, |wr, _| wr.inline = Some(vec![1; 8])),
        ("reserved bytes", &tcp, 500, 900, Status::LocQpOpErr, |wr, body| wr.body = body),
    ];
    for (name, headers, mss, len, expected, change) in cases {
        let mut p = Pair::raw();
        let mut wr = segment(&p, headers, mss, len);
        change(&mut wr, with_reserved.clone());
        assert_eq!(status(&p.complete(&wr)), expected, "{name}");
        let state = if expected == Status::Success { State::Rts } else { State::Sqe };
        assert_eq!(p.a.state(), state, "{name}");
    }
}

/// Frames that the host's kernel has joined arrive as the frames that were on the network.
#[test]
fn joined_frames_are_cut_for_receives() {
    let mut p = Pair::to_all(10);
    let headers = Packet { protocol: Protocol::TCP, ..Packet::default() }.frame(b"");
    let mut whole = [&headers[..], &[9; 1000]].concat();
    let joint = vrnic_packet::segments::join::join(&mut whole, headers.len(), 400);
    assert_eq!(joint, Some(Some(Joint { headers: headers.len() as u16, segment: 400 })));
    let frame = Frame::copy_joined(&whole, joint.flatten());
    assert_eq!(p.gb.adapter.offer(frame.clone()), Offered::Trapped);
    p.settle();
    for len in [400, 400, 200] {
        let (frame, cqe) = received(&mut p.b).expect("a frame");
        assert_eq!(frame.len(), headers.len() + len);
        assert!(are_right(&frame, 0) && cqe.flags.get() == CqeFlags::IP_CSUM_OK.bits());
    }
    // Frames without a receive are counted one by one.
    for _ in 0..4 {
        assert_eq!(p.gb.adapter.offer(frame.clone()), Offered::Trapped);
        p.settle();
    }
    assert_eq!(p.gb.stats().rx_raw_discards.get(), 5);
}
