//! Which rule gets a frame.
//!
//! Shows: raw

use vrnic_abi::flow::{Flags, Kind, Rule};
use vrnic_adapter::ethernet::{Frame, Offered};
use vrnic_testdriver::flow::rule;

use super::frames::{mac, plain};
use super::{endpoint, expect, received, to_mac};
use crate::bus::{Endpoint, Guest};
use crate::world::World;

/// Several QPs of one guest with a receive for each of a few frames.
struct Rig {
    world: World,
    guest: Guest,
    qps: Vec<Endpoint>,
}

impl Rig {
    fn new(count: usize) -> Self {
        let world = World::default();
        let guest = world.guest(2);
        let first = endpoint(&guest);
        let rest: Vec<Endpoint> = (1..count).map(|_| first.apart(super::setup())).collect();
        rest.iter().for_each(Endpoint::ready_for_frames);
        let mut qps: Vec<Endpoint> = [first].into_iter().chain(rest).collect();
        for qp in &mut qps {
            (0..8).for_each(|at| expect(qp, at * 4096, 2048));
        }
        Self { world, guest, qps }
    }

    /// Offers a frame to the adapter. Returns the QPs that have received it, and whether the
    /// network card gets it.
    fn offer(&mut self, frame: &[u8]) -> (Vec<usize>, bool) {
        let offered = self.guest.adapter.offer(Frame::copy(frame));
        self.world.settle(&[&self.guest]);
        let mut who = Vec::new();
        for (nth, qp) in self.qps.iter_mut().enumerate() {
            while let Some((bytes, _)) = received(qp) {
                assert_eq!(bytes, frame);
                who.push(nth);
            }
        }
        let card = matches!(&offered, Offered::Other(back) if back.bytes() == frame);
        assert_eq!(card, offered != Offered::Trapped);
        (who, card)
    }
}

const BROADCAST: [u8; 6] = [0xff; 6];

#[test]
fn normal_rules_come_before_those_of_groups_and_those_before_the_default() {
    let mut rig = Rig::new(3);
    let [unicast, group] = [mac(2), BROADCAST].map(|to| plain(to, 60));
    assert_eq!(rig.offer(&unicast), (vec![], true), "without a rule");
    rig.qps[2].add_flow(&rule(Kind::AllDefault)).expect("CREATE_FLOW");
    assert_eq!(rig.offer(&unicast), (vec![2], false));
    assert_eq!(rig.offer(&group), (vec![2], false));
    let groups = rig.qps[1].add_flow(&rule(Kind::McDefault)).expect("CREATE_FLOW");
    assert_eq!(rig.offer(&unicast), (vec![2], false));
    assert_eq!(rig.offer(&group), (vec![1], false));
    let normal = rig.qps[0].add_flow(&to_mac(BROADCAST)).expect("CREATE_FLOW");
    assert_eq!(rig.offer(&group), (vec![0], false));
    assert_eq!(rig.offer(&unicast), (vec![2], false));
    for (id, next) in [(normal, 1), (groups, 2)] {
        rig.guest.destroy_flow(id).expect("DESTROY_FLOW");
        assert_eq!(rig.offer(&group), (vec![next], false));
    }
}

#[test]
fn the_smallest_priority_comes_first_and_then_the_oldest_rule() {
    let mut rig = Rig::new(4);
    let frame = plain(mac(2), 60);
    let priority = |priority: u16| Rule { priority: priority.into(), ..to_mac(mac(2)) };
    let mut ids = Vec::new();
    for (nth, number) in [(0, 7), (1, 3), (2, 3), (3, 0)] {
        ids.push(rig.qps[nth].add_flow(&priority(number)).expect("CREATE_FLOW"));
    }
    for nth in [3, 1, 2, 0] {
        assert_eq!(rig.offer(&frame), (vec![nth], false));
        rig.guest.destroy_flow(ids[nth]).expect("DESTROY_FLOW");
    }
    assert_eq!(rig.offer(&frame), (vec![], true));
}

#[test]
fn a_rule_that_does_not_trap_leaves_the_frame_to_the_next_one_too() {
    let mut rig = Rig::new(3);
    let frame = plain(mac(2), 60);
    let passes = Rule { flags: Flags::DONT_TRAP.bits(), ..to_mac(mac(2)) };
    rig.qps[0].add_flow(&passes).expect("CREATE_FLOW");
    assert_eq!(rig.offer(&frame), (vec![0], true), "the network card is next");
    rig.qps[1].add_flow(&passes).expect("CREATE_FLOW");
    // A QP gets a frame once.
    rig.qps[1].add_flow(&passes).expect("CREATE_FLOW");
    assert_eq!(rig.offer(&frame), (vec![0, 1], true));
    rig.qps[2].add_flow(&to_mac(mac(2))).expect("CREATE_FLOW");
    assert_eq!(rig.offer(&frame), (vec![0, 1, 2], false));
}

#[test]
fn a_closed_port_takes_nothing() {
    let mut rig = Rig::new(1);
    rig.qps[0].add_flow(&rule(Kind::AllDefault)).expect("CREATE_FLOW");
    let frame = plain(mac(2), 60);
    rig.guest.adapter.set_link(false);
    assert_eq!(rig.offer(&frame), (vec![], true));
    rig.guest.adapter.set_link(true);
    assert_eq!(rig.offer(&frame), (vec![0], false));
}
