// SPDX-License-Identifier: GPL-2.0
//! Watches the adapter's heartbeat. This is necessary because stores into its memory still succeed
//! when it has died.

use abi::regs::HEARTBEAT_DEAD_MS;
use kernel::{
    impl_has_hr_timer,
    prelude::*,
    sync::{
        Arc, ArcBorrow,
        atomic::{Atomic, Relaxed},
    },
    time::{
        Delta, Monotonic,
        hrtimer::{
            ArcHrTimerHandle, HrTimer, HrTimerCallback, HrTimerCallbackContext, HrTimerPointer,
            HrTimerRestart, RelativeMode,
        },
    },
};

use crate::{
    hw::{admin::Admin, uar::Doorbells},
    quiesce::{Cause, Liveness},
};

/// Time between two checks, in milliseconds.
const PERIOD_MS: u32 = 500;
/// Number of checks without a new heartbeat after which the adapter is considered dead.
const MAX_MISSES: u32 = HEARTBEAT_DEAD_MS.div_ceil(PERIOD_MS);
/// Number of checks without a new heartbeat after which the adapter is considered stalled.
const STALL_MISSES: u32 = 2;

/// The watch; ends when the handle of [`Health::start`] is dropped.
#[pin_data]
pub(crate) struct Health {
    #[pin]
    timer: HrTimer<Self>,
    doorbells: Arc<Doorbells>,
    admin: Arc<Admin>,
    liveness: Arc<Liveness>,
    last: Atomic<u64>,
    misses: Atomic<u32>,
}

impl Health {
    /// Starts to watch the heartbeat.
    pub(crate) fn start(
        doorbells: Arc<Doorbells>,
        admin: Arc<Admin>,
        liveness: Arc<Liveness>,
    ) -> Result<ArcHrTimerHandle<Self>> {
        let health = Arc::pin_init(
            pin_init!(Self {
                timer <- HrTimer::new(),
                doorbells,
                admin,
                liveness,
                last: Atomic::new(0),
                misses: Atomic::new(0),
            }),
            GFP_KERNEL,
        )?;
        Ok(health.start(period()))
    }

    /// Checks the adapter. Returns the cause if it has died.
    fn check(&self) -> Option<Cause> {
        let Some(beat) = self.doorbells.heartbeat() else {
            dev_err!(self.liveness.device(), "the adapter no longer answers\n");
            return Some(Cause::Gone);
        };
        let last = self.last.xchg(beat, Relaxed);
        // The heartbeat counts from 1, and a reset clears it.
        if beat == 0 && last != 0 {
            dev_err!(
                self.liveness.device(),
                "something other than this driver has reset the adapter\n"
            );
            return Some(Cause::Reset);
        }
        let misses = if beat != last { 0 } else { self.misses.load(Relaxed) + 1 };
        self.misses.store(misses, Relaxed);
        self.liveness.set_stalled(misses >= STALL_MISSES);
        if misses >= MAX_MISSES {
            dev_err!(
                self.liveness.device(),
                "the adapter has stopped: no heartbeat for {HEARTBEAT_DEAD_MS} ms\n"
            );
            return Some(Cause::Silent);
        }
        if self.admin.tick() {
            dev_err!(
                self.liveness.device(),
                "the adapter has stopped: it does not complete an admin command\n"
            );
            return Some(Cause::Failed);
        }
        None
    }
}

fn period() -> Delta {
    Delta::from_millis(PERIOD_MS.into())
}

impl HrTimerCallback for Health {
    type Pointer<'a> = Arc<Self>;

    fn run(
        this: ArcBorrow<'_, Self>,
        mut context: HrTimerCallbackContext<'_, Self>,
    ) -> HrTimerRestart {
        if this.liveness.is_dead() {
            return HrTimerRestart::NoRestart;
        }
        if let Some(cause) = this.check() {
            this.liveness.die(cause);
            return HrTimerRestart::NoRestart;
        }
        context.forward_now(period());
        HrTimerRestart::Restart
    }
}

impl_has_hr_timer! {
    impl HasHrTimer<Self> for Health {
        mode: RelativeMode<Monotonic>, field: self.timer
    }
}
