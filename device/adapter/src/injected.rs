//! Faults by rules that do not begin with the work of a worker: the state of the port and of the
//! device, and events, interrupts and commands that were held back. Also the trace of a QP, which
//! the hooks of these rules serve.

use std::sync::Arc;

use vrnic_abi::Qpn;
use vrnic_abi::eq::Kind;
use vrnic_abi::regs::FatalCode;
use vrnic_faults::Site;

use crate::adapter::Adapter;
use crate::host::{Host, Lane};
use crate::objects::faults::injection::DelayedEvent;
use crate::objects::faults::trace::{Records, Traced};

/// The result of [`Adapter::run_faults`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// True if the caller must call again soon, because rules exist or something is held back.
    pub again: bool,
    /// True if [`Adapter::control`] must be called, because an admin command is due, or the device
    /// is to fail.
    pub control: bool,
}

/// The reason for which a QP is not traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untraced {
    /// There is no such QP.
    #[error("there is no queue pair {0}")]
    NoQp(u32),
    /// Another trace of the function has not ended.
    #[error("a queue pair of the function is traced already")]
    Busy,
}

impl<H: Host> Adapter<H> {
    /// Does what rules for faults demand at this time. Must be called often while there are rules,
    /// and after they have changed. Can be called from any thread that holds no memory of a guest.
    pub fn run_faults(self: &Arc<Self>) -> Ran {
        let injection = &self.core().injection;
        let due = injection.take_due(self.host().now());
        for event in due.events {
            self.deliver_late(event);
        }
        due.vectors.into_iter().for_each(|vector| self.host().raise(vector));
        let changed = self.apply_state();
        let control = due.command || self.registers.is_stop_asked();
        Ran { again: injection.has_rules() || due.more || changed, control }
    }

    /// Begins the trace of a QP.
    ///
    /// # Errors
    /// [`Untraced`].
    pub fn begin_trace(&self, qpn: u32) -> Result<(), Untraced> {
        let qp = self.qp(Qpn::new(qpn)).ok_or(Untraced::NoQp(qpn))?;
        let cqns = [qp.send_cq.cqn, qp.recv_cq.cqn];
        self.begin(Traced::One { qpn: qp.qpn, cqns })
    }

    /// Begins the trace of all QPs, also of those that are created later.
    ///
    /// # Errors
    /// [`Untraced::Busy`].
    pub fn begin_trace_of_all(&self) -> Result<(), Untraced> {
        self.begin(Traced::All)
    }

    fn begin(&self, of: Traced) -> Result<(), Untraced> {
        let begun = self.core().injection.begin_trace(of, self.host().now());
        if begun { Ok(()) } else { Err(Untraced::Busy) }
    }

    /// Takes some records of the trace. Returns `None` if there is no trace, because it has ended.
    #[must_use]
    pub fn take_trace(&self, limit: usize) -> Option<Records> {
        self.core().injection.take_trace(limit, self.host().now())
    }

    /// Ends the trace of a QP, if there is one.
    pub fn end_trace(&self) {
        self.core().injection.end_trace();
    }

    /// Writes an event that was held back.
    fn deliver_late(&self, DelayedEvent { eqn, kind, id, .. }: DelayedEvent) {
        let caller = self.core().late_caller(Lane::SHARED);
        if kind == Kind::Completion {
            if let Some(cq) = self.objects.cqs.get(id.into()) {
                cq.fire(&caller);
            }
        } else if eqn.get() == 0
            && let Some(queue) = self.core().asynchronous.read().as_ref()
        {
            queue.push(&caller, kind, id);
        }
    }

    /// Gives the port and the device the state that rules demand. Returns whether they have one
    /// that rules have changed.
    fn apply_state(self: &Arc<Self>) -> bool {
        let core = self.core();
        let looks = core.injection.looks_at(Site::State);
        if !looks && !core.port.is_faulty() || !core.is_enabled() {
            return core.port.is_faulty();
        }
        let state = core.injection.state(core.here());
        self.set_fault_down(state.down);
        core.port.set_fault_mtu(state.mtu);
        core.port.set_loops(state.loops);
        self.objects.gids.hide(&state.gids);
        let is_other = state.down || state.loops || state.mtu.is_some() || !state.gids.is_empty();
        core.port.set_faulty(is_other);
        if state.fails {
            // The control thread does it: it may wait for locks and for the VMM.
            self.registers.ask_stop(FatalCode::Internal);
        }
        core.port.is_faulty()
    }
}
