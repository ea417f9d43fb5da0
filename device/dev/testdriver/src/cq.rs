//! A completion queue, as a program sees it.

use std::sync::atomic::{Ordering, fence};

use vrnic_abi::admin::{CqFlags, CreateCq, ResizeCq, command};
use vrnic_abi::cq::{CQE_LEN, Cqe, STAMP_OFFSET, Status};
use vrnic_abi::doorbell::{CQ_SEEN, CQ_STATE, arm_request, ci_and_arm};
use vrnic_abi::stamp;
use vrnic_abi::uar::CqState;
use vrnic_queues::ring::Ring;

use crate::admin::Refused;
use crate::bus::Bus;
use crate::guest::Guest;
use crate::memory::{Ram, load, stamp_of, write};
use crate::wait;

/// log2 of the bytes of an entry.
const LOG_CQE: u8 = CQE_LEN.trailing_zeros() as u8;

/// The driver's side of a CQ.
pub struct CompletionQueue<B> {
    guest: Guest<B>,
    /// The number of the CQ.
    pub cqn: u32,
    /// The UAR of its slot.
    pub uar: u32,
    /// The doorbell slot of the CQ.
    pub slot: u32,
    /// Guest address of the ring.
    pub addr: u64,
    ring: Ring,
    /// The index of the next entry.
    pub ci: u32,
    /// Arm requests so far.
    pub arms: u32,
    /// True if the device may hold entries back.
    holding: bool,
}

impl<B: Bus> CompletionQueue<B> {
    /// Creates a CQ of `1 << log` entries.
    pub fn create(guest: &Guest<B>, uar: u32, eqn: u32, log: u8) -> Result<Self, Refused> {
        Self::create_with(guest, uar, eqn, log, |params| params)
    }

    /// Creates a CQ of `1 << log` entries with parameters that `tune` changes.
    pub fn create_with(
        guest: &Guest<B>,
        uar: u32,
        eqn: u32,
        log: u8,
        tune: impl FnOnce(CreateCq) -> CreateCq,
    ) -> Result<Self, Refused> {
        let addr = guest.ram().alloc(u64::from(CQE_LEN) << log);
        let ring = guest.ram().ring(addr, log, LOG_CQE).expect("guest memory");
        let params = tune(CreateCq::new(uar, eqn, log, Ram::pages(addr)));
        let result = guest.command::<command::CreateCq>(&params)?;
        let (cqn, slot) = (result.cqn.get(), result.slot.get());
        let holding = params.flags & CqFlags::HOLDING.bits() != 0;
        Ok(Self { guest: guest.clone(), cqn, uar, slot, addr, ring, ci: 0, arms: 0, holding })
    }

    /// Continues with `1 << log` entries at `addr`, as a driver does. Copies the entries that are
    /// still in the old ring.
    pub fn resize(&mut self, addr: u64, log: u8) -> Result<(), Refused> {
        let ring = self.guest.ram().ring(addr, log, LOG_CQE).expect("guest memory");
        for nth in 0..ring.size() {
            write(ring.entry(nth), STAMP_OFFSET as usize, &self.ci.to_le_bytes());
        }
        let params = ResizeCq::new(self.cqn, log, Ram::pages(addr));
        let first = self.guest.command::<command::ResizeCq>(&params)?.first.get();
        let mut index = self.ci;
        while index != first {
            let old = self.ring.entry(index);
            assert_eq!(stamp_of(old, STAMP_OFFSET), stamp(index), "entry {index} of the old ring");
            for (to, from) in ring.entry(index).iter().zip(old) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            index = index.wrapping_add(1);
        }
        (self.addr, self.ring) = (addr, ring);
        Ok(())
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.ring.size()
    }

    /// Returns the guest address of the next entry.
    #[must_use]
    pub fn next_addr(&self) -> u64 {
        self.addr + u64::from(self.ci % self.ring.size()) * u64::from(CQE_LEN)
    }

    /// Returns whether the next entry is there.
    #[must_use]
    #[inline]
    pub fn ready(&self) -> bool {
        stamp_of(self.ring.entry(self.ci), STAMP_OFFSET) == stamp(self.ci)
    }

    /// Returns the next entry, if it is there, and leaves it in its place.
    #[must_use]
    #[inline]
    pub fn peek(&self) -> Option<Cqe> {
        self.ready().then(|| load(self.ring.entry(self.ci)))
    }

    /// Takes the next entry and frees its place, if there is one.
    #[inline]
    pub fn poll(&mut self) -> Option<Cqe> {
        let entry = self.peek()?;
        self.ci = self.ci.wrapping_add(1);
        self.guest.slot32(self.uar, self.slot, 0).store(self.ci, Ordering::Release);
        if self.holding {
            fence(Ordering::SeqCst);
            if self.state() == Some(CqState::Full) {
                self.guest.ring(self.uar, self.slot);
            }
        }
        Some(entry)
    }

    /// Returns the state that the device has stored, if it is a valid one.
    #[must_use]
    pub fn state(&self) -> Option<CqState> {
        let word = self.guest.slot32(self.uar, self.slot, CQ_STATE);
        CqState::from_raw(word.load(Ordering::Acquire))
    }

    /// Takes the next entry, which must exist and be a success.
    #[track_caller]
    #[inline]
    pub fn poll_success(&mut self) {
        let entry = self.poll().expect("a completion");
        assert_eq!(entry.status, Status::Success as u8, "status of a completion");
    }

    /// Waits for the next entry.
    #[track_caller]
    pub fn wait(&mut self) -> Cqe {
        wait::until("completion", || self.poll())
    }

    /// Waits for the next entry and checks its status.
    #[track_caller]
    pub fn expect(&mut self, wr_id: u64, expected: Status) -> Cqe {
        let entry = self.wait();
        let (id, error) = (entry.wr_id.get(), entry.vendor_err.get());
        assert_eq!((id, status(&entry)), (wr_id, expected), "vendor error {error}");
        entry
    }

    /// Arms the CQ. `kind` is [`vrnic_abi::uar::ARM_NEXT`] or [`vrnic_abi::uar::ARM_SOLICITED`].
    pub fn arm(&mut self, kind: u32) {
        self.arm_from(kind, self.ci);
    }

    /// Arms the CQ for completions from the index `seen` on.
    pub fn arm_from(&mut self, kind: u32, seen: u32) {
        self.arms = self.arms.wrapping_add(1);
        let word = ci_and_arm(self.ci, arm_request(self.arms, kind));
        self.guest.slot32(self.uar, self.slot, CQ_SEEN).store(seen, Ordering::Release);
        self.guest.slot64(self.uar, self.slot).store(word, Ordering::Release);
        self.guest.ring(self.uar, self.slot);
    }
}

/// Returns the status of a completion.
#[must_use]
pub fn status(cqe: &Cqe) -> Status {
    Status::from_raw(cqe.status).expect("a known status")
}
