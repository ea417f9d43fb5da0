//! Blocks have the layout of pcapng, and frames of local messages are those that a wire would show.
//!
//! Shows: faults

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use vrnic_packet::Nanos;
use vrnic_packet::ip::{self, Addresses};
use vrnic_packet::{Ethernet, MacAddr};
use vrnic_pcap::block::{section_header, statistics};
use vrnic_pcap::synthesis::COMMENT;
use vrnic_pcap::{Captured, Conversation, Direction, Interface, Message, Parties};
use vrnic_roce::Psn;
use vrnic_roce::requester::{Rejected, Remote, Work};
use vrnic_roce::responder::Verdict;
use vrnic_roce::wire::numbers::Srqn;
use vrnic_roce::wire::opcode::{Opcode, Transport};
use vrnic_roce::wire::syndrome::RnrTimer;
use vrnic_roce::wire::{Body, Frame, Mtu, Packet, Path, Qpn, Response, Rkey, SendEnd, Syndrome};

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

/// Returns the options of a block, which begin at an offset, each with its code.
fn options(block: &[u8], mut at: usize) -> Vec<(u16, Vec<u8>)> {
    let mut found = Vec::new();
    while at < block.len() - 4 {
        let (code, length) = (word(block, at) as u16, (word(block, at) >> 16) as usize);
        found.push((code, block[at + 4..at + 4 + length].to_vec()));
        at += 4 + length.next_multiple_of(4);
    }
    assert_eq!(at, block.len() - 4, "options end before the length");
    found
}

fn check_block(block: &[u8], kind: u32) {
    assert_eq!((word(block, 0), block.len() % 4), (kind, 0));
    assert_eq!(word(block, 4) as usize, block.len());
    assert_eq!(word(block, block.len() - 4) as usize, block.len());
}

#[test]
fn a_file_begins_with_section_and_interface() {
    let section = section_header("vrnicd");
    check_block(&section, 0x0a0d_0d0a);
    assert_eq!((word(&section, 8), word(&section, 12)), (0x1a2b_3c4d, 1));
    assert_eq!(section[16..24], [0xff; 8]);
    assert_eq!(options(&section, 24), [(4, b"vrnicd".to_vec()), (0, vec![])]);
    let interface = Interface { name: "function a".into(), snap_length: 128 };
    let description = interface.description();
    check_block(&description, 1);
    assert_eq!((word(&description, 8), word(&description, 12)), (1, 128));
    let expected = [(2, b"function a".to_vec()), (9, vec![9]), (0, vec![])];
    assert_eq!(options(&description, 16), expected);
}

#[test]
fn a_file_ends_with_the_number_of_dropped_frames() {
    let block = statistics(1, 5 << 32 | 6, 77);
    check_block(&block, 5);
    assert_eq!([word(&block, 8), word(&block, 12), word(&block, 16)], [1, 5, 6]);
    assert_eq!(options(&block, 20), [(5, 77u64.to_le_bytes().to_vec()), (0, vec![])]);
}

#[test]
fn long_texts_are_cut_between_characters() {
    let comment = "ä".repeat(1000);
    let captured =
        Captured { interface: 0, nanos: 0, frame: &[], comments: [Some(&comment), None] };
    let block = captured.block(0);
    check_block(&block, 6);
    assert_eq!(options(&block, 28)[0], (1, "ä".repeat(512).into_bytes()));
    let odd = format!("a{comment}");
    let captured = Captured { comments: [Some(&odd), None], ..captured };
    let option = options(&captured.block(0), 28)[0].1.clone();
    assert_eq!(String::from_utf8(option).expect("whole characters").len(), 1023);
}

