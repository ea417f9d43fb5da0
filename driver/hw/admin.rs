// SPDX-License-Identifier: GPL-2.0
//! The admin queue: typed commands, many outstanding, completed by interrupt.
//!
//! A command waits uninterruptibly for its completion, so that no memory that it names is freed
//! while the adapter may use it. [`Admin::kill`] ends all waits when the adapter has died.

use abi::{
    admin::{Command, Completion, PARAMS_LEN, Status, Submission},
    regs,
};
use kernel::{
    debugfs::Writer,
    device, fmt, new_condvar, new_mutex, new_spinlock_irq,
    prelude::*,
    sync::{
        Arc, CondVar, Mutex, SpinLockIrq,
        aref::ARef,
        barrier::{Read, dma_mb},
    },
};
use zerocopy::{FromBytes, IntoBytes};

use super::{
    regs::Registers,
    ring::{Ring, RingShape},
};

/// log2 of the entries of both rings.
const LOG_SIZE: u8 = 6;
/// The shape of both rings: a command has as many bytes as a completion.
const SHAPE: RingShape = RingShape { log_size: LOG_SIZE, log_stride: 6 };
/// Calls of [`Admin::tick`] that a command may take before the adapter counts as dead.
const MAX_TICKS: u32 = 60;

/// A place for an outstanding command; its index is the command's id.
enum Slot {
    Free,
    /// The adapter has had the command for this many ticks.
    Waiting(u32),
    Done(Completion),
}

struct State {
    /// Producer index of the submission ring.
    pi: u32,
    /// Consumer index of the completion ring.
    ci: u32,
    slots: KVec<Slot>,
    dead: bool,
}

/// The admin queue.
#[pin_data]
pub(crate) struct Admin {
    device: ARef<device::Device>,
    submissions: Ring,
    completions: Ring,
    regs: Arc<Registers>,
    #[pin]
    state: SpinLockIrq<State>,
    /// The producer index that was last written to the adapter. The write is trapped, and waits for
    /// the process that serves the adapter, so it happens with interrupts on and without the lock
    /// of `state`, which interrupts take.
    #[pin]
    rung: Mutex<u32>,
    /// Notified when a slot gets free.
    freed: Pin<KBox<CondVar>>,
    /// By slot: notified when its command completes.
    completed: KVec<Pin<KBox<CondVar>>>,
}

