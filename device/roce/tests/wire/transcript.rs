//! Frames of Linux' software RoCE (rxe, kernel 7.3): the first frame of each opcode and length from
//! runs of perftest and rping between two guests.
//!
//! Shows: roce

use vrnic_roce::wire::build::FRAME_MAX;
use vrnic_roce::wire::{Frame, Layout, Packet, Path};

use crate::bytes;

fn frames() -> Vec<Vec<u8>> {
    include_str!("rxe.hex").lines().map(bytes).collect()
}

#[test]
fn every_frame_is_read() {
    let frames = frames();
    let mut opcodes: Vec<u8> = frames.iter().map(|frame| frame[42]).collect();
    opcodes.dedup();
    assert_eq!(
        opcodes,
        [
            0x00, 0x01, 0x02, 0x04, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11,
            0x12, 0x13, 0x14, 0x22, 0x28, 0x64
        ]
    );
    for frame in &frames {
        let frame = Frame::parse(frame).expect("headers").expect("RoCE");
        frame.packet().unwrap_or_else(|discard| panic!("{discard:?}: {frame:?}"));
    }
}

/// Reads each frame and writes it again. The result is the same byte for byte, except for the
/// identification in the IP header, which rxe counts, and both checksums, which depend on it.
#[test]
fn every_frame_is_written_as_rxe_writes_it() {
    for original in frames() {
        let frame = Frame::parse(&original).expect("headers").expect("RoCE");
        let Packet { head, body, payload } = frame.packet().expect("a packet");
        let Frame { ethernet, network, source_port, .. } = frame;
        let path = Path { ethernet, network, source_port };
        let mut buffer = [0xee; FRAME_MAX];
        let layout = Layout::write(&mut buffer, &path, &head, &body, payload.len()).expect("room");
        buffer[layout.payload()].copy_from_slice(payload);
        let end = layout.seal(&mut buffer).expect("room");
        assert_eq!(end, original.len());
        let differs = |at: &usize| buffer[*at] != original[*at];
        let allowed = |at: usize| {
            matches!(at, 18 | 19 | 24 | 25) || at >= end - 4 || is_udp_checksum(at, &original)
        };
        let wrong: Vec<usize> = (0..end).filter(differs).filter(|at| !allowed(*at)).collect();
        assert!(wrong.is_empty(), "{body:?} differs at {wrong:?}");
    }
}

fn is_udp_checksum(at: usize, frame: &[u8]) -> bool {
    matches!(at, 40 | 41) && frame[40..42] != [0, 0]
}
