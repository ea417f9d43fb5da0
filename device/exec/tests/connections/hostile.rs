//! Hostile commands.
//!
//! Shows: hostile

use proptest::prelude::*;
use vrnic_exec::rdma_cm::wire::{PS_TCP, command};

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

    /// Shows: hostile: messages of a foreign connection manager, of any kind and with any mistakes
    #[test]
    fn any_messages_of_a_peer_leave_others_alone(
        messages in prop::collection::vec(
            (1u32..8, 0x10u8..0x1a, prop::collection::vec((0usize..256, any::<u8>()), 0..3)),
            1..40,
        ),
    ) {
        let mut world = World::new();
        let [asked, server, client] = [world.open(3), world.open(4), world.open(5)];
        let _asked = world.listener(asked, PS_TCP, "127.0.0.1:7471", 4);
        for (number, kind, changes) in messages {
            let mut mad = World::request(number);
            mad[17] = kind;
            changes.into_iter().for_each(|(at, value)| mad[at] = value);
            world.send(&mad);
        }
        let mut requests = 0;
        while let Some(request) = world.event(asked) {
            requests += 1;
            let _refused = world.accept(asked, request.id, Some(9));
        }
        prop_assert!(requests <= 4, "no more than the backlog");
        let _listener = world.listener(server, PS_TCP, "127.0.0.1:7472", 1);
        let _ends = world.established([server, client], "127.0.0.1:7472");
        [asked, server, client].into_iter().for_each(|file| world.close(file));
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
