//! Tests that frames that are joined and cut again do not change.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use vrnic_roce::psn::Psn;
use vrnic_roce::wire::body::{Body, Part, Request};
use vrnic_roce::wire::build::{FRAME_MAX, Layout, Path};
use vrnic_roce::wire::frame::Ethernet;
use vrnic_roce::wire::headers::Reth;
use vrnic_roce::wire::network::{Addresses, Network};
use vrnic_roce::wire::numbers::{Qpn, Rkey};
use vrnic_roce::wire::opcode::Transport;
use vrnic_roce::wire::packet::Head;

use super::cut::cut;
use super::join::Joined;
use crate::net::frame::Frame;
use crate::net::offload::{HEADER, Incomplete, Offload};
use crate::net::queue::SendQueue;

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
        let ethernet = Ethernet { destination: [2; 6], source: [4; 6], vlan: self.vlan };
        let network =
            Network { addresses: self.addresses, traffic_class: 2, hop_limit: 64, flow_label: 0 };
        let path = Path { ethernet, network, source_port: 0xc000 };
        let psn = Psn::new(self.psn).plus(u32::try_from(nth).expect("small"));
        let head = Head::new(Transport::Rc, Qpn::new(9), psn);
        let mut buffer = vec![0; FRAME_MAX];
        let body = Body::Request(Request::Write(part));
        let layout = Layout::write(&mut buffer, &path, (&head, &body), len).expect("room");
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
        match Offload::from_bytes(*header).udp_segment() {
            Some(segment) => cut(bytes, segment, |frame| back.push(frame)).expect("a datagram"),
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
    let alone = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frames = frames[1..3].to_vec();
        let mut bytes = frames[1].clone().into_bytes();
        change(&mut bytes);
        frames[1] = Frame::new(bytes).expect("a frame");
        let (back, counts) = there_and_back(&frames);
        assert!(frames.iter().map(Frame::bytes).eq(back.iter().map(Vec::as_slice)));
        counts == [1, 1]
    };
    assert!(!alone(&|_| ()));
    // The station, the traffic class, the length, the identification, the fragment, the address,
    // the port, the length of UDP, its checksum; bytes behind the end.
    for at in [3, 15, 17, 19, 21, 30, 34, 39, 41] {
        assert!(alone(&|bytes| bytes[at] ^= 1), "byte {at}");
    }
    assert!(alone(&|bytes| bytes.push(0)));
    let tagged = Message { vlan: Some(5), ..message };
    assert_eq!(there_and_back(&tagged.frames(4, 256)).1, [1; 4]);
}

#[test]
fn long_frames_that_are_no_datagrams_are_refused() {
    let message = Message { addresses: V4, vlan: None, psn: 7, mtu: 1024 };
    let frame = message.frames(1, 1000).remove(0).into_bytes();
    let refused = |frame: &[u8], segment| cut(frame, segment, |_| ()).is_err();
    assert!(!refused(&frame, 500));
    assert!(refused(&frame, 0), "segments without data");
    assert!(refused(&frame, 3), "more frames than anybody sends");
    assert!(refused(&frame[..41], 500));
    let mut tcp = frame.clone();
    tcp[23] = 6;
    assert_eq!(cut(&tcp, 500, |_| ()), Err(Incomplete::Segments));
    let mut fragment = frame;
    fragment[20] |= 0x20;
    assert!(refused(&fragment, 500));
}

/// Datagrams that are not RoCE get a checksum.
#[test]
fn other_datagrams_get_checksums() {
    let message = Message { addresses: V4, vlan: None, psn: 7, mtu: 1024 };
    let mut frame = message.frames(1, 1000).remove(0).into_bytes();
    frame[36] ^= 0x40;
    let mut count = 0;
    cut(&frame, 300, |frame| {
        let network = Network { addresses: V4, traffic_class: 2, hop_limit: 64, flow_label: 0 };
        assert_ne!(frame[40..42], [0, 0]);
        assert!(network.udp_checksum_is_right(&frame[34..]));
        count += 1;
    })
    .expect("a datagram");
    assert_eq!(count, 4);
}

proptest! {
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
        let mut first = Vec::new();
        for (which, at, byte) in damage {
            let which = which.index(frames.len());
            let mut bytes = frames[which].clone().into_bytes();
            bytes[at] = byte;
            frames[which] = Frame::new(bytes).expect("a frame");
            first.push(which);
        }
        let (back, counts) = there_and_back(&frames);
        prop_assert_eq!(counts.iter().sum::<usize>(), frames.len());
        prop_assert_eq!(back.len(), frames.len());
        for (nth, (frame, back)) in frames.iter().zip(&back).enumerate() {
            // Writing the IP header again may have corrected a wrong checksum.
            prop_assert!(first.contains(&nth) || frame.bytes() == &**back, "frame {}", nth);
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
