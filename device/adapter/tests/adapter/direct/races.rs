//! Direct transfers with threads, and with random operations of the guest.
//!
//! Shows: direct

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use proptest::prelude::*;
use vrnic_abi::admin::{ArmRange, Opcode as Admin, SetWindow, command};
use vrnic_abi::cq::Status;
use vrnic_abi::direct::{Direction, Notice, RANGE_LEN};
use vrnic_abi::qp::{State, Type};
use vrnic_abi::regs;
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, Guest};
use crate::direct::blocks::{by_block, window, window_sge};
use crate::direct::marks::until_marked;
use crate::direct::{
    LEN, MS, PACKETS, arm, armed, packet, pattern, read, registers, state, store, transfer, until,
};
use crate::host::{Bar, Step};
use crate::lifecycle::threads::{wait, with_workers};
use crate::world::{Pair, World};

/// The bytes of a transfer arrive at any moment of the worker's turns. The worker misses no end of
/// a transfer.
#[test]
fn transfers_end_whenever_their_bytes_come() {
    const ROUNDS: u32 = 1500;
    const LEN: u32 = 600;
    let world = World::default();
    let [ga, gb] = [1, 2].map(|number| world.guest(number));
    let (mut a, b) = (Endpoint::new(&ga, Setup::default()), Endpoint::new(&gb, Setup::default()));
    Endpoint::connect_pair(&a, &b);
    let begun = AtomicU32::new(0);
    let controller = || {
        for round in 1..=ROUNDS {
            while begun.load(Ordering::Acquire) < round {
                std::thread::yield_now();
            }
            for (nth, part) in pattern(LEN, round).chunks(100).enumerate() {
                store(&ga, 0, nth as u32 * 100, part);
            }
            let data = loop {
                match read(&ga, 1, 0, LEN) {
                    Ok(data) => break data,
                    Err(_) => std::thread::yield_now(),
                }
            };
            assert!(data == pattern(LEN, round), "round {round}");
            ga.adapter.beat();
        }
    };
    with_workers(&world.clock, vec![ga.adapter.clone(), gb.adapter.clone()], 1000, || {
        std::thread::scope(|scope| {
            scope.spawn(controller);
            for round in 1..=ROUNDS {
                let limit = 60_000.into();
                for (range, direction) in [(0, Direction::Write), (1, Direction::Read)] {
                    let params = transfer(&a, range, direction, LEN);
                    let params = ArmRange { time_limit_ms: limit, ..params };
                    arm(&ga, &params).expect("ARM_RANGE");
                }
                begun.store(round, Ordering::Release);
                let write = Wr::new(Opcode::Write, &[packet(&a, 0, LEN)]).to(b.buffer, b.key);
                let read = Wr::new(Opcode::Read, &[packet(&a, 1, LEN)]).to(b.buffer, b.key);
                for wr in [until(0), write.id(2), read.id(3), until(1)] {
                    a.post_send(&wr);
                }
                for id in [100, 2, 3, 101] {
                    let cqe = wait("a completion", || a.send_cq.poll());
                    assert_eq!((cqe.wr_id.get(), status(&cqe)), (id, Status::Success));
                }
            }
        });
    });
}

/// Runs `end` while the window's thread copies a burst into packet memory. Returns whether `end`
/// returned before the burst had ended and within `timeout`.
fn during_a_burst(p: &Pair, timeout: Duration, end: impl FnOnce(&Guest) + Send) -> bool {
    armed(&p.a, 0, Direction::Write, 64);
    let gate = p.ga.host.gate(Step::Write(p.a.buffer + PACKETS));
    std::thread::scope(|scope| {
        scope.spawn(|| store(&p.ga, 0, 0, &[1; 32]));
        gate.wait();
        let (ended, has_ended) = channel();
        scope.spawn(move || {
            end(&p.ga);
            ended.send(()).expect("the test waits");
        });
        let first = has_ended.recv_timeout(timeout).is_ok();
        gate.open();
        if !first {
            has_ended.recv().expect("it ends");
        }
        first
    })
}

/// When a range has been ended, no bytes move into its memory any more: the end waits for a burst
/// in progress.
#[test]
fn a_range_ends_behind_the_burst_that_is_under_way() {
    let ends: [fn(&Guest, u32); 3] = [
        |guest, _| guest.command::<command::EndRange>(&0.into()).expect("END_RANGE"),
        |guest, qpn| assert_eq!(guest.on_object(Admin::DestroyQp, qpn), Ok(0)),
        |guest, _| guest.reset(),
    ];
    for end in ends {
        let p = Pair::new();
        let qpn = p.a.qpn;
        let first = during_a_burst(&p, Duration::from_millis(20), |guest| end(guest, qpn));
        assert!(!first, "the end of the range did not wait for the burst");
        assert_eq!(p.a.bytes(PACKETS, 33), [&[1; 32][..], &[0]].concat());
        store(&p.ga, 0, 0, &[9; 64]);
        assert_eq!(p.a.bytes(PACKETS, 1), [1]);
    }
}

/// The thread that runs the heartbeats of all adapters does not wait for the memory of a guest.
#[test]
fn the_heartbeat_does_not_wait_for_a_burst() {
    let p = Pair::new();
    let first = during_a_burst(&p, Duration::from_secs(10), |guest| guest.adapter.beat());
    assert!(first, "the heartbeat waited for the burst");
    // The next heartbeat does the work that was skipped.
    p.world.advance(100 * MS);
    p.ga.adapter.beat();
    assert_eq!(state(&p.ga, 0), (0, 0, 32));
}

