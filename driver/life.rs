// SPDX-License-Identifier: GPL-2.0
//! The end of the adapter's life, by failure or by unbinding: alive → dead → quiet.
//!
//! An adapter that has died may only have stalled. When it goes on it may write to all memory
//! that it ever was given, so none of that is freed before the adapter is *quiet*: it has
//! answered to a reset, its bus mastering is off, or it is gone. Until then whoever creates or
//! destroys an object waits in [`Life::execute`].

use abi::admin::{Opcode, Request};
use kernel::{
    pci,
    prelude::*,
    sync::{
        Arc, Completion,
        aref::ARef,
        atomic::{Acquire, Atomic, Full, Relaxed, Release},
    },
    time::{Delta, Instant, Monotonic, delay::fsleep},
    workqueue::{Work, WorkItem, impl_has_work, new_work},
};

use crate::{
    admin::Admin, events::Listeners, pci::stop_dma, queue::flush, rdma::event::DeviceEvent,
    recovery::Recovery, regs::Registers, uar::Doorbells,
};

/// The states, which only ever increase.
const ALIVE: u32 = 0;
/// Nothing is asked of the adapter any more.
const DEAD: u32 = 1;
/// It touches no memory any more.
const QUIET: u32 = 2;

/// How often a silent adapter's heartbeat is looked at.
const POLL: Delta = Delta::from_millis(100);
/// How long a silent adapter is left alone. A register access to one that has stalled freezes the
/// whole machine for seconds, and a VMM may drop the adapter for it for good; but only such an access
/// tells one that stalls from one that is gone.
const PATIENCE: Delta = Delta::from_secs(40);
/// How often an adapter is asked that neither resets nor is certainly gone.
const ROUNDS: u32 = 3;
/// An access that fails in less time than this was not refused by an adapter that stalls.
const AT_ONCE: Delta = Delta::from_secs(1);

/// Why an adapter counts as dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Death {
    /// Its heartbeat stands still.
    Silent,
    /// Nothing answers in its place.
    Gone,
    /// Somebody else has reset it.
    Reset,
    /// It says so, or does not complete commands.
    Failed,
    /// It is no longer needed.
    Unbound,
}

/// See the module.
#[pin_data]
pub(crate) struct Life {
    state: Atomic<u32>,
    /// The [`Death`], as a number.
    death: Atomic<u32>,
    pdev: ARef<pci::Device>,
    regs: Arc<Registers>,
    doorbells: Arc<Doorbells>,
    admin: Arc<Admin>,
    listeners: Arc<Listeners>,
    recovery: Arc<Recovery>,
    #[pin]
    quiet: Completion,
    #[pin]
    work: Work<Self, RESET>,
    /// See [`Life::call_handlers`].
    #[pin]
    handlers: Work<Self, HANDLERS>,
}

/// The work items: that which resets the adapter, and that which calls handlers.
const RESET: u64 = 0;
const HANDLERS: u64 = 1;

impl_has_work! {
    impl HasWork<Self, RESET> for Life { self.work }
    impl HasWork<Self, HANDLERS> for Life { self.handlers }
}

