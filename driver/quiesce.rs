// SPDX-License-Identifier: GPL-2.0
//! The end of the adapter's liveness, by failure or by unbinding: alive → dead → quiet.
//!
//! An adapter that counts as dead may only have stalled. When it continues, it may write to all
//! memory whose address it was ever given. So none of this memory is freed before the adapter is
//! *quiet*: it has answered a reset, its bus mastering is off, or it was removed. Until then,
//! creation and destruction of objects wait in [`Liveness::execute`].

use abi::admin::Command;
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
    hw::{admin::Admin, pci::stop_dma, regs::Registers, uar::Doorbells},
    listeners::Listeners,
    rdma::event::DeviceEvent,
    workqueue::{OwnQueue, flush},
};

/// The states, which only ever increase.
const ALIVE: u32 = 0;
/// The driver sends no commands to the adapter any more.
const DEAD: u32 = 1;
/// The adapter touches no memory any more.
const QUIET: u32 = 2;

/// The time between two looks at a silent adapter's heartbeat.
const POLL: Delta = Delta::from_millis(100);
/// The time for which the registers of a silent adapter are not accessed. A register access to an
/// adapter that has stalled stops the whole machine for seconds, and may make a VMM disconnect the
/// adapter permanently. But only such an access distinguishes an adapter that stalls from one that
/// was removed.
const TIMEOUT: Delta = Delta::from_secs(40);
/// The number of attempts to reset an adapter that does not reset, and of which it is not certain
/// that it was removed.
const ROUNDS: u32 = 3;
/// The number of waits for a silent adapter that end early while somebody waits in order to free
/// memory of the whole machine. After the first attempt, a VMM that has disconnected the adapter
/// answers the second one at once.
const HURRIES: u32 = 2;
/// An access that fails in less time than this was not refused by an adapter that stalls.
const AT_ONCE: Delta = Delta::from_secs(1);

/// The reason for which an adapter counts as dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Cause {
    /// The adapter's heartbeat stands still.
    Silent,
    /// Nothing answers in its place.
    Gone,
    /// The adapter was reset, but not by this driver.
    Reset,
    /// The adapter reports a failure, or does not complete commands.
    Failed,
    /// The adapter is no longer needed.
    Unbound,
}

/// Brings an adapter up again.
pub(crate) trait Restart: Send + Sync {
    /// Starts to do so, in the background. Callable while the adapter is being brought up.
    fn restart(self: Arc<Self>);
}

/// The objects that are needed to continue when an adapter has died.
#[derive(Clone)]
pub(crate) struct AfterDeath {
    /// The workqueue that makes dead adapters quiet, and calls handlers in their place. The work of
    /// `restart` may wait for this queue, so it needs another one.
    pub(crate) queue: Arc<OwnQueue>,
    /// Called when an adapter that was not unbound is quiet.
    pub(crate) restart: Arc<dyn Restart>,
}

/// The state of an adapter, alive, dead or quiet, and the means to make it quiet.
#[pin_data]
pub(crate) struct Liveness {
    state: Atomic<u32>,
    /// The [`Cause`], as a number.
    cause: Atomic<u32>,
    /// True if the driver is about to unregister its RDMA devices.
    left: Atomic<bool>,
    /// Number of callers who wait for the adapter in order to free memory of the whole machine.
    urgent: Atomic<u32>,
    /// True while the heartbeat of a living adapter has not stepped for a second.
    stalled: Atomic<bool>,
    pdev: ARef<pci::Device>,
    regs: Arc<Registers>,
    doorbells: Arc<Doorbells>,
    admin: Arc<Admin>,
    listeners: Arc<Listeners>,
    after: AfterDeath,
    #[pin]
    quiet: Completion,
    #[pin]
    work: Work<Self, RESET>,
    /// See [`Liveness::call_handlers`].
    #[pin]
    handlers: Work<Self, HANDLERS>,
}

/// The work items: that which resets the adapter, and that which calls handlers.
const RESET: u64 = 0;
const HANDLERS: u64 = 1;

