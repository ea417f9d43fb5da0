//! TCP segments of iWARP: their opcodes, and how they are corrupted.
//!
//! Shows: faults

use proptest::prelude::*;
use vrnic_faults::{Crc, Opcode, corrupt};
use vrnic_iwarp::crc;
use vrnic_iwarp::wire::ddp::{Header as Ddp, Model, Msn, Queue, Stag, Tagged};
use vrnic_iwarp::wire::fpdu;
use vrnic_iwarp::wire::rdmap;
use vrnic_packet::MacAddr;
use vrnic_tcp::discard::Discard;
use vrnic_tcp::seq::SeqNum;
use vrnic_tcp::wire::frame::build;
use vrnic_tcp::wire::{Flags, Frame, HEADROOM, Header, Options, Path};

/// Returns an FPDU of a message with this header and this many octets.
fn fpdu(opcode: rdmap::Opcode, len: usize) -> Vec<u8> {
    let model = match opcode.queue() {
        None => Model::Tagged(Tagged { stag: Stag(7), to: 9 }),
        Some(queue) => Model::Untagged { invalidate: Stag(0), queue, msn: Msn::FIRST, mo: 0 },
    };
    let header = Ddp { last: true, control: opcode.control(), model };
    let ulpdu = [header.octets().octets(), &vec![0x55; len]].concat();
    let mut octets = u16::try_from(ulpdu.len()).expect("short").to_be_bytes().to_vec();
    octets.extend(&ulpdu);
    octets.resize(fpdu::size(ulpdu.len()) - crc::LEN, 0);
    octets.extend(crc::octets(&octets));
    octets
}

fn frame(v6: bool, data: &[u8]) -> Vec<u8> {
    let (source, destination) =
        if v6 { ("[fd00::1]:4000", "[fd00::2]:5000") } else { ("10.9.0.1:4000", "10.9.0.2:5000") };
    let path = Path {
        to: MacAddr([2; 6]),
        from: MacAddr([4; 6]),
        vlan: v6.then_some(5),
        source: source.parse().expect("an address"),
        destination: destination.parse().expect("an address"),
        traffic_class: 0,
        hop_limit: 64,
    };
    let (seq, ack) = (SeqNum(0xffff_fff0), SeqNum(17));
    let options = Options::default();
    let header = Header { seq, ack, flags: Flags::ACK, window: 1000, options };
    let mut bytes = vec![0; HEADROOM];
    bytes.extend(data);
    let range = build(&path, 1, &header, &mut bytes, data.len()).expect("room");
    bytes[range].to_vec()
}

#[test]
fn a_segment_has_the_opcode_of_its_first_message() {
    let mut names = Vec::new();
    for opcode in (0..12).filter_map(rdmap::Opcode::of) {
        let first = Opcode::Fpdu(opcode);
        let mut data = fpdu(opcode, 40);
        assert_eq!(Opcode::of_segment(&data), first);
        assert_eq!(Opcode::of_segment(&data[..30]), first, "an FPDU that is cut");
        data.extend(fpdu(rdmap::Opcode::Terminate, 4));
        assert_eq!(Opcode::of_segment(&data), first, "others may follow");
        assert_eq!(Opcode::of_segment(&data[4..]), Opcode::TcpData);
        names.push(first.to_string());
    }
    assert_eq!((names.len(), &*names[0], &*names[3]), (12, "iwarp-write", "iwarp-send"));
    let frame = b"MPA ID Req Frame\x50\x02\x00\x04\x80\x10\xc0\x10";
    assert_eq!(Opcode::of_segment(frame), Opcode::TcpData);
    assert_eq!(Opcode::of_segment(&[]), Opcode::TcpEmpty);
    // A tagged message has no queue.
    let mut wrong = fpdu(rdmap::Opcode::Write, 40);
    wrong[3] = rdmap::Opcode::Send.control();
    assert_eq!(Opcode::of_segment(&wrong), Opcode::TcpData);
    assert_eq!(rdmap::Opcode::Send.queue(), Some(Queue::Send));
}

/// Returns the number of bits by which two frames differ.
fn flipped(a: &[u8], b: &[u8]) -> u32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum()
}

proptest! {
    #[test]
    fn a_corrupt_segment_passes_the_checks_that_were_asked_for(
        v6: bool,
        len in 0..1400_usize,
        more: bool,
        random: u64,
    ) {
        let first = fpdu(rdmap::Opcode::Write, len);
        let mut data = first.clone();
        if more {
            data.extend(fpdu(rdmap::Opcode::Send, 10));
        }
        let original = frame(v6, &data);
        let mut wrong = original.clone();
        prop_assert!(corrupt(&mut wrong, Crc::Wrong, random));
        prop_assert_eq!(Frame::parse(&wrong), Err(Discard::Checksum));
        prop_assert_eq!(flipped(&original, &wrong), 1);

        for (checks, fits) in [(Crc::Checksum, false), (Crc::Right, true)] {
            let mut changed = original.clone();
            prop_assert!(corrupt(&mut changed, checks, random));
            let parsed = Frame::parse(&changed).expect("a right checksum").expect("TCP");
            let (fpdu, rest) = parsed.segment.payload.split_at(first.len());
            prop_assert_eq!(crc::is_right(fpdu), fits);
            prop_assert_eq!(rest, &data[first.len()..]);
            let end = first.len() - crc::LEN;
            prop_assert_eq!(flipped(&first[..end], &fpdu[..end]), 1);
        }
    }

    #[test]
    fn a_segment_without_data_gets_other_numbers(v6: bool, random: u64) {
        let mut changed = frame(v6, &[]);
        prop_assert!(corrupt(&mut changed, Crc::Right, random));
        let header = Frame::parse(&changed).expect("a right checksum").expect("TCP").segment.header;
        let flipped = (header.seq.0 ^ 0xffff_fff0).count_ones() + (header.ack.0 ^ 17).count_ones();
        prop_assert_eq!((flipped, header.flags, header.window), (1, Flags::ACK, 1000));
        let mut wrong = frame(v6, &[]);
        prop_assert!(corrupt(&mut wrong, Crc::Wrong, random));
        prop_assert_eq!(Frame::parse(&wrong), Err(Discard::Checksum));
    }

    #[test]
    fn a_segment_of_another_form_gets_a_right_checksum(
        data in proptest::collection::vec(any::<u8>(), 1..200),
        random: u64,
    ) {
        let original = frame(false, &data);
        let mut changed = original.clone();
        prop_assert!(corrupt(&mut changed, Crc::Right, random));
        let parsed = Frame::parse(&changed).expect("a right checksum").expect("TCP");
        prop_assert_eq!(flipped(&data, parsed.segment.payload), 1);
    }
}
