//! The end of QPs, and the reset of an adapter.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vrnic_abi::Key;
use vrnic_abi::qp::State;
use vrnic_abi::regs;

use crate::adapter::Adapter;
use crate::host::Host;
use crate::limits;
use crate::objects::qp::Qp;

impl<H: Host> Adapter<H> {
    /// Returns whether a reset that the driver has requested is still in progress.
    #[must_use]
    pub fn is_resetting(&self) -> bool {
        self.registers.status().contains(regs::Status::RESETTING)
    }

    /// Ends the transfers of the host for a reset by the VMM, which calls [`Self::reset`] next. A
    /// command that waits for them ends without a completion, and so does not delay the reset.
    pub fn interrupt(&self) {
        self.registers.interrupt();
        self.host().interrupt_transfers();
    }

    /// Reports to the driver that [`Self::reset`] has completed the requested reset, when the host
    /// moves no bytes of the guest any more. The caller is the control thread, and holds no lock
    /// that the VMM's own reset waits for.
    pub fn end_reset(&self) {
        self.host().end_transfers();
        self.host().wait_until_quiet();
        let _asked = self.registers.take_reset();
        self.registers.reset_done();
    }

    /// Destroys all objects and stops all access to guest memory, except for what the host moves at
    /// this moment ([`Self::end_reset`]). Can be called in any state and from any thread.
    pub fn reset(self: &Arc<Self>) {
        let mut admin = self.objects.admin.lock();
        *admin = crate::objects::Admin::default();
        self.registers.clear();
        *self.core().asynchronous.write() = None;
        let qps = self.halt();
        self.core().injection.clear_guest(self.name());
        self.objects.clear();
        let old = self.tpt();
        *self.tpt.write() = Arc::new(old.successor());
        old.clear(|| self.end_accesses());
        self.stats().clear();
        self.set_mtu(limits::MAX_MTU);
        let _opened = self.core().port.set_open(true);
        self.host().bar_clear();
        tracing::debug!(function = self.name(), qps, "the adapter was reset");
    }

    /// Waits until no thread accesses guest memory for what has ended, and ends the transfers of
    /// the host. All QPs have ended. The caller holds no memory.
    pub(crate) fn end_accesses(&self) {
        self.host().drain();
        // No access starts another one from now on.
        self.host().end_transfers();
    }

    /// Ends all QPs. On return none of them accesses guest memory any more, except by transfers of
    /// the host. Returns their number.
    pub(crate) fn halt(&self) -> usize {
        let qps = self.objects.drain_qps();
        for qp in &qps {
            qp.dead.store(true, Ordering::Release);
            qp.set_state(State::Reset);
        }
        for qp in &qps {
            self.part(qp);
            self.hang_up(qp);
            qp.clear(self.host());
        }
        self.workers.iter().for_each(|state| state.clear());
        self.core().clear_work();
        qps.len()
    }

    /// Removes a QP that has ended from its peer. An idle peer would otherwise keep its rings and
    /// CQs alive.
    pub(crate) fn part(&self, qp: &Qp<H>) {
        let responder = qp.responder.lock();
        let (route, qpn) = (responder.route, responder.source_qpn);
        drop(responder);
        if let Some(peer) = route.and_then(|route| self.fabric().find(route.sender(), qpn)) {
            let mut requester = peer.qp.requester.lock();
            requester.peer.take_if(|known| std::ptr::eq(&raw const *known.qp, qp));
        }
    }

    /// Ends the connection of a QP that ends, if the peer must be notified.
    pub(crate) fn hang_up(&self, qp: &Qp<H>) {
        let reset = qp.requester.lock().path.hang_up(self.host().now());
        if let Some(frame) = reset.filter(|_| self.core().carries()) {
            let _copies = self.network().transmit(qp.qpn, &mut vec![frame]);
        }
    }

    /// Ends the commands of a QP that executes nothing any more, and waits for the end of their
    /// last use.
    pub(crate) fn end_commands(&self, qp: &Qp<H>) {
        let commands = std::mem::take(&mut *qp.commands.lock());
        if commands.is_empty() {
            return;
        }
        // If a response has just ended the command, the peer completes the rest.
        let ended = |key: &Key| qp.tpt.end_command(*key, qp.user()).is_ok();
        let ended: Vec<Key> = commands.into_iter().filter(ended).collect();
        // The transfers of the QP, which alone uses them, have been awaited.
        self.host().drain();
        ended.into_iter().for_each(|key| qp.tpt.finish_command(key));
    }
}