impl_has_work! {
    impl HasWork<Self, RESET> for Liveness { self.work }
    impl HasWork<Self, HANDLERS> for Liveness { self.handlers }
}

impl Liveness {
    /// Returns the state of an adapter that is about to be enabled.
    pub(crate) fn new(
        pdev: &pci::Device,
        regs: Arc<Registers>,
        doorbells: Arc<Doorbells>,
        admin: Arc<Admin>,
        listeners: Arc<Listeners>,
        after: AfterDeath,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                state: Atomic::new(ALIVE),
                cause: Atomic::new(Cause::Unbound as u32),
                left: Atomic::new(false),
                urgent: Atomic::new(0),
                stalled: Atomic::new(false),
                pdev: pdev.into(),
                regs,
                doorbells,
                admin,
                listeners,
                after,
                quiet <- Completion::new(),
                work <- new_work!("vrnic::Liveness"),
                handlers <- new_work!("vrnic::Liveness::handlers"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the device of the adapter.
    pub(crate) fn device(&self) -> &pci::Device {
        &self.pdev
    }

    /// Returns whether it has died.
    pub(crate) fn is_dead(&self) -> bool {
        self.state.load(Acquire) != ALIVE
    }

    /// Returns whether it has died and touches no memory any more.
    pub(crate) fn is_quiet(&self) -> bool {
        self.state.load(Acquire) == QUIET
    }

    /// Runs an admin command; see [`Admin::execute`]. If the adapter has died, this returns when
    /// the adapter is quiet, so that the caller may free the memory that the command names.
    pub(crate) fn execute<C: Command>(&self, params: &C::Params) -> Result<C::Reply> {
        let result = self.admin.execute::<C>(params);
        if result.is_err() && self.is_dead() {
            self.quiet.wait_for_completion();
        }
        result
    }

    /// Runs an admin command that names no memory, for a caller that has locks which others wait
    /// for, such as the RTNL. It waits without an access to a register while the adapter stalls.
    ///
    /// # Errors
    ///
    /// As for [`Self::execute`], but at once if the adapter has died.
    pub(crate) fn execute_briefly<C: Command>(&self, params: &C::Params) -> Result<C::Reply> {
        self.wait_while_stalled();
        self.admin.execute::<C>(params)
    }

    /// Waits while the adapter stalls, and has not died.
    pub(crate) fn wait_while_stalled(&self) {
        while self.stalled.load(Relaxed) && !self.is_dead() {
            fsleep(POLL);
        }
    }

    /// Runs a command as [`Self::execute`] does, for the thread that frees memory of the whole
    /// machine. If the adapter has died, less time passes until it is reset.
    pub(crate) fn execute_urgently<C: Command>(&self, params: &C::Params) -> Result<C::Reply> {
        self.urgent.fetch_add(1, Relaxed);
        let result = self.execute::<C>(params);
        self.urgent.fetch_sub(1, Relaxed);
        result
    }

    /// Makes an adapter quiet that may go on using memory after it was told not to.
    pub(crate) fn silence(self: &Arc<Self>) {
        if !self.is_quiet() {
            self.die(Cause::Failed);
            self.quiet.wait_for_completion();
        }
    }

    /// Records that the driver is about to unregister the RDMA devices. This waits for the calls of
    /// processes, so a call that waits for its own process must end.
    pub(crate) fn leave(&self) {
        self.left.store(true, Relaxed);
    }

    /// Returns whether the driver is about to unregister the RDMA devices.
    pub(crate) fn is_left(&self) -> bool {
        self.left.load(Relaxed)
    }

    /// Records whether the adapter stalls, which only the watch of its heartbeat knows.
    pub(crate) fn set_stalled(&self, stalled: bool) {
        self.stalled.store(stalled, Relaxed);
    }

    /// Declares it dead: ends the waits of commands, reports the event, and begins the reset.
    /// Callable in interrupts, and more than once.
    pub(crate) fn die(self: &Arc<Self>, cause: Cause) {
        if self.state.cmpxchg(ALIVE, DEAD, Full).is_err() {
            return;
        }
        self.cause.store(cause as u32, Relaxed);
        self.admin.kill();
        if cause != Cause::Unbound {
            self.listeners.report(DeviceEvent::Fatal);
        }
        self.listeners.tell_connections(|connections| connections.clone().died());
        let _ = self.after.queue.enqueue::<Arc<Self>, RESET>(self.clone());
    }

    /// Stops the adapter permanently. On return it does not access memory any more.
    fn end(self: &Arc<Self>) {
        self.die(Cause::Unbound);
        self.quiet.wait_for_completion();
        // The first work item starts the second one, and no other code starts it from now on.
        flush::<_, RESET>(self);
        flush::<_, HANDLERS>(self);
    }

    /// Schedules the handlers that wait for requests which a quiet adapter has not executed. Can be
    /// called in any context, also within methods of the device, because one work item calls the
    /// handlers later.
    pub(crate) fn call_handlers(self: &Arc<Self>) {
        let _ = self.after.queue.enqueue::<Arc<Self>, HANDLERS>(self.clone());
    }

    /// Returns whether it has died, in this way.
    fn died(&self, cause: Cause) -> bool {
        self.is_dead() && self.cause.load(Relaxed) == cause as u32
    }

    /// Makes a dead adapter quiet.
    fn quiesce(&self) {
        let (mut rounds, mut hurries) = (ROUNDS, HURRIES);
        if self.died(Cause::Silent) {
            self.wait_for_sign(&mut hurries);
        }
        while rounds > 0 {
            let start = Instant::<Monotonic>::now();
            let Err(error) = self.regs.reset() else { return };
            if stop_dma(&self.pdev) {
                return;
            }
            if error == ENODEV && start.elapsed() < AT_ONCE {
                dev_warn!(self.device(), "the adapter is gone\n");
                // The bus may answer instead of the adapter before the adapter itself has stopped.
                fsleep(AT_ONCE);
                return;
            }
            dev_err!(self.device(), "the adapter does not reset: {error:?}\n");
            // An attempt that came early does not show that the adapter was removed.
            rounds -= u32::from(self.wait_for_sign(&mut hurries));
        }
        dev_err!(self.device(), "the adapter does not answer and is treated as removed\n");
    }

    /// Waits until the heartbeat's word changes: it increases when the adapter continues, and a
    /// reset clears it. Gives up after [`TIMEOUT`], or earlier, as often as `hurries` says, if
    /// somebody waits in order to free memory. Returns false if it has given up earlier.
    fn wait_for_sign(&self, hurries: &mut u32) -> bool {
        let Some(beat @ 1..) = self.doorbells.heartbeat() else { return true };
        let start = Instant::<Monotonic>::now();
        while self.doorbells.heartbeat() == Some(beat) && start.elapsed() < TIMEOUT {
            fsleep(POLL);
            if *hurries > 0 && self.urgent.load(Relaxed) > 0 {
                *hurries -= 1;
                fsleep(AT_ONCE);
                return false;
            }
        }
        true
    }
}

impl WorkItem<RESET> for Liveness {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.quiesce();
        this.doorbells.end_lives();
        this.state.store(QUIET, Release);
        this.quiet.complete_all();
        this.call_handlers();
        this.listeners.complete_users();
        if !this.died(Cause::Unbound) {
            this.after.restart.clone().restart();
        }
    }
}

impl WorkItem<HANDLERS> for Liveness {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.listeners.complete_armed();
        this.listeners.report_last_wqes();
    }
}

/// Ends the adapter's liveness on drop, before the memory that the adapter uses may be freed.
pub(crate) struct QuiesceGuard(Arc<Liveness>);

impl QuiesceGuard {
    /// Creates the guard of an adapter that is about to be enabled.
    pub(crate) fn new(liveness: Arc<Liveness>) -> Self {
        Self(liveness)
    }
}

impl core::ops::Deref for QuiesceGuard {
    type Target = Arc<Liveness>;

    fn deref(&self) -> &Arc<Liveness> {
        &self.0
    }
}

impl Drop for QuiesceGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}
