//! Random segments and receives. Nothing panics, and no byte is written outside of the receives.
//!
//! Shows: tcp

use proptest::prelude::*;
use vrnic_abi::cq::Status;
use vrnic_adapter::ethernet::Frame;
use vrnic_simlink::Faults;
use vrnic_tcp::wire::Flags;
use vrnic_testdriver::cq::status;

use super::{cable, connected, pass, segment, send};

/// A segment of A: the position of its first byte, its acknowledgement, its flags and its length.
type Piece = (i16, i16, u8, u16);

fn position(near: i16) -> u32 {
    i32::from(near).cast_unsigned()
}

proptest! {
    #![proptest_config(vrnic_cases::config(96))]

    #[test]
    fn any_segments(
        pieces in prop::collection::vec(any::<Piece>(), 1..60),
        sizes in prop::collection::vec(1..3000u32, 0..20),
        push in any::<bool>(),
    ) {
        let cable = cable(1, Faults::default());
        let (_a, mut b) = connected(&cable, push);
        b.fill(0, &vec![0xee; 100_000]);
        let mut place = 0;
        for size in &sizes {
            b.post_recv(1, &[b.sge(place, *size)]);
            place += u64::from(*size);
        }
        send(&mut b, 200_000, 500);
        for (at, ack, flags, len) in pieces {
            // Mostly near the window, and mostly without a reset.
            let flags = Flags::from_bits_truncate(flags & !4);
            let (at, len) = (position(at % 6000), usize::from(len % 1460));
            let frame = segment(&cable, 0, at, position(ack % 600), flags, &vec![7; len]);
            let _taken = cable.gb.adapter.offer(Frame::new(frame));
            pass(&cable, 1000);
        }
        let end = usize::try_from(place).expect("short");
        prop_assert!(b.bytes(0, end).iter().all(|byte| [7, 0xee].contains(byte)));
        prop_assert_eq!(b.bytes(place, 1000), vec![0xee; 1000]);
        // Receives complete in order, with bytes that have arrived.
        let mut start = 0;
        for size in sizes {
            let Some(cqe) = b.recv_cq.poll() else { break };
            if status(&cqe) == Status::Success {
                let len = cqe.byte_len.get() as usize;
                prop_assert!(len <= size as usize);
                prop_assert_eq!(b.bytes(start, len), vec![7; len]);
            }
            start += u64::from(size);
        }
    }
}
