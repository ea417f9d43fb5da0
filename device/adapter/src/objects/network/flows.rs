//! The flow rules of an adapter ([`vrnic_abi::flow`]): which frames its QPs of raw packets receive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use arrayvec::ArrayVec;
use parking_lot::RwLock;
use vrnic_abi::flow::{Kind, Network, Upper};
use vrnic_abi::{FlowId, Qpn};

use super::frame_key::{FrameKey, Target, Words};
use super::spread::Spread;
use crate::limits::{MAX_COPIES, MAX_FLOWS};

/// The frames that a rule of [`Kind::Normal`] selects.
#[derive(Clone, Copy, Debug)]
pub struct Condition {
    /// The network header; any if it is [`Network::Any`].
    pub network: Network,
    /// The header after it; any if it is [`Upper::Any`].
    pub upper: Upper,
    /// True if the frame must have a VLAN tag.
    pub needs_tag: bool,
    /// The values of the bits in `mask`.
    pub values: Words,
    /// The bits that are compared.
    pub mask: Words,
}

impl Condition {
    #[inline]
    fn is_met_by(&self, key: &FrameKey) -> bool {
        let fields = key.words.iter().zip(&self.values).zip(&self.mask);
        fields.into_iter().all(|((frame, value), mask)| (frame ^ value) & mask == 0)
            && (self.network == Network::Any || self.network == key.network)
            && (self.upper == Upper::Any || self.upper == key.upper)
            && (key.is_tagged || !self.needs_tag)
    }
}

/// The receiver of the frames of a rule.
#[derive(Clone, Debug)]
pub enum Receiver {
    /// The QP of the rule.
    Own(Target),
    /// One of these QPs, which depends on the frame.
    Spread(Arc<Spread>),
}

impl Receiver {
    /// Returns the QP that receives a frame.
    fn of(&self, key: impl FnOnce() -> FrameKey) -> Option<Target> {
        match self {
            Self::Own(target) => Some(*target),
            Self::Spread(spread) => spread.target(&key()),
        }
    }
}

/// A rule that is about to be added.
#[derive(Clone, Debug)]
pub struct NewRule {
    /// The QP to which it belongs.
    pub qpn: Qpn,
    /// The QP that gets the frames, or the one that spreads them.
    pub receiver: Receiver,
    /// The type of the rule.
    pub kind: Kind,
    /// The priority among rules of this kind.
    pub priority: u16,
    /// True if the next rule that matches gets the frame, too.
    pub copies: bool,
    /// The condition of a rule of [`Kind::Normal`].
    pub condition: Condition,
}

/// A rule of the function.
#[derive(Clone, Debug)]
struct Installed {
    id: FlowId,
    rule: NewRule,
}

impl Installed {
    /// Returns the place of the rule in the order of comparison. Rules with equal places
    /// are compared in the order of their creation.
    const fn order(&self) -> (u8, u16) {
        let kind = match self.rule.kind {
            Kind::Sniffer => 0,
            Kind::Normal => 1,
            Kind::McDefault => 2,
            Kind::AllDefault => 3,
        };
        (kind, self.rule.priority)
    }

    #[inline]
    fn matches(&self, key: &FrameKey) -> bool {
        match self.rule.kind {
            Kind::Sniffer => false,
            Kind::Normal => self.rule.condition.is_met_by(key),
            Kind::McDefault => key.is_to_group,
            Kind::AllDefault => true,
        }
    }

    /// Returns whether a frame may have further receivers.
    fn copies(&self) -> bool {
        self.rule.copies || self.rule.kind == Kind::Sniffer
    }
}

/// The receivers of a frame.
#[derive(Clone, Debug, Default)]
pub struct Selected {
    /// The QPs, each of them once.
    pub targets: ArrayVec<Target, { MAX_COPIES + 1 }>,
    /// True if the frame has no further receivers.
    pub is_trapped: bool,
    /// The number of rules with which the frame was compared.
    pub compared: u64,
}

/// The rules of an adapter.
#[derive(Debug)]
pub struct Flows {
    /// The rules in the order of comparison.
    rules: RwLock<Vec<Installed>>,
    count: AtomicUsize,
    /// The number of sniffers among them.
    sniffers: AtomicUsize,
    max: AtomicU32,
}

impl Default for Flows {
    fn default() -> Self {
        let (count, sniffers) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { rules: RwLock::default(), count, sniffers, max: AtomicU32::new(MAX_FLOWS) }
    }
}

/// Returns the rules of sniffers, which are compared first.
fn sniffers(rules: &[Installed]) -> impl Iterator<Item = &Installed> {
    rules.iter().take_while(|installed| installed.rule.kind == Kind::Sniffer)
}