impl Life {
    /// Of an adapter that is about to be enabled.
    pub(crate) fn new(
        pdev: &pci::Device,
        regs: Arc<Registers>,
        doorbells: Arc<Doorbells>,
        admin: Arc<Admin>,
        listeners: Arc<Listeners>,
        recovery: Arc<Recovery>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                state: Atomic::new(ALIVE),
                death: Atomic::new(Death::Unbound as u32),
                pdev: pdev.into(),
                regs,
                doorbells,
                admin,
                listeners,
                recovery,
                quiet <- Completion::new(),
                work <- new_work!("vrnic::Life"),
                handlers <- new_work!("vrnic::Life::handlers"),
            }),
            GFP_KERNEL,
        )
    }

    /// Whose life it is.
    pub(crate) fn device(&self) -> &pci::Device {
        &self.pdev
    }

    /// Whether it has died.
    pub(crate) fn is_dead(&self) -> bool {
        self.state.load(Acquire) != ALIVE
    }

    /// Whether it has died and touches no memory any more.
    pub(crate) fn is_quiet(&self) -> bool {
        self.state.load(Acquire) == QUIET
    }

    /// Runs an admin command; see [`Admin::execute`]. If the adapter has died this returns when it
    /// is quiet: what the command names may then be freed.
    pub(crate) fn execute<P: Request>(&self, opcode: Opcode, params: &P) -> Result<P::Result> {
        let result = self.admin.execute(opcode, params);
        if result.is_err() && self.is_dead() {
            self.quiet.wait_for_completion();
        }
        result
    }

    /// It has died: no command waits for it any more, everybody is told, and the reset begins.
    /// Callable in interrupts, and more than once.
    pub(crate) fn die(self: &Arc<Self>, death: Death) {
        if self.state.cmpxchg(ALIVE, DEAD, Full).is_err() {
            return;
        }
        self.death.store(death as u32, Relaxed);
        self.admin.kill();
        if death != Death::Unbound {
            self.listeners.report(DeviceEvent::Fatal);
        }
        let _ = self.recovery.quiescing().enqueue::<Arc<Self>, RESET>(self.clone());
    }

    /// Stops the adapter for good; on return it touches no memory any more.
    fn end(self: &Arc<Self>) {
        self.die(Death::Unbound);
        self.quiet.wait_for_completion();
        // The first starts the second, which nobody else does any more.
        flush::<_, RESET>(self);
        flush::<_, HANDLERS>(self);
    }

    /// An adapter that is quiet tells nobody of anything: has the handlers called that wait for what it has left
    /// undone. Callable in any context, within methods of the device too: one work item calls them later.
    pub(crate) fn call_handlers(self: &Arc<Self>) {
        let _ = self.recovery.quiescing().enqueue::<Arc<Self>, HANDLERS>(self.clone());
    }

    /// Whether it has died, in this way.
    fn died(&self, death: Death) -> bool {
        self.is_dead() && self.death.load(Relaxed) == death as u32
    }

    /// Makes a dead adapter quiet.
    fn quiesce(&self) {
        if self.died(Death::Silent) {
            self.wait_for_sign();
        }
        for _ in 0..ROUNDS {
            let start = Instant::<Monotonic>::now();
            let Err(error) = self.regs.reset() else { return };
            if stop_dma(&self.pdev) {
                return;
            }
            if error == ENODEV && start.elapsed() < AT_ONCE {
                dev_warn!(self.device(), "the adapter is gone\n");
                // Whoever answers in its place knew before it did.
                fsleep(AT_ONCE);
                return;
            }
            dev_err!(self.device(), "the adapter does not reset: {error:?}\n");
            self.wait_for_sign();
        }
        dev_err!(self.device(), "the adapter does not answer, and is taken for gone\n");
    }

    /// Waits until the heartbeat's word changes: it counts when the adapter goes on, and is
    /// cleared by a reset. Gives up after [`PATIENCE`].
    fn wait_for_sign(&self) {
        let Some(beat @ 1..) = self.doorbells.heartbeat() else { return };
        let start = Instant::<Monotonic>::now();
        while self.doorbells.heartbeat() == Some(beat) && start.elapsed() < PATIENCE {
            fsleep(POLL);
        }
    }
}

impl WorkItem<RESET> for Life {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.quiesce();
        this.doorbells.end_lives();
        this.state.store(QUIET, Release);
        this.quiet.complete_all();
        this.call_handlers();
        this.listeners.complete_users();
        if !this.died(Death::Unbound) {
            this.recovery.begin();
        }
    }
}

impl WorkItem<HANDLERS> for Life {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.listeners.complete_armed();
        this.listeners.report_last_wqes();
    }
}

/// Ends the adapter's life on drop, before what the adapter was given may go.
pub(crate) struct Lease(Arc<Life>);

impl Lease {
    /// The adapter is going to be enabled.
    pub(crate) fn new(life: Arc<Life>) -> Self {
        Self(life)
    }
}

impl core::ops::Deref for Lease {
    type Target = Arc<Life>;

    fn deref(&self) -> &Arc<Life> {
        &self.0
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.end();
    }
}
