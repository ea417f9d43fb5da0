//! The rules for faults as the monitor shows them.

use std::time::{SystemTime, UNIX_EPOCH};

use vrnic_adapter::datapath::gate::Gate;
use vrnic_adapter::host::{Clock, Host};
use vrnic_control_api::faults::{FaultsView, RuleView};
use vrnic_packet::Nanos;

/// Returns the rules with their counters.
#[must_use]
pub fn view<H: Host, C: Clock>(gate: &Gate<H, C>) -> FaultsView {
    let (waiting, overflowed) = gate.waiting();
    let clock = Moment::at(gate.now());
    let rules = gate.rules().list(clock.own, |listed| RuleView {
        guest: listed.guest.map(str::to_owned),
        id: listed.id.get(),
        rule: listed.rule.to_string(),
        seen: listed.seen,
        hit: listed.hit,
        armed: clock.of(listed.armed),
        last_hit: listed.last.map(|last| clock.of(last)),
        over: listed.is_over,
    });
    FaultsView { now: clock.of(clock.own), rules, waiting, overflowed }
}

/// The clock of the daemon's threads, and that of the world, at the same moment.
#[derive(Clone, Copy, Debug)]
struct Moment {
    own: Nanos,
    /// Microseconds since 1970.
    world: u64,
}

impl Moment {
    fn at(own: Nanos) -> Self {
        let world = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        Self { own, world: u64::try_from(world).unwrap_or(u64::MAX) }
    }

    /// Returns the time of the world for a moment that is past.
    const fn of(self, past: Nanos) -> u64 {
        self.world.saturating_sub(self.own.0.saturating_sub(past.0) / 1000)
    }
}
