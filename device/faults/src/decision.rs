//! The function that decides. It has no state.

use vrnic_roce::wire::Qpn;

use crate::rule::{Chance, Rule, RuleId};

/// The packets, or other things, of a QP that a rule looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream<'a> {
    /// The number of the rule that looks at them.
    pub rule: RuleId,
    /// The name of the function.
    pub function: &'a str,
    /// The QP; 0 for things without one.
    pub qp: Qpn,
}

/// Returns a random number for what has this place, from 1, in a stream, if the rule hits
/// it. The number is for further choices, such as the bit that is flipped.
#[must_use]
pub fn decide(rule: &Rule, stream: &Stream<'_>, count: u64) -> Option<u64> {
    if rule.filter.nth.is_some_and(|nth| nth != count) {
        return None;
    }
    if rule.filter.every.is_some_and(|every| !count.is_multiple_of(every)) {
        return None;
    }
    let words = [rule.seed, u64::from(stream.rule.get()), u64::from(stream.qp.get()), count];
    let name = stream.function.bytes().map(u64::from);
    let random = words.into_iter().chain(name).fold(0, |state, word| mix(state ^ word));
    // The upper half decides, in proportion to 10⁹.
    let parts = ((random >> 32) * u64::from(Chance::ONE)) >> 32;
    (parts < u64::from(rule.chance.parts())).then(|| mix(random))
}

/// Makes one step of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
const fn mix(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ state >> 31
}
