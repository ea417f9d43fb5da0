//! The order in which the bytes of messages become visible, if rules change it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vrnic_abi::{Qpn, sq};
use vrnic_faults::{Action, Opcode, Site, Subject};

use super::{Here, Injection, MAX_LATE};
use crate::requests::wqe::SendWqe;

/// The most messages of packets whose bytes wait. Further ones have the usual order.
const MAX_WINDOWS: usize = 256;

/// A message that is copied in an order by a seed, or in the usual one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ordered {
    wr_id: u64,
    seed: Option<u64>,
}

impl Injection {
    /// Returns the seed of the order in which the bytes of a copied message become visible, if a
    /// rule changes it. A message that is passed again has the same order. One that has begun
    /// without a rule keeps the usual order. `relaxed` returns whether all regions to which it goes
    /// allow that, or `None` if it is not decided on, because it has begun or is refused.
    #[cold]
    pub(crate) fn order(
        &self,
        here: Here<'_>,
        qpn: Qpn,
        send: &SendWqe,
        relaxed: impl FnOnce() -> Option<bool>,
    ) -> Option<u64> {
        let (key, wr_id) = ((qpn, send.index), send.wr_id);
        let known = self.waiting.lock().orders.get(&key).copied();
        if let Some(known) = known.filter(|known| known.wr_id == wr_id) {
            return known.seed;
        }
        if !self.concern.rules_look_at(Site::Copy) {
            return None;
        }
        let (relaxed, opcode) = (relaxed()?, Some(Opcode::Request(send.opcode)));
        let subject = Subject { opcode, relaxed, ..here.of_qp(Site::Copy, qpn) };
        let hit = self.rules_hit(&subject, here.now);
        let seed = hit.filter(|hit| hit.action == Action::Disorder).map(|hit| hit.random);
        let mut is_known = false;
        self.wait(|waiting| {
            is_known = waiting.orders.len() < MAX_LATE;
            if is_known {
                waiting.orders.insert(key, Ordered { wr_id, seed });
            }
        });
        if is_known {
            self.ordering.store(true, Ordering::Relaxed);
        } else if seed.is_some() {
            self.lost.warn(here.now, || {
                tracing::warn!(
                    function = here.function,
                    %qpn,
                    "a message has its usual order in spite of a rule, because too many have another one"
                );
            });
        }
        // Without the memory of its order, a message could not continue in it.
        seed.filter(|_| is_known)
    }

    /// Decides on a message of packets that begins to arrive. Returns `None` if no rule looks at
    /// the order of bytes, and `Some(None)` if it has the usual order. Otherwise it returns the
    /// seed of the order, and a ticket for the memory in which its bytes wait. `relaxed` is as for
    /// [`Self::order`].
    #[cold]
    pub(crate) fn order_of_packets(
        &self,
        here: Here<'_>,
        qpn: Qpn,
        opcode: sq::Opcode,
        relaxed: impl FnOnce() -> Option<bool>,
    ) -> Option<Option<(u64, Arc<()>)>> {
        if !self.concern.rules_look_at(Site::Copy) {
            return None;
        }
        let (relaxed, opcode) = (relaxed()?, Some(Opcode::Request(opcode)));
        let subject = Subject { opcode, relaxed, ..here.of_qp(Site::Copy, qpn) };
        let hit = self.rules_hit(&subject, here.now);
        let hit = hit.filter(|hit| hit.action == Action::Disorder);
        // The adapter has one reference itself.
        let room = Arc::strong_count(&self.tickets) <= MAX_WINDOWS;
        Some(hit.filter(|_| room).map(|hit| (hit.random, Arc::clone(&self.tickets))))
    }

    /// Returns whether a message may have an order of its own, or is traced.
    #[inline]
    pub(crate) fn may_order(&self) -> bool {
        self.looks_at(Site::Copy) || self.ordering.load(Ordering::Relaxed)
    }

    /// Forgets the orders of the messages of a QP that has failed, which do not go on.
    pub(crate) fn end_orders(&self, qpn: Qpn) {
        if !self.ordering.load(Ordering::Relaxed) {
            return;
        }
        let mut waiting = self.waiting.lock();
        let orders = &mut waiting.orders;
        while let Some((&key, _)) = orders.range((qpn, 0)..=(qpn, u32::MAX)).next() {
            orders.remove(&key);
        }
        self.ordering.store(!orders.is_empty(), Ordering::Relaxed);
    }

    /// Forgets the order of a message that has failed, or all of whose bytes have been moved.
    #[cold]
    pub(crate) fn end_order(&self, qpn: Qpn, send: &SendWqe) {
        let mut waiting = self.waiting.lock();
        waiting.orders.remove(&(qpn, send.index));
        self.ordering.store(!waiting.orders.is_empty(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use vrnic_faults::Rules;
    use vrnic_packet::Nanos;

    use super::*;

    #[test]
    fn messages_of_qps_that_have_failed_make_room_for_others() {
        let rules: Arc<Rules> = Arc::default();
        rules.add("disorder seed=7".parse().expect("a rule"), Nanos(0)).expect("room");
        let injection = Injection::new(&rules, "f1");
        let here = Here { function: "f1", now: Nanos(0) };
        let begin = |qpn: u32| {
            injection.order(here, Qpn::new(qpn), &SendWqe::EMPTY, || Some(true)).is_some()
        };
        let most = u32::try_from(MAX_LATE).expect("few");
        assert!((0..most).all(begin));
        assert!(!begin(most) && injection.may_order());
        injection.end_orders(Qpn::new(17));
        assert!(begin(most));
        rules.clear();
        (0..=most).for_each(|qpn| injection.end_orders(Qpn::new(qpn)));
        assert!(!injection.may_order(), "nothing is looked up any more");
    }
}