/// There is no room for a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Flows {
    /// Returns whether there is any rule. The result may be a little out of date.
    #[inline]
    #[must_use]
    pub fn any(&self) -> bool {
        self.count() > 0
    }

    /// Returns whether a QP gets a copy of every frame. The result may be a little out of date.
    #[inline]
    #[must_use]
    pub fn has_sniffers(&self) -> bool {
        self.sniffers.load(Ordering::Relaxed) > 0
    }

    /// Returns the number of rules.
    #[inline]
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Sets the maximum number of rules. Rules above it stay.
    pub fn set_max(&self, max: u32) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Adds a rule.
    ///
    /// # Errors
    /// [`Full`] if there are too many, or too many that give a frame to several QPs.
    pub fn add(&self, rule: NewRule) -> Result<FlowId, Full> {
        let mut rules = self.rules.write();
        // The smallest number that is free.
        let is_used = |id: &u32| rules.iter().any(|installed| installed.id.get() == *id);
        let id = (1..=MAX_FLOWS).find(|id| !is_used(id)).ok_or(Full)?;
        let id = FlowId::new(id);
        let new = Installed { id, rule };
        let copying = rules.iter().filter(|installed| installed.copies()).count();
        let is_full = rules.len() >= self.max.load(Ordering::Relaxed) as usize;
        if is_full || new.copies() && copying >= MAX_COPIES {
            return Err(Full);
        }
        let at = rules.partition_point(|installed| installed.order() <= new.order());
        rules.insert(at, new);
        self.recount(&rules);
        Ok(id)
    }

    /// Removes a rule. Returns false if there is none with this number.
    pub fn remove(&self, id: FlowId) -> bool {
        let mut rules = self.rules.write();
        let before = rules.len();
        rules.retain(|installed| installed.id != id);
        self.recount(&rules);
        rules.len() < before
    }

    /// Returns whether a QP has rules.
    #[must_use]
    pub fn has_rules_of(&self, qpn: Qpn) -> bool {
        self.any() && self.rules.read().iter().any(|installed| installed.rule.qpn == qpn)
    }

    /// Removes all rules.
    pub fn clear(&self) {
        let mut rules = self.rules.write();
        rules.clear();
        self.recount(&rules);
    }

    fn recount(&self, rules: &[Installed]) {
        self.count.store(rules.len(), Ordering::Relaxed);
        self.sniffers.store(sniffers(rules).count(), Ordering::Relaxed);
    }

    /// Returns the QPs that get a copy of a frame, as of every frame.
    #[must_use]
    pub fn sniffers(&self, key: impl Fn() -> FrameKey) -> ArrayVec<Target, MAX_COPIES> {
        let rules = self.rules.read();
        let targets = sniffers(&rules).filter_map(|installed| installed.rule.receiver.of(&key));
        targets.take(MAX_COPIES).collect()
    }

    /// Returns the receivers of a frame, without sniffers.
    #[must_use]
    pub fn select(&self, key: &FrameKey) -> Selected {
        let mut selected = Selected::default();
        for installed in self.rules.read().iter() {
            selected.compared += 1;
            if !installed.matches(key) {
                continue;
            }
            let target = installed.rule.receiver.of(|| *key);
            if let Some(target) = target.filter(|target| !selected.targets.contains(target)) {
                let _has_room = selected.targets.try_push(target);
            }
            if !installed.rule.copies {
                selected.is_trapped = true;
                break;
            }
        }
        selected
    }
}

#[cfg(test)]
mod tests {
    use vrnic_abi::flow::Fields;

    use super::*;
    use crate::objects::network::frame_key::words;

    fn rule(kind: Kind) -> NewRule {
        let (values, mask) = (words(&Fields::default()), words(&Fields::default()));
        let (network, upper) = (Network::Any, Upper::Any);
        let condition = Condition { network, upper, needs_tag: false, values, mask };
        let qpn = Qpn::new(7);
        let receiver = Receiver::Own(Target { qpn, worker: 0 });
        NewRule { qpn, receiver, kind, priority: 0, copies: false, condition }
    }

    /// Frames are prepared for sniffers only if there are any.
    #[test]
    fn only_sniffers_count_as_sniffers() {
        let flows = Flows::default();
        flows.add(rule(Kind::AllDefault)).expect("room");
        assert!(flows.any() && !flows.has_sniffers());
        let sniffer = flows.add(rule(Kind::Sniffer)).expect("room");
        assert!(flows.has_sniffers());
        assert!(flows.remove(sniffer) && !flows.has_sniffers());
        flows.add(rule(Kind::Sniffer)).expect("room");
        flows.clear();
        assert!(!flows.any() && !flows.has_sniffers());
    }
}
