//! The admin queue, and the usual commands as methods of [`Guest`].

use std::sync::Arc;

use anyhow::{Context, anyhow, ensure};
use vrnic_abi::admin::{
    Command, Completion, CreateCq, CreateEq, CreateQp, DeviceCaps, ModifyQp, Opcode, PARAMS_LEN,
    Pages, QueryParams, QueryQp, RESULT_LEN, RegMr, Stats, Status, Submission, command,
};
use vrnic_abi::qp::{Attr, AttrMask};
use vrnic_abi::{regs, stamp};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::guest::Guest;
use crate::ram::Ram;
use crate::wait;

/// Length of commands and completions in bytes.
const ENTRY: u64 = 64;

/// Why a command failed, by the device's own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The status.
    pub status: Status,
    /// Byte offset of the bad field, if the status is [`Status::BadParam`].
    pub detail: u32,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} (detail {})", self.status, self.detail)
    }
}

impl std::error::Error for Refused {}

/// The driver's side of the admin rings.
#[derive(Debug)]
pub struct AdminQueue {
    sq: u64,
    cq: u64,
    log: u32,
    pi: u32,
    ci: u32,
}

impl AdminQueue {
    pub(crate) fn new(ram: &Ram, log: u32) -> anyhow::Result<Self> {
        Ok(Self { sq: ram.alloc(ENTRY << log)?, cq: ram.alloc(ENTRY << log)?, log, pi: 0, ci: 0 })
    }

    /// Starts over, and gives the addresses of the rings.
    pub(crate) fn restart(&mut self, ram: &Ram) -> anyhow::Result<(u64, u64)> {
        let zeroes = vec![0; 64 << self.log];
        ram.write(self.cq, &zeroes)?;
        (self.pi, self.ci) = (0, 0);
        Ok((self.sq, self.cq))
    }

    /// Writes a command into the ring without starting it; gives its id.
    ///
    /// # Errors
    /// Never with a ring inside guest memory.
    pub fn post(&mut self, ram: &Ram, opcode: u16, params: &[u8; 56]) -> anyhow::Result<u32> {
        let id = self.pi;
        let command = Submission {
            opcode: U16::new(opcode),
            flags: U16::ZERO,
            id: U32::new(id),
            params: *params,
        };
        self.post_raw(ram, command.as_bytes())?;
        Ok(id)
    }

    /// Writes 64 bytes into the ring.
    ///
    /// # Errors
    /// Never with a ring inside guest memory.
    pub fn post_raw(&mut self, ram: &Ram, bytes: &[u8]) -> anyhow::Result<()> {
        let slot = u64::from(self.pi & ((1 << self.log) - 1));
        ram.write(self.sq + slot * ENTRY, bytes)?;
        self.pi = self.pi.wrapping_add(1);
        Ok(())
    }

    /// The producer index.
    #[must_use]
    pub fn producer(&self) -> u32 {
        self.pi
    }

    /// Takes the next completion, if there is one.
    ///
    /// # Errors
    /// Never with a ring inside guest memory.
    pub fn poll(&mut self, ram: &Ram) -> anyhow::Result<Option<Completion>> {
        let at = self.cq + u64::from(self.ci & ((1 << self.log) - 1)) * ENTRY;
        let word = ram.word32(at + 60)?.load(std::sync::atomic::Ordering::Acquire);
        if word != stamp(self.ci) {
            return Ok(None);
        }
        self.ci = self.ci.wrapping_add(1);
        let bytes = ram.read(at, 64)?;
        let completion = Completion::read_from_bytes(&bytes).map_err(|e| anyhow!("{e}"))?;
        Ok(Some(completion))
    }
}

/// The parameters of a command, with zeroes behind.
fn padded(params: &(impl IntoBytes + Immutable)) -> [u8; PARAMS_LEN] {
    let mut bytes = [0; PARAMS_LEN];
    // No parameters are longer.
    let _ = params.write_to_prefix(&mut bytes);
    bytes
}

/// The result of a command that was not refused.
fn accepted(completion: &Completion) -> anyhow::Result<&[u8; RESULT_LEN]> {
    match Status::from_raw(completion.status.get()).context("unknown status")? {
        Status::Ok => Ok(&completion.result),
        status => Err(anyhow::Error::new(Refused { status, detail: completion.detail.get() })),
    }
}

impl Guest {
    /// Runs a command given as bytes; gives its completion.
    ///
    /// # Errors
    /// When none comes.
    pub fn command_raw(&self, opcode: u16, params: &[u8; 56]) -> anyhow::Result<Completion> {
        self.with_admin(|queue| {
            let id = queue.post(&self.ram, opcode, params)?;
            self.set_register(regs::ADMIN_SQ_PI, queue.producer())?;
            let completion = wait::until("admin completion", || queue.poll(&self.ram))?;
            ensure!(completion.id.get() == id, "completion of another command");
            Ok(completion)
        })
    }

    /// Runs a typed command.
    ///
    /// # Errors
    /// [`Refused`] with the device's status, or another error when no completion comes.
    pub fn command<C: Command>(&self, params: &C::Params) -> anyhow::Result<C::Reply> {
        let completion = self.command_raw(C::OPCODE as u16, &padded(params))?;
        let result = accepted(&completion).with_context(|| format!("{:?}", C::OPCODE))?;
        let reply = C::Reply::read_from_prefix(result).map_err(|_| anyhow!("length of a result"));
        reply.map(|(reply, _)| reply)
    }