proptest! {
    #[test]
    fn a_packet_block_holds_frame_time_and_comments(
        frame in proptest::collection::vec(any::<u8>(), 0..300),
        nanos: u64,
        snap_length in 0..200_u32,
        comments in proptest::array::uniform2(proptest::option::of("\\PC{0,20}")),
    ) {
        let [one, two] = &comments;
        let comments = [one.as_deref(), two.as_deref()];
        let captured = Captured { interface: 3, nanos, frame: &frame, comments };
        let block = captured.block(snap_length);
        check_block(&block, 6);
        prop_assert_eq!(word(&block, 8), 3);
        prop_assert_eq!(u64::from(word(&block, 12)) << 32 | u64::from(word(&block, 16)), nanos);
        let limit = if snap_length == 0 { frame.len() } else { snap_length as usize };
        let kept = frame.len().min(limit);
        prop_assert_eq!((word(&block, 20) as usize, word(&block, 24) as usize), (kept, frame.len()));
        prop_assert_eq!(&block[28..28 + kept], &frame[..kept]);
        let texts = comments.into_iter().flatten();
        let mut expected: Vec<_> = texts.map(|text| (1, text.as_bytes().to_vec())).collect();
        if !expected.is_empty() {
            expected.push((0, vec![]));
        }
        prop_assert_eq!(options(&block, 28 + kept.next_multiple_of(4)), expected);
    }
}

fn path(v6: bool, from: u8, to: u8) -> Path {
    let addresses = if v6 {
        let [source, destination] = [from, to].map(|last| Ipv6Addr::from(u128::from(last)));
        Addresses::V6 { source, destination }
    } else {
        let [source, destination] = [from, to].map(|last| Ipv4Addr::new(10, 9, 0, last));
        Addresses::V4 { source, destination }
    };
    let network = ip::Header { addresses, traffic_class: 0, hop_limit: 64, flow_label: 0 };
    let ethernet = Ethernet {
        destination: MacAddr([to; 6]),
        source: MacAddr([from; 6]),
        vlan: v6.then_some(5),
    };
    Path { ethernet, network, source_port: 0xc000 }
}

fn conversation(transport: Transport, v6: bool) -> Conversation {
    Conversation::new(Parties {
        transport,
        mtu: Mtu::M1024,
        requester: Qpn::new(0x11),
        responder: Qpn::new(0x12),
        first_psn: Psn::new(0xff_fffe),
        there: path(v6, 1, 2),
        back: path(v6, 2, 1),
        min_rnr_timer: RnrTimer::new(1),
    })
}

fn byte(at: u32) -> u8 {
    (at % 251) as u8
}

/// A frame as `direction opcode psn length`.
type Shown = (Direction, String, u32, usize);

/// Makes the frames of a message and checks CRCs, QPs and payload.
fn show(
    conversation: &mut Conversation,
    work: Work,
    length: u32,
    verdict: Verdict,
) -> Result<Vec<Shown>, Rejected> {
    let mut shown = Vec::new();
    let mut fill = |start: u32, to: &mut [u8]| {
        (start..).zip(to).for_each(|(at, to)| *to = byte(at));
    };
    let (srqn, payload) = (Srqn::new(3), &mut fill);
    let message = Message { work, length, solicited: false, srqn, verdict, payload };
    let (mut place, mut sum) = (0, 0);
    conversation.message(message, Nanos(5), &mut |direction, frame| {
        let parsed = Frame::parse(frame).expect("headers").expect("RoCE");
        let Packet { head, body, payload } = parsed.packet().expect("a right CRC");
        let to = if direction == Direction::There { 0x12 } else { 0x11 };
        assert_eq!(head.destination, Qpn::new(to));
        for found in payload {
            assert_eq!(*found, byte(place));
            place += 1;
        }
        sum += payload.len();
        let opcode = Opcode::new(head.transport, body.operation()).expect("an opcode");
        let name = match body {
            Body::Response(Response::Acknowledge(aeth)) => match aeth.syndrome {
                Syndrome::Ack(_) => "ack".to_owned(),
                syndrome => format!("{syndrome:?}"),
            },
            _ => opcode.to_string(),
        };
        shown.push((direction, name, head.psn.get(), payload.len()));
    })?;
    if matches!(verdict, Verdict::Executed) {
        assert_eq!(sum, length as usize);
    }
    Ok(shown)
}