/// A random operation of a guest or its controller: the kind, a range, an offset, a length, a byte.
type Act = (u8, u32, u32, u32, u8);

/// Prepares a range for a random transfer.
fn arm_any(guest: &Guest, near: &Endpoint, (kind, range, _, len, byte): Act) {
    let direction = if kind == 0 { Direction::Read } else { Direction::Write };
    let notice = if byte > 200 { Notice::Mapped } else { Notice::Counted };
    let length = len % (RANGE_LEN + 2);
    let params = match byte {
        100..=180 => by_block(near, range, direction, length),
        _ => transfer(near, range, direction, length),
    };
    let _refused = arm(guest, &ArmRange { notice: notice as u8, ..params });
}

/// Two connections of a guest that does random operations.
struct Chaos {
    pair: Pair,
    other: (Endpoint, Endpoint),
    /// Number of work requests posted on each connection.
    posted: [u64; 2],
}

impl Chaos {
    fn new(kind: Type) -> Self {
        // The queues have room for all operations, because none of these waits for room.
        let setup = Setup { kind, log_wqes: 6, ..Setup::default() };
        let pair = Pair::with(setup, |_| {});
        // Fewer blocks than ranges, after the packet memory of the ranges.
        let blocks = window(&pair.a, 2);
        let memory = blocks.memory.get() + 4 * LEN;
        let blocks = SetWindow { memory: memory.into(), ..blocks };
        pair.ga.command::<command::SetWindow>(&blocks).expect("SET_WINDOW");
        let other = (pair.a.apart(setup), pair.b.apart(setup));
        Endpoint::connect_pair(&other.0, &other.1);
        Self { pair, other, posted: [0; 2] }
    }

    fn act(&mut self, (kind, range, within, len, byte): Act) {
        let qp = usize::from(byte % 2);
        let Pair { world, ga, a, b, .. } = &mut self.pair;
        let (near, far) = if qp == 0 { (a, &*b) } else { (&mut self.other.0, &self.other.1) };
        let moves = |opcode, near: &Endpoint| {
            let sge = if len % 2 == 0 {
                packet(near, range, 64)
            } else {
                window_sge(range, within % RANGE_LEN, 1 + len % 4096)
            };
            Wr::new(opcode, &[sge]).to(far.buffer, far.key)
        };
        let posts = match kind {
            3 | 4 => Some(until(range)),
            5 => Some(moves(Opcode::Write, near)),
            6 => Some(moves(Opcode::Read, near)),
            16 => Some(until_marked(range, len % 3)),
            _ => None,
        };
        if let Some(wr) = posts {
            self.posted[qp] += 1;
            return near.post_send(&wr.id(self.posted[qp]));
        }
        match kind {
            0..=2 => arm_any(ga, near, (kind, range, within, len, byte)),
            7..=9 => store(ga, range, within, &vec![byte; len as usize]),
            10 | 11 => {
                if let Err(awaited) = read(ga, range, within, len)
                    && byte > 128
                {
                    ga.adapter.fail_early(awaited.range);
                }
            }
            12 => ga.set_register(regs::RANGE_DONE, range),
            13 => {
                let _missing = ga.command::<command::EndRange>(&range.into());
            }
            14 => {
                world.advance(u64::from(byte) * MS / 4);
                ga.adapter.beat();
            }
            15 if byte < 20 => near.set_state(State::Err),
            15 if byte < 60 => {
                let at = near.buffer + PACKETS + u64::from(within);
                ga.host.restrict(at, 16, Bar::Unmapped);
            }
            15 => ga.host.unrestrict(),
            17 => near.mark(range, (len % 3) | (u32::from(byte > 230) << 31)),
            18 => near.ring(),
            _ => self.pair.settle(),
        }
    }

    /// Lets the longest possible time pass, and then checks that each work request has completed
    /// once, in order, and that each range is free.
    fn end(mut self) {
        self.pair.ga.host.unrestrict();
        for _ in 0..20 {
            self.pair.world.advance(10_000 * MS);
            self.pair.ga.adapter.beat();
            self.pair.settle();
        }
        let ends = [&mut self.pair.a, &mut self.other.0];
        for (end, posted) in ends.into_iter().zip(self.posted) {
            let done = std::iter::from_fn(|| end.send_cq.poll()).map(|cqe| cqe.wr_id.get());
            assert_eq!(done.collect::<Vec<_>>(), (1..=posted).collect::<Vec<_>>());
        }
        let next = self.pair.a.apart(Setup::default());
        for range in 0..4 {
            let registers = registers(&self.pair.ga, range);
            assert_eq!(registers.pci_valid, 0, "{registers:?}");
            self.pair.ga.command::<command::EndRange>(&range.into()).expect("END_RANGE");
            armed(&next, range, Direction::Write, 1);
        }
        let window = self.pair.ga.command::<command::QueryWindow>(&()).expect("QUERY_WINDOW");
        assert_eq!((window.allocated.get(), window.waiting.get()), (0, 0));
        assert_eq!(self.pair.ga.host.fails(), 0);
        // Connected QPs refer to each other, and keep the memory of both guests.
        self.pair.ga.reset();
        self.pair.gb.reset();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Random accesses, commands and work requests, in random order.
    #[test]
    fn nothing_is_left_of_any_transfers(
        reliable in any::<bool>(),
        acts in prop::collection::vec(
            (0..20u8, 0..4u32, 0..5000u32, 0..9000u32, any::<u8>()),
            1..60,
        ),
    ) {
        let mut chaos = Chaos::new(if reliable { Type::Rc } else { Type::Uc });
        acts.into_iter().for_each(|act| chaos.act(act));
        chaos.end();
    }
}
