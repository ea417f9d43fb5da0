//! Direct transfers for several hosts at once.
//!
//! Shows: direct

use vrnic_abi::admin::ArmRange;
use vrnic_abi::cq::Status;
use vrnic_abi::direct::{Direction, RANGE_LEN};
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{ALL, Setup};
use vrnic_testdriver::wr::{Wr, sge};

use crate::bus::{Endpoint, Guest};
use crate::direct::{LEN, arm, armed, packet, pattern, read, store, transfer, until};
use crate::world::World;

/// A guest with connections to three hosts, whose endpoints have equal addresses.
struct Hosts {
    world: World,
    own: Guest,
    hosts: Vec<Guest>,
    ends: Vec<(Endpoint, Endpoint)>,
}

impl Hosts {
    fn new() -> Self {
        let world = World::default();
        let own = world.guest(1);
        let hosts: Vec<Guest> = (2..5).map(|number| world.guest(number)).collect();
        let base = Endpoint::new(&own, Setup::default());
        let ends: Vec<_> = hosts
            .iter()
            .map(|host| (base.apart(Setup::default()), Endpoint::new(host, Setup::default())))
            .collect();
        for (near, far) in &ends {
            Endpoint::connect_pair(near, far);
            assert_eq!(far.buffer, ends[0].1.buffer);
        }
        Self { world, own, hosts, ends }
    }

    fn settle(&self) {
        let guests: Vec<&Guest> = self.hosts.iter().chain([&self.own]).collect();
        self.world.settle(&guests);
    }

    /// Returns the completions of a connection since the last call.
    fn done(&mut self, nth: usize) -> Vec<(u64, Status)> {
        let queue = &mut self.ends[nth].0.send_cq;
        std::iter::from_fn(|| queue.poll()).map(|cqe| (cqe.wr_id.get(), status(&cqe))).collect()
    }
}

/// Transfers with three hosts at the same time: READs and WRITEs at equal remote addresses.
#[test]
fn hosts_with_equal_addresses_have_transfers_of_both_directions_at_once() {
    let mut hosts = Hosts::new();
    for nth in 0..3u32 {
        let (near, far) = &mut hosts.ends[nth as usize];
        far.fill(LEN, &pattern(RANGE_LEN, 10 + nth));
        let [read, write] = [nth, 10 + nth];
        armed(near, read, Direction::Read, RANGE_LEN);
        armed(near, write, Direction::Write, RANGE_LEN);
        let brings = Wr::new(Opcode::Read, &[packet(near, read, RANGE_LEN)]);
        near.post_send(&brings.to(far.buffer + LEN, far.key));
        near.post_send(&until(read));
        near.post_send(&until(write));
        let takes = Wr::new(Opcode::Write, &[packet(near, write, RANGE_LEN)]).id(2);
        near.post_send(&takes.to(far.buffer, far.key));
    }
    hosts.settle();
    // A part of each transfer in turn.
    for at in (0..RANGE_LEN).step_by(512) {
        for nth in (0..3u32).rev() {
            let part = &pattern(RANGE_LEN, nth)[at as usize..][..512];
            store(&hosts.own, 10 + nth, at, part);
            let expected = &pattern(RANGE_LEN, 10 + nth)[at as usize..][..512];
            assert_eq!(read(&hosts.own, nth, at, 512).as_deref(), Ok(expected));
        }
        hosts.settle();
    }
    for nth in 0..3u32 {
        let done = hosts.done(nth as usize);
        let expected = [1, 100 + u64::from(nth), 110 + u64::from(nth), 2];
        assert_eq!(done, expected.map(|id| (id, Status::Success)));
        assert!(hosts.ends[nth as usize].1.bytes(0, LEN as usize) == pattern(RANGE_LEN, nth));
    }
}

/// Transfers of different hosts and remote addresses use the same range and the same packet memory,
/// one after the other, also after a transfer that has failed.
#[test]
fn one_range_is_used_by_one_host_after_the_other() {
    let mut hosts = Hosts::new();
    let memory = transfer(&hosts.ends[0].0, 5, Direction::Write, 512).memory;
    for round in 0..6u32 {
        let (nth, fails) = (round as usize % 3, round == 3);
        let (near, far) = &mut hosts.ends[nth];
        let params = ArmRange { memory, ..transfer(near, 5, Direction::Write, 512) };
        arm(&near.guest, &params).expect("ARM_RANGE");
        near.post_send(&until(5));
        let key = near.guest.reg_flat(near.pdn, ALL, memory.get(), 512).expect("a region");
        let (at, sge) = (u64::from(round) * 512, sge(memory.get(), 512, key));
        near.post_send(&Wr::new(Opcode::Write, &[sge]).to(far.buffer + at, far.key));
        hosts.settle();
        store(&hosts.own, 5, 0, &pattern(512, round)[..511]);
        let last = if fails { 512 } else { 511 };
        store(&hosts.own, 5, last, &pattern(512, round)[511..]);
        hosts.settle();
        let (moved, sent) = match fails {
            true => (Status::MwBindErr, Status::WrFlushErr),
            false => (Status::Success, Status::Success),
        };
        assert_eq!(hosts.done(nth), [(105, moved), (1, sent)]);
        let expected = if fails { vec![0; 512] } else { pattern(512, round) };
        assert_eq!(hosts.ends[nth].1.bytes(at, 512), expected);
    }
}
