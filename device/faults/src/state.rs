//! Rules for the state of a port or a device, which changes by time. Such a rule hits each time
//! that the state begins.

use vrnic_packet::Nanos;

use crate::action::{Action, Pattern};
use crate::entry::Entry;
use crate::set::Faults;

/// The state that rules give a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// True if its port has no link.
    pub down: bool,
    /// The largest packets of its port, as `enum ib_mtu`.
    pub mtu: Option<u8>,
    /// Entries of its GID table that are not there.
    pub gids: Vec<u16>,
    /// True if its port is in loopback mode.
    pub loops: bool,
    /// True if it must fail now.
    pub fails: bool,
}

impl Faults {
    /// Returns the state of a function, and counts the states that begin.
    pub fn state(&mut self, function: &str, now: Nanos) -> State {
        let mut state = State::default();
        for entry in &mut self.rules {
            let Some(begins) = entry.enter(function, now) else { continue };
            match entry.rule.action {
                Action::PortDown(_) => state.down = true,
                // A rule of the guest and one of the operator may differ.
                Action::LowerMtu(mtu) => {
                    state.mtu = Some(state.mtu.map_or(mtu, |other| mtu.min(other)));
                }
                Action::RemoveGid(index) => state.gids.push(index),
                Action::LoopBack => state.loops = true,
                Action::FailDevice(_) => state.fails |= begins,
                _ => {}
            }
        }
        state
    }
}

impl Entry {
    /// Returns whether the rule's state begins for a function, or `None` if the function is not in
    /// this state.
    fn enter(&mut self, function: &str, now: Nanos) -> Option<bool> {
        let selects = self.rule.filter.function.as_deref().is_none_or(|name| name == function);
        let number = self.number(now).filter(|_| selects)?;
        if self.states.get(function) == Some(&number) {
            return Some(false);
        }
        if self.rule.times.is_some_and(|times| self.hit >= times) {
            return None;
        }
        self.states.insert(function.into(), number);
        self.seen += 1;
        self.count_hit(now);
        Some(true)
    }

    /// Returns the number of the state at this time, from 0.
    fn number(&self, now: Nanos) -> Option<u64> {
        let pattern = match self.rule.action {
            Action::PortDown(pattern) | Action::FailDevice(pattern) => pattern,
            Action::LowerMtu(_) | Action::RemoveGid(_) | Action::LoopBack => Pattern::default(),
            _ => return None,
        };
        if now < self.from || self.until.is_some_and(|until| until <= now) {
            return None;
        }
        let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let since = now.0 - self.from.0;
        let lasts = pattern.lasts.map_or(0, nanos);
        let (number, place) = match pattern.pause.map(|pause| lasts.saturating_add(nanos(pause))) {
            Some(period) => (since.checked_div(period)?, since.checked_rem(period)?),
            None => (0, since),
        };
        pattern.lasts.is_none_or(|_| place < lasts).then_some(number)
    }
}