impl Admin {
    /// Creates the rings and writes their addresses to the adapter, which has been reset.
    pub(crate) fn new(
        device: &device::Device<device::Bound>,
        regs: Arc<Registers>,
    ) -> Result<Arc<Self>> {
        let submissions = Ring::new(device, SHAPE)?;
        let completions = Ring::new(device, SHAPE)?;
        let mut slots = KVec::with_capacity(1 << LOG_SIZE, GFP_KERNEL)?;
        let mut completed = KVec::with_capacity(1 << LOG_SIZE, GFP_KERNEL)?;
        for _ in 0..1 << LOG_SIZE {
            slots.push(Slot::Free, GFP_KERNEL)?;
            let waits = KBox::pin_init(new_condvar!("vrnic::Admin::completed"), GFP_KERNEL)?;
            completed.push(waits, GFP_KERNEL)?;
        }
        regs.write_pair(regs::ADMIN_SQ_LO, submissions.dma_address());
        regs.write_pair(regs::ADMIN_CQ_LO, completions.dma_address());
        regs.write(regs::ADMIN_LOG_SIZE, LOG_SIZE.into());
        let state = State { pi: 0, ci: 0, slots, dead: false };
        let freed = KBox::pin_init(new_condvar!("vrnic::Admin::freed"), GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                device: device.into(),
                submissions,
                completions,
                regs,
                state <- new_spinlock_irq!(state, "vrnic::Admin"),
                rung <- new_mutex!(0, "vrnic::Admin::rung"),
                freed,
                completed,
            }),
            GFP_KERNEL,
        )
    }

    /// Runs a command; sleeps.
    ///
    /// # Errors
    ///
    /// The adapter's status as an error number. `EIO`, without waiting, if the adapter is dead: it
    /// may still use the memory that the command names (see [`crate::quiesce`]).
    pub(crate) fn execute<C: Command>(&self, params: &C::Params) -> Result<C::Reply> {
        let mut submission = Submission {
            // CAST: the enum's number.
            opcode: (C::OPCODE as u16).into(),
            flags: 0.into(),
            id: 0.into(),
            params: [0; PARAMS_LEN],
        };
        params.write_to_prefix(&mut submission.params).map_err(|_| EINVAL)?;
        let completion = self.run(&mut submission)?;
        let status = Status::from_raw(completion.status.get()).ok_or(EIO)?;
        if status != Status::Ok {
            let detail = completion.detail.get();
            dev_dbg!(self.device, "{:?} failed: {status:?}, detail {detail}\n", C::OPCODE);
            return Err(Error::from_errno(-i32::from(status.errno())));
        }
        C::Reply::read_from_prefix(&completion.result).map(|(reply, _)| reply).map_err(|_| EIO)
    }

    fn run(&self, submission: &mut Submission) -> Result<Completion> {
        let mut state = self.state.lock();
        let index = loop {
            if state.dead {
                return Err(EIO);
            }
            if let Some(index) = state.slots.iter().position(|slot| matches!(slot, Slot::Free)) {
                break index;
            }
            self.freed.wait(&mut state);
        };
        let completed = self.completed.get(index).ok_or(EINVAL)?;
        submission.id = u32::try_from(index)?.into();
        self.submissions.write(state.pi, submission.as_bytes())?;
        state.pi = state.pi.wrapping_add(1);
        set(&mut state, index, Slot::Waiting(0));
        drop(state);
        self.ring();
        let mut state = self.state.lock();
        loop {
            if let Some(Slot::Done(completion)) = state.slots.get(index) {
                let completion = *completion;
                set(&mut state, index, Slot::Free);
                self.freed.notify_one();
                return Ok(completion);
            }
            if state.dead {
                return Err(EIO);
            }
            completed.wait(&mut state);
        }
    }

    /// Tells the adapter of the entries that have been written, unless a later call has done so.
    fn ring(&self) {
        let mut rung = self.rung.lock();
        let pi = self.state.lock().pi;
        if *rung != pi {
            *rung = pi;
            // The trapped write orders the entries before it.
            self.regs.write(regs::ADMIN_SQ_PI, pi);
        }
    }

    /// Takes completions, up to a maximum number; called by the interrupt handler. Returns their
    /// number.
    pub(crate) fn take(&self, limit: u32) -> Result<u32> {
        let mut state = self.state.lock();
        let first = state.ci;
        let offset = core::mem::offset_of!(Completion, stamp) as u32;
        while state.ci.wrapping_sub(first) < limit
            && self.completions.word(state.ci, offset)? == abi::stamp(state.ci)
        {
            // The rest of the entry was written before its stamp.
            dma_mb(Read);
            let completion: Completion = self.completions.read(state.ci)?;
            state.ci = state.ci.wrapping_add(1);
            let id = completion.id.get();
            match state.slots.get_mut(id as usize) {
                Some(slot @ Slot::Waiting(_)) => {
                    *slot = Slot::Done(completion);
                    // CAST: an index of the slots.
                    self.completed
                        .get(id as usize)
                        .into_iter()
                        .for_each(|waits| waits.notify_one());
                }
                _ => dev_warn!(
                    self.device,
                    "the adapter has completed admin command {id}, which is not outstanding\n"
                ),
            }
        }
        Ok(state.ci.wrapping_sub(first))
    }

    /// Returns whether a command waits for too long. To be called at intervals.
    pub(crate) fn tick(&self) -> bool {
        let mut late = false;
        for slot in &mut self.state.lock().slots {
            if let Slot::Waiting(ticks) = slot {
                *ticks += 1;
                late |= *ticks > MAX_TICKS;
            }
        }
        late
    }

    /// Ends all waits because the adapter has died. All later commands fail.
    pub(crate) fn kill(&self) {
        self.state.lock().dead = true;
        self.freed.notify_all();
        self.completed.iter().for_each(|waits| waits.notify_all());
    }
}

/// The admin queue as its debugfs file shows it.
pub(crate) struct AdminState(Arc<Admin>);

impl AdminState {
    /// Returns the state of this queue.
    pub(crate) fn new(admin: Arc<Admin>) -> Self {
        Self(admin)
    }
}

impl Writer for AdminState {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pi, ci, waiting, dead) = {
            let state = self.0.state.lock();
            let waiting = |slot: &&Slot| matches!(slot, Slot::Waiting(_));
            (state.pi, state.ci, state.slots.iter().filter(waiting).count(), state.dead)
        };
        let size = 1u32 << LOG_SIZE;
        f.write_fmt(fmt!(
            "size {size} producer {pi} consumer {ci} outstanding {waiting} dead {}\n",
            u8::from(dead)
        ))
    }
}

fn set(state: &mut State, index: usize, value: Slot) {
    if let Some(slot) = state.slots.get_mut(index) {
        *slot = value;
    }
}
