//! Faults by rules (docs/faults.md): of work requests, queues, commands, workers, ports, devices.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `requests` | work requests and messages |
//! | `queues` | completions, events, interrupts |
//! | `commands` | admin commands |
//! | `order` | the order in which bytes become visible |
//! | `by_time` | workers, ports, devices |
//! | `guests` | rules of guests |
//! | `timeline` | the trace of a QP |

mod by_time;
mod commands;
mod guests;
mod order;
mod queues;
mod requests;
mod timeline;

use vrnic_abi::qp::Attr;
use vrnic_packet::Nanos;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::world::{Pair, World};

/// A microsecond and a millisecond, of the clock.
const MICRO: u64 = 1000;
const MILLI: u64 = 1_000_000;

/// What a rule has seen and hit.
type Counts = (u64, u64);

impl World {
    /// Adds a rule.
    pub(crate) fn rule(&self, text: &str) {
        let rule = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        self.fabric.faults.add(rule, self.time()).expect("room");
    }

    fn time(&self) -> Nanos {
        Nanos(self.clock.load(std::sync::atomic::Ordering::Acquire))
    }

    /// Returns what the first rule has seen and hit.
    fn counts(&self) -> Counts {
        let all = self.fabric.faults.list(self.time(), |rule| (rule.seen, rule.hit));
        *all.first().expect("a rule")
    }
}

/// Returns two worlds: one in which messages are copied, and one in which they are packets.
fn worlds() -> [World; 2] {
    let packets = World::copying();
    packets.fabric.use_packets_only();
    [World::copying(), packets]
}

/// Returns a pair in each world.
fn pairs(tune: impl Fn(&mut Attr) + Copy) -> [Pair; 2] {
    worlds().map(|world| Pair::connected(world, Setup::default(), tune))
}

/// Lets time pass in steps, in which the adapters work.
fn pass(p: &Pair, nanos: u64) {
    for _ in 0..10 {
        p.world.advance(nanos / 10);
        for guest in [&p.ga, &p.gb] {
            if guest.adapter.run_faults().control {
                guest.adapter.control();
            }
        }
        p.settle();
    }
}

/// Returns a WRITE of A's first bytes to B's.
fn write(p: &Pair, len: u32) -> Wr {
    use vrnic_abi::sq::Opcode;
    Wr::new(Opcode::Write, &[p.a.sge(0, len)]).to(p.b.buffer, p.b.key)
}