    /// Frees or destroys an object.
    ///
    /// # Errors
    /// Fails as [`Self::command`] does.
    pub fn destroy(&self, opcode: Opcode, id: u32) -> anyhow::Result<()> {
        let completion = self.command_raw(opcode as u16, &padded(&id.to_le_bytes()))?;
        accepted(&completion).with_context(|| format!("{opcode:?}")).map(|_| ())
    }

    /// A context.
    ///
    /// # Errors
    /// Fails as [`Self::command`] does.
    pub fn alloc_context(&self) -> anyhow::Result<u32> {
        Ok(self.command::<command::AllocContext>(&())?.get())
    }

    /// A UAR of a context.
    ///
    /// # Errors
    /// Fails as [`Self::command`] does.
    pub fn alloc_uar(&self, context: u32) -> anyhow::Result<u32> {
        Ok(self.command::<command::AllocUar>(&context.into())?.get())
    }

    /// A PD of a context.
    ///
    /// # Errors
    /// Fails as [`Self::command`] does.
    pub fn alloc_pd(&self, context: u32) -> anyhow::Result<u32> {
        Ok(self.command::<command::AllocPd>(&context.into())?.get())
    }

    /// A region; gives its key.
    ///
    /// # Errors
    /// Fails as [`Self::command`] does.
    pub fn reg_mr(&self, params: &RegMr) -> anyhow::Result<u32> {
        Ok(self.command::<command::RegMr>(params)?.get())
    }

    /// A region of contiguous pages, addressed by guest address.
    ///
    /// # Errors
    /// Fails as [`Self::command`] does.
    pub fn reg_flat(&self, pdn: u32, access: u32, addr: u64, len: u64) -> anyhow::Result<u32> {
        let pages = Pages::new(addr & !0xfff, 12, 0);
        self.reg_mr(&RegMr::new(pdn, access, addr, len, pages))
    }

    /// An event queue; gives number and slot.
    ///
    /// # Errors
    /// Fails as [`Self::command`] does.
    pub fn create_eq(&self, params: &CreateEq) -> anyhow::Result<(u32, u32)> {
        let result = self.command::<command::CreateEq>(params)?;
        Ok((result.eqn.get(), result.slot.get()))
    }

    /// A completion queue; gives number and slot.
    ///
    /// # Errors
    /// Fails as [`Self::command`] does.
    pub fn create_cq(&self, params: &CreateCq) -> anyhow::Result<(u32, u32)> {
        let result = self.command::<command::CreateCq>(params)?;
        Ok((result.cqn.get(), result.slot.get()))
    }

    /// A QP; gives number, slot and the offset of a device-resident send queue.
    ///
    /// # Errors
    /// Fails as [`Self::command`] does.
    pub fn create_qp(&self, params: &CreateQp) -> anyhow::Result<(u32, u32, u64)> {
        let result = self.command::<command::CreateQp>(params)?;
        Ok((result.qpn.get(), result.slot.get(), result.sq_offset.get()))
    }

    /// Sets attributes of a QP.
    ///
    /// # Errors
    /// Fails as [`Self::command`] does.
    pub fn modify_qp(&self, qpn: u32, mask: AttrMask, attr: &Attr) -> anyhow::Result<()> {
        let buffer = self.ram.alloc(size_of::<Attr>() as u64)?;
        self.ram.write(buffer, attr.as_bytes())?;
        let params = ModifyQp::new(qpn, mask.bits(), buffer);
        self.command::<command::ModifyQp>(&params)
    }

    /// Reads the attributes of a QP.
    ///
    /// # Errors
    /// Fails as [`Self::command`] does.
    pub fn query_qp(&self, qpn: u32) -> anyhow::Result<Attr> {
        let buffer = self.ram.alloc(size_of::<Attr>() as u64)?;
        self.command::<command::QueryQp>(&QueryQp::new(qpn, buffer))?;
        self.fetch(buffer)
    }

    /// Returns the device's capabilities.
    ///
    /// # Errors
    /// Fails as [`Self::command`] does.
    pub fn caps(&self) -> anyhow::Result<DeviceCaps> {
        let buffer = self.ram.alloc(size_of::<DeviceCaps>() as u64)?;
        let len = u32::try_from(size_of::<DeviceCaps>())?;
        self.command::<command::QueryDevice>(&QueryParams::new(buffer, len))?;
        self.fetch(buffer)
    }

    /// The counters.
    ///
    /// # Errors
    /// Fails as [`Self::command`] does.
    pub fn stats(&self) -> anyhow::Result<Stats> {
        let buffer = self.ram.alloc(size_of::<Stats>() as u64)?;
        let len = u32::try_from(size_of::<Stats>())?;
        self.command::<command::QueryStats>(&QueryParams::new(buffer, len))?;
        self.fetch(buffer)
    }

    fn fetch<T: FromBytes>(&self, addr: u64) -> anyhow::Result<T> {
        let bytes = self.ram.read(addr, size_of::<T>())?;
        T::read_from_bytes(&bytes).map_err(|_| anyhow!("length of a struct"))
    }

    /// Memory for a ring of `len` bytes, with its description.
    ///
    /// # Errors
    /// When memory is used up.
    pub fn ring_memory(&self, len: u64) -> anyhow::Result<(u64, Pages)> {
        let at = self.ram.alloc(len)?;
        Ok((at, Pages::new(at, 12, 0)))
    }

    /// The memory, to keep.
    #[must_use]
    pub fn memory(&self) -> Arc<Ram> {
        Arc::clone(&self.ram)
    }
}
