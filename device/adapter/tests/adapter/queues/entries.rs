//! Random bytes as work queue entries.
//!
//! Shows: hostile

use vrnic_abi::qp::Type;
use vrnic_abi::sq::{Flags, MAX_SEGMENT, Opcode};
use vrnic_adapter::domain::User;
use vrnic_adapter::requests::wqe::{RecvWqe, SendWqe};

/// The longest entry, and a byte for each choice.
const LEN: usize = 512 + 4;

/// What an entry refers to lies within it, or the entry is refused. Opcode, flags and count are
/// often valid ones, and half of the bytes are zero.
#[test]
fn any_entry_is_within_bounds_or_refused() {
    let mut valid = 0_u64;
    vrnic_cases::bytes(50_000, LEN, |random| {
        let (choices, body) = random.split_at(4);
        let mut entry = body.to_vec();
        entry.truncate(16 << (choices[0] % 6));
        if choices[1] & 1 != 0 {
            entry.iter_mut().skip(32).for_each(|byte| *byte &= 0u8.wrapping_sub(*byte & 1));
        }
        if choices[1] & 2 != 0 {
            // Opcode, flags and count.
            let header = [body[8] % 32, body[9] & choices[2], choices[3] % 8, 0];
            entry[8..12].copy_from_slice(&header);
        }
        for kind in (0..=u8::MAX).filter_map(Type::from_raw) {
            let Ok(send) = SendWqe::parse(kind, &entry, 7) else { continue };
            valid += 1;
            assert_eq!(send.segments.iter(&entry).count() as u64, send.segments.count());
            let _parts = (SendWqe::destination(&entry), SendWqe::command(&entry));
            let _ending = (send.ending_key(&entry), send.completed(), send.imm());
            let frames = send.frames(&entry);
            assert!(frames.count > 0);
            if let Some(data) = send.inline(&entry) {
                assert!(send.flags.contains(Flags::INLINE) && data.len() <= entry.len());
            }
            assert!(send.opcode != Opcode::Segment || send.length <= u64::from(MAX_SEGMENT));
        }
        let receive = RecvWqe::parse(&entry, 7, User::default());
        if let Some(segments) = receive.segments {
            assert_eq!(segments.iter(&entry).count() as u64, segments.count());
        }
        1
    });
    assert!(valid > 0, "no entry was valid");
}
