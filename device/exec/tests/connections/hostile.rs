//! Hostile commands.
//!
//! Shows: hostile

use proptest::prelude::*;
use vrnic_exec::rdma_cm::wire::command;

use crate::world::{ANSWER, MEMORY, World};

/// A command: its number, its length, the room for the answer, and the length of the write.
type Written = (u32, u16, u16, u64);

fn written() -> impl Strategy<Value = Written> {
    let number = prop_oneof![20 => 0..=command::WRITE_CM_EVENT, 1 => any::<u32>()];
    let len = prop_oneof![6 => 0u16..300, 1 => any::<u16>()];
    let room = prop_oneof![6 => 0u16..400, 1 => any::<u16>()];
    (number, len, room, prop_oneof![6 => Just(4096u64), 2 => 0u64..400, 1 => any::<u64>()])
}

/// Returns bytes that are often numbers of identifiers, addresses of memory or of adapters.
fn words() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        6 => (0u32..8).prop_map(|number| number.to_le_bytes()),
        2 => Just((ANSWER as u32).to_le_bytes()),
        2 => Just([2, 0, 0x1d, 0x2f]),
        2 => Just([127, 0, 0, 1]),
        1 => Just(0x0106u32.to_le_bytes()),
        1 => any::<[u8; 4]>(),
    ];
    prop::collection::vec(word, 80).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(vrnic_cases::config(48))]

    /// Shows: hostile: commands of any content and length
    #[test]
    fn any_commands_end(
        commands in prop::collection::vec((written(), words(), 0usize..2), 1..60),
    ) {
        let mut world = World::new();
        let files = [world.open(3), world.open(4)];
        let address = "127.0.0.1:7471";
        let _listener = world.listener(files[0], 0x106, address, 4);
        let _id = world.resolved(files[1], 0x106, address);
        for ((number, len, room, total), words, file) in commands {
            let header = [
                &number.to_le_bytes()[..],
                &len.to_le_bytes(),
                &room.to_le_bytes(),
            ].concat();
            {
                let mut memory = world.program.memory.borrow_mut();
                memory[..8].copy_from_slice(&header);
                memory[8..8 + words.len()].copy_from_slice(&words);
            }
            let _refused = world.service.write(files[file], &world.program, 0, total);
            world.settle();
        }
        files.into_iter().for_each(|file| world.close(file));
    }

    /// Shows: hostile: commands at the end of memory
    #[test]
    fn commands_that_are_not_in_memory_are_refused(number in 0u32..25, len in 8u64..64) {
        let mut world = World::new();
        let file = world.open(3);
        let addr = MEMORY as u64 - 8;
        {
            let mut memory = world.program.memory.borrow_mut();
            let header = [&number.to_le_bytes()[..], &(len as u16 - 8).to_le_bytes(), &[0xff; 2]];
            memory[MEMORY - 8..].copy_from_slice(&header.concat());
        }
        let done = world.service.write(file, &world.program, addr, len);
        prop_assert!(len == 8 || done.is_err(), "{done:?}");
    }
}
