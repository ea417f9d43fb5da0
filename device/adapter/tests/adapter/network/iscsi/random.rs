//! Random PDUs of a target, with tags of commands and without, valid and spoiled. Nothing panics,
//! and no byte is written outside of the buffers of commands that read, and of receives.
//!
//! Shows: iscsi

use proptest::prelude::*;
use vrnic_abi::qp::State;
use vrnic_simlink::Faults;

use super::rig::{Pdu, READ, Rig, WRITE, read10, write10};
use crate::network::toe::pass;

/// A PDU: its opcode, flags, tag, buffer offset, length of its data, and a byte that is spoiled.
type Piece = (u8, u8, u8, u16, u16, Option<u16>);

fn compose(piece: Piece, keys: &[u32], digests: bool) -> Vec<u8> {
    let (opcode, flags, tag, offset, len, spoil) = piece;
    let opcode = [0x21, 0x25, 0x31, 0x25, 0x31, 0x20, 0x3f, opcode][usize::from(opcode % 8)];
    let key = keys[usize::from(tag) % keys.len()];
    let tag = if tag > 200 { key ^ u32::from(tag) } else { key };
    let data = vec![7; usize::from(len % 2000)];
    let pdu = Pdu::new(opcode, flags, tag).word(40, u32::from(offset % 5000));
    let pdu = if opcode == 0x31 { pdu.word(44, u32::from(len % 5000)) } else { pdu.data(&data) };
    let mut bytes = pdu.bytes(digests);
    if let Some(at) = spoil {
        let at = usize::from(at) % bytes.len();
        bytes[at] ^= 0x11;
    }
    bytes
}

proptest! {
    #![proptest_config(vrnic_cases::config(96))]

    #[test]
    fn any_pdus(
        pieces in prop::collection::vec(any::<Piece>(), 1..40),
        digests in any::<bool>(),
        spoiled in any::<bool>(),
    ) {
        let mut rig = Rig::new(1, Faults::default(), digests);
        rig.a.fill(0, &vec![0xee; 200_000]);
        let mut keys = vec![u32::MAX, 0, rig.a.key];
        for nth in 0..3 {
            rig.post(&read10(4096), &[rig.a.sge(nth * 10_000, 4096)], WRITE);
            keys.push(rig.heard().tag());
            rig.post(&write10(4096), &[rig.a.sge(100_000 + nth * 10_000, 4096)], READ);
            keys.push(rig.heard().tag());
        }
        for (number, (op, flags, tag, offset, len, spoil)) in (0..).zip(pieces) {
            let piece = (op, flags, tag, offset, len, spoil.filter(|_| spoiled));
            let bytes = compose(piece, &keys, digests);
            rig.receives(number..number + 1);
            if rig.b.state() == State::Rts {
                rig.say_bytes(&bytes);
            }
            pass(&rig.cable, 100_000);
            while rig.b.send_cq.poll().is_some() {}
            while rig.a.recv_cq.poll().is_some() {}
        }
        // Only the buffers of READs, and in them only bytes of the target.
        for nth in 0..20u64 {
            let start = nth * 10_000;
            let bytes = rig.a.bytes(start, 10_000);
            let own = if nth < 3 { 4096 } else { 0 };
            // A spoiled length makes data of what follows the data.
            prop_assert!(spoiled || bytes[..own].iter().all(|byte| [7, 0xee].contains(byte)));
            prop_assert!(bytes[own..].iter().all(|byte| *byte == 0xee), "buffer {}", nth);
        }
        if !spoiled {
            prop_assert_eq!(rig.a.state(), State::Rts);
        }
    }
}