const REMOTE: Remote = Remote { addr: 0x1000, key: Rkey(9) };

#[test]
fn messages_have_the_frames_of_a_wire() {
    use Direction::{Back, There};
    for v6 in [false, true] {
        let mut rc = conversation(Transport::Rc, v6);
        let mut show = |work, length, verdict| show(&mut rc, work, length, verdict).expect("good");
        let frame = |way, name: &str, psn, length| (way, name.to_owned(), psn, length);
        let send = Work::Send(SendEnd::Imm([1; 4]));
        assert_eq!(
            show(send, 2500, Verdict::Executed),
            [
                frame(There, "rc-send-first", 0xff_fffe, 1024),
                frame(There, "rc-send-middle", 0xff_ffff, 1024),
                frame(There, "rc-send-last-imm", 0, 452),
                frame(Back, "ack", 0, 0),
            ]
        );
        assert_eq!(
            show(Work::Read(REMOTE), 3000, Verdict::Executed),
            [
                frame(There, "rc-read-request", 1, 0),
                frame(Back, "rc-read-response-first", 1, 1024),
                frame(Back, "rc-read-response-middle", 2, 1024),
                frame(Back, "rc-read-response-last", 3, 952),
            ]
        );
        assert_eq!(
            show(Work::FetchAdd { word: REMOTE, add: 1 }, 8, Verdict::Old(41)),
            [frame(There, "rc-fetch-add", 4, 0), frame(Back, "rc-atomic-acknowledge", 4, 0),]
        );
        // Not ready at first, then the same again.
        let refused = show(send, 10, Verdict::NotReady);
        assert_eq!(refused[0], frame(There, "rc-send-only-imm", 5, 10));
        assert_eq!(refused[1], frame(Back, "NotReady(RnrTimer(1))", 5, 0));
        assert_eq!(
            show(send, 10, Verdict::Executed),
            [frame(There, "rc-send-only-imm", 5, 10), frame(Back, "ack", 5, 0),]
        );
        assert_eq!(
            show(Work::Write(REMOTE, None), 0, Verdict::Executed),
            [frame(There, "rc-write-only", 6, 0), frame(Back, "ack", 6, 0),]
        );
        let refused = show(Work::Write(REMOTE, None), 3000, Verdict::Access);
        assert_eq!(
            refused,
            [frame(There, "rc-write-first", 7, 1024), frame(Back, "Nak(RemoteAccess)", 7, 0),]
        );
    }
}

#[test]
fn a_refusal_ends_a_conversation() {
    let mut rc = conversation(Transport::Rc, false);
    let read = Work::Read(REMOTE);
    show(&mut rc, read, 10, Verdict::Invalid).expect("a refusal is shown");
    assert_eq!(show(&mut rc, read, 10, Verdict::Executed), Err(Rejected::Failed));
}

#[test]
fn unreliable_messages_have_no_answers() {
    let mut uc = conversation(Transport::Uc, false);
    let frames = show(&mut uc, Work::Send(SendEnd::Plain), 1025, Verdict::Executed);
    let names: Vec<_> = frames.expect("good").into_iter().map(|(_, name, ..)| name).collect();
    assert_eq!(names, ["uc-send-first", "uc-send-last"]);
    let mut xrc = conversation(Transport::Xrc, false);
    let frames = show(&mut xrc, Work::Write(REMOTE, Some([1; 4])), 5, Verdict::Executed);
    let names: Vec<_> = frames.expect("good").into_iter().map(|(_, name, ..)| name).collect();
    assert_eq!(names, ["xrc-write-only-imm", "ack"]);
    assert!(COMMENT.starts_with("synthesised"));
}
