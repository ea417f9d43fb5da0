//! A completion queue, as its reader sees it.

use std::sync::atomic::Ordering;

use anyhow::{Context, anyhow, ensure};
use vrnic_abi::admin::CreateCq;
use vrnic_abi::cq::{CQE_LEN, Cqe, STAMP_OFFSET, Status};
use vrnic_abi::doorbell::{CQ_SEEN, arm_request, ci_and_arm};
use vrnic_abi::stamp;
use zerocopy::FromBytes;

use crate::guest::Guest;
use crate::wait;

/// The driver's side of a CQ.
#[derive(Debug)]
pub struct CompletionQueue {
    /// Its number.
    pub cqn: u32,
    /// The UAR of its slot.
    pub uar: u32,
    /// Its slot.
    pub slot: u32,
    ring: u64,
    log: u8,
    ci: u32,
    arms: u32,
}

impl CompletionQueue {
    /// Creates a CQ of `1 << log` entries.
    ///
    /// # Errors
    /// Fails as [`Guest::command`] does.
    pub fn create(guest: &Guest, uar: u32, eqn: u32, log: u8) -> anyhow::Result<Self> {
        let (ring, pages) = guest.ring_memory(u64::from(CQE_LEN) << log)?;
        let (cqn, slot) = guest.create_cq(&CreateCq::new(uar, eqn, log, pages))?;
        Ok(Self { cqn, uar, slot, ring, log, ci: 0, arms: 0 })
    }

    /// Takes the next entry and gives its place back, if there is one.
    ///
    /// # Errors
    /// Never with a ring inside guest memory.
    pub fn poll(&mut self, guest: &Guest) -> anyhow::Result<Option<Cqe>> {
        let entry = self.peek(guest)?;
        if entry.is_some() {
            self.release(guest, 1)?;
        }
        Ok(entry)
    }

    /// Returns whether the next entry is there; takes no memory, unlike [`Self::poll`].
    ///
    /// # Errors
    /// Never with a ring inside guest memory.
    pub fn ready(&self, guest: &Guest) -> anyhow::Result<bool> {
        let word = guest.ram.word32(self.next() + u64::from(STAMP_OFFSET))?;
        Ok(word.load(Ordering::Acquire) == stamp(self.ci))
    }

    /// Takes the next entry, which is there and a success.
    ///
    /// # Errors
    /// When it is not.
    pub fn poll_success(&mut self, guest: &Guest) -> anyhow::Result<()> {
        ensure!(self.ready(guest)?, "no completion");
        let mut bytes = [0; CQE_LEN as usize];
        guest.ram.read_into(self.next(), &mut bytes)?;
        let entry = Cqe::read_from_bytes(&bytes).map_err(|e| anyhow!("{e}"))?;
        ensure!(entry.status == Status::Success as u8, "completion with status {}", entry.status);
        self.release(guest, 1)
    }

    /// Returns the address of the next entry.
    fn next(&self) -> u64 {
        self.ring + u64::from(self.ci & ((1 << self.log) - 1)) * u64::from(CQE_LEN)
    }

    /// Looks at the next entry.
    ///
    /// # Errors
    /// Never with a ring inside guest memory.
    pub fn peek(&self, guest: &Guest) -> anyhow::Result<Option<Cqe>> {
        if !self.ready(guest)? {
            return Ok(None);
        }
        let bytes = guest.ram.read(self.next(), CQE_LEN as usize)?;
        Cqe::read_from_bytes(&bytes).map(Some).map_err(|e| anyhow!("{e}"))
    }

    /// Gives entries back.
    ///
    /// # Errors
    /// Never with a slot inside BAR2.
    pub fn release(&mut self, guest: &Guest, entries: u32) -> anyhow::Result<()> {
        self.ci = self.ci.wrapping_add(entries);
        let word = guest.bar().word32(Guest::slot_offset(self.uar, self.slot)).context("slot")?;
        word.store(self.ci, Ordering::Release).context("slot")
    }

    /// Waits for the next entry.
    ///
    /// # Errors
    /// When none comes.
    pub fn wait(&mut self, guest: &Guest) -> anyhow::Result<Cqe> {
        wait::until("completion", || self.poll(guest))
    }

    /// Waits for the next entry and checks its status.
    ///
    /// # Errors
    /// When none comes, or another.
    pub fn expect(&mut self, guest: &Guest, wr_id: u64, status: Status) -> anyhow::Result<Cqe> {
        let entry = self.wait(guest)?;
        let got = Status::from_raw(entry.status).context("unknown status")?;
        ensure!(
            (entry.wr_id.get(), got) == (wr_id, status),
            "expected {status:?} of work request {wr_id:#x}, got {got:?} of {:#x} (vendor error {})",
            entry.wr_id.get(),
            entry.vendor_err.get()
        );
        Ok(entry)
    }

    /// Asks for an event; `kind` is [`vrnic_abi::uar::ARM_NEXT`] or
    /// [`vrnic_abi::uar::ARM_SOLICITED`].
    ///
    /// # Errors
    /// Fails if the server refuses a kick.
    pub fn arm(&mut self, guest: &Guest, kind: u32) -> anyhow::Result<()> {
        self.arms = self.arms.wrapping_add(1);
        let arm = arm_request(self.arms, kind);
        let word = guest.bar().word64(Guest::slot_offset(self.uar, self.slot)).context("slot")?;
        let value = ci_and_arm(self.ci, arm);
        let seen = Guest::slot_offset(self.uar, self.slot) + CQ_SEEN as usize;
        let seen = guest.bar().word32(seen).context("slot")?;
        seen.store(self.ci, Ordering::Release).context("slot")?;
        word.store(value, Ordering::Release).context("slot")?;
        guest.ring(self.uar, self.slot)
    }
}
