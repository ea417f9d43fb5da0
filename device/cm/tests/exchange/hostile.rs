//! Hostile peers.
//!
//! Shows: hostile

use proptest::prelude::*;
use vrnic_cm::mad::MAD_LEN;
use vrnic_cm::manager::receive::Arrival;
use vrnic_cm::state::reason;

use crate::world::{Faults, MOST, SERVICE, World, gid, path, qp};

/// A step of a peer and of the user.
#[derive(Clone, Debug)]
enum Step {
    /// A message of the other manager arrives with some bytes changed.
    Changed(Vec<(usize, u8)>),
    /// Bytes arrive whose header is right.
    Message(u16, Vec<u8>),
    /// Bytes arrive.
    Bytes(Vec<u8>),
    /// A user does something with one of the connections.
    User(u8, u32),
    /// Time passes.
    Time,
}

fn step() -> impl Strategy<Value = Step> {
    let byte = (0..MAD_LEN, prop_oneof![0u8..16, any::<u8>()]);
    let small = prop_oneof![3 => 0u8..12, 1 => any::<u8>()];
    prop_oneof![
        6 => prop::collection::vec(byte, 0..4).prop_map(Step::Changed),
        4 => (0x0fu16..0x1c, prop::collection::vec(small, 232))
            .prop_map(|(attribute, body)| Step::Message(attribute, body)),
        1 => prop::collection::vec(any::<u8>(), 0..300).prop_map(Step::Bytes),
        6 => (0u8..9, 0u32..16).prop_map(|(action, id)| Step::User(action, id)),
        1 => Just(Step::Time),
    ]
}

fn user(world: &mut World, action: u8, id: u32) {
    let (now, side) = (world.now, (id & 1) as usize);
    // Numbers begin after seven.
    let id = 8 + id / 2;
    let manager = &mut world.managers[side];
    let _refused = match action {
        0 => manager.accept(now, id, &qp(id), &[]),
        1 => manager.ready(id),
        2 => manager.reject(now, id, reason::CONSUMER, &[]),
        3 => manager.disconnect(now, id),
        4 => manager.establish(id),
        5 => manager.resolved(id, 0, 1, 1, &[]),
        6 => {
            manager.destroy(now, id);
            Ok(())
        }
        7 => manager.resolve(now, SERVICE, path(side), &[]).map(drop),
        _ => {
            let _id = (manager.count() < MOST).then(|| world.connect(side, id, &[]));
            Ok(())
        }
    };
}

proptest! {
    #![proptest_config(vrnic_cases::config(256))]

    /// Shows: hostile: messages of any content in any state
    #[test]
    fn any_message_in_any_state(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new(Faults::default(), 0);
        world.managers.iter_mut().for_each(|manager| manager.listen(SERVICE));
        for step in steps {
            let from = Arrival { source: gid(0), dest: gid(1) };
            match step {
                Step::Changed(changes) => {
                    if let Some(mut out) = world.managers[0].message() {
                        changes.iter().for_each(|(at, byte)| out.mad[*at] = *byte);
                        world.managers[1].receive(world.now, from, &out.mad);
                    }
                }
                Step::Message(attribute, body) => {
                    let mut mad = [0; MAD_LEN];
                    mad[..4].copy_from_slice(&[1, 7, 2, 3]);
                    mad[16..18].copy_from_slice(&attribute.to_be_bytes());
                    mad[24..].copy_from_slice(&body);
                    world.managers[1].receive(world.now, from, &mad);
                }
                Step::Bytes(bytes) => world.managers[1].receive(world.now, from, &bytes),
                Step::User(action, id) => user(&mut world, action, id),
                Step::Time => {
                    world.step();
                }
            }
            let counts = [0, 1].map(|side: usize| world.managers[side].count());
            prop_assert!(counts.iter().all(|count| *count <= MOST));
        }
        // Whatever has happened, time ends all that waits for it.
        for _ in 0..100_000 {
            if !world.step() {
                break;
            }
        }
        prop_assert!(!world.step(), "messages or times without end");
    }
}
