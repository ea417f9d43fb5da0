//! The admin queue: takes commands, hands them to the module of their object, writes completions.

mod inspect;
mod memory;
mod modify;
mod multicast;
mod objects;
mod queues;
mod srq;

use std::sync::Arc;

use vrnic_abi::admin::{Command, Completion, Opcode, PARAMS_LEN, RESULT_LEN, Status};
use vrnic_abi::eq::{self, Kind};
use vrnic_abi::pci::VECTOR_ASYNC;
use vrnic_abi::regs::{self, FatalCode};
use vrnic_abi::uar::ASYNC_EQ_SLOT;
use zerocopy::{FromBytes, IntoBytes};

use crate::control::registers::Rings;
use crate::function::Function;
use crate::host::{Host, Memory};
use crate::memory::pages::{PagesError, Ring};
use crate::objects::doorbell::Uar;
use crate::objects::eq::Eq;
use crate::objects::{Admin, Context};
use crate::stats::Counter;

/// Why a command failed.
#[derive(Clone, Copy, Debug, PartialEq, std::cmp::Eq)]
pub struct Failure {
    /// Contents of the completion.
    pub status: Status,
    /// With [`Status::BadParam`]: the offset of the parameter.
    pub detail: u32,
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self { status, detail: 0 }
    }
}

/// A bad parameter at this byte offset.
fn bad(offset: usize) -> Failure {
    Failure { status: Status::BadParam, detail: u32::try_from(offset).unwrap_or(u32::MAX) }
}

/// The failure of a memory description at this byte offset.
fn pages_failure(error: PagesError, offset: usize) -> Failure {
    match error {
        PagesError::Malformed => bad(offset),
        PagesError::Unreachable(_) => Status::BadAddress.into(),
        PagesError::TooMany => Status::NoResource.into(),
    }
}

type Outcome = Result<[u8; RESULT_LEN], Failure>;

/// A result without content.
fn done() -> Outcome {
    Ok([0; RESULT_LEN])
}

/// A result struct as bytes.
fn result(value: &(impl IntoBytes + zerocopy::Immutable)) -> Outcome {
    let mut bytes = [0; RESULT_LEN];
    let value = value.as_bytes();
    bytes.get_mut(..value.len()).ok_or(Status::Internal)?.copy_from_slice(value);
    Ok(bytes)
}

/// The parameter struct of a command.
fn params<T: FromBytes>(bytes: &[u8; PARAMS_LEN]) -> Result<T, Failure> {
    T::read_from_bytes(bytes).map_err(|_| Status::Internal.into())
}

/// Checks that reserved bytes, which start at `offset`, are zero.
fn zero(
    reserved: &(impl IntoBytes + zerocopy::Immutable + ?Sized),
    offset: usize,
) -> Result<(), Failure> {
    match reserved.as_bytes().iter().position(|byte| *byte != 0) {
        Some(at) => Err(bad(offset + at)),
        None => Ok(()),
    }
}

/// Takes the ring registers over and starts the queue.
pub fn enable<H: Host>(function: &Arc<Function<H>>) {
    let mut admin = function.objects.admin.lock();
    if admin.rings.is_some() || function.registers.status().contains(regs::Status::FATAL) {
        return;
    }
    let rings = function.registers.rings();
    if let Err(code) = check_rings(function, &rings) {
        return fatal(function, code);
    }
    let log = |size: u32| u8::try_from(size).unwrap_or(0);
    let ring = Ring::run(rings.async_eq, log(rings.async_eq_log_size), 4);
    let any_holding = Arc::clone(&function.objects.holding);
    let eq = Arc::new(Eq::new(0, VECTOR_ASYNC, ASYNC_EQ_SLOT, ring, any_holding));
    let objects = &function.objects;
    let context = objects.contexts.insert(|id| Ok::<_, Failure>(Context { id, users: 1.into() }));
    let uar = objects.uars.insert(|number| Ok::<_, Failure>(Uar::new(number, 0)));
    let (Ok(Some(_)), Ok(Some(uar))) = (context, uar) else {
        return fatal(function, FatalCode::Internal);
    };
    let slot = uar.take(None);
    debug_assert_eq!(slot, Some(ASYNC_EQ_SLOT));
    objects.refresh_uars();
    objects.refresh_eqs(&eq);
    *function.asynchronous.write() = Some(eq);
    *admin = Admin { rings: Some(rings), ci: 0, pi: 0 };
    function.wake_all();
    function.registers.set_enabled();
}

fn check_rings<H: Host>(function: &Function<H>, rings: &Rings) -> Result<(), FatalCode> {
    let logs = (2..=regs::ADMIN_LOG_SIZE_MAX).contains(&rings.admin_log_size)
        && (4..=eq::LOG_SIZE_MAX).contains(&rings.async_eq_log_size);
    let aligned =
        [rings.admin_sq, rings.admin_cq, rings.async_eq].iter().all(|addr| addr % 4096 == 0);
    if !logs || !aligned {
        return Err(FatalCode::BadRings);
    }
    let admin = 64 << rings.admin_log_size;
    let memory = function.host().memory();
    let reachable = memory.check(rings.admin_sq, admin, false).is_ok()
        && memory.check(rings.admin_cq, admin, true).is_ok()
        && memory.check(rings.async_eq, 16 << rings.async_eq_log_size, true).is_ok();
    if reachable { Ok(()) } else { Err(FatalCode::RingMemory) }
}

/// Gives up: nothing but the event below is done for the guest until the next reset.
fn fatal<H: Host>(function: &Function<H>, code: FatalCode) {
    function.warn(|name| {
        tracing::error!(function = name, ?code, "the adapter gives up until its next reset");
    });
    function.registers.set_fatal(code);
    function.halt();
    function.host().drain();
    function.report(Kind::DeviceFatal, code as u32);
}

/// Runs all commands that are posted.
pub fn run<H: Host>(function: &Arc<Function<H>>) {
    loop {
        let mut admin = function.objects.admin.lock();
        let Some(rings) = admin.rings else { return };
        if function.registers.status().contains(regs::Status::FATAL) {
            return;
        }
        let posted = function.registers.admin_pi().wrapping_sub(admin.ci);
        if posted == 0 {
            return;
        }
        if posted > 1 << rings.admin_log_size {
            return fatal(function, FatalCode::AdminIndex);
        }
        if one(function, &mut admin, &rings).is_none() {
            return fatal(function, FatalCode::RingMemory);
        }
    }
}

/// Runs one command; `None` when the rings cannot be reached.
fn one<H: Host>(function: &Arc<Function<H>>, admin: &mut Admin, rings: &Rings) -> Option<()> {
    let mask = (1u32 << rings.admin_log_size) - 1;
    let mut bytes = [0; size_of::<Command>()];
    let host = function.host();
    host.memory().read(rings.admin_sq + u64::from(admin.ci & mask) * 64, &mut bytes).ok()?;
    admin.ci = admin.ci.wrapping_add(1);
    let command = Command::read_from_bytes(&bytes).ok()?;
    function.stats().step(Counter::CompletedCmds);
    let outcome = execute(function, &command);
    let failure = outcome.err();
    if let Some(Failure { status, detail }) = failure {
        function.stats().step(Counter::CmdsErr);
        let (opcode, id) = (command.opcode.get(), command.id.get());
        tracing::debug!(
            function = function.name(),
            opcode,
            id,
            ?status,
            detail,
            "an admin command was refused"
        );
    }
    let completion = Completion {
        id: command.id,
        opcode: command.opcode,
        status: (failure.map_or(Status::Ok, |failure| failure.status) as u16).into(),
        result: outcome.unwrap_or([0; RESULT_LEN]),
        detail: failure.map_or(0, |failure| failure.detail).into(),
        stamp: vrnic_abi::stamp(admin.pi).into(),
    };
    host.memory()
        .write(rings.admin_cq + u64::from(admin.pi & mask) * 64, completion.as_bytes())
        .ok()?;
    admin.pi = admin.pi.wrapping_add(1);
    function.stats().step(Counter::Interrupts);
    host.raise(VECTOR_ASYNC);
    Some(())
}

fn execute<H: Host>(function: &Arc<Function<H>>, command: &Command) -> Outcome {
    let opcode = Opcode::from_raw(command.opcode.get()).ok_or(Status::BadOpcode)?;
    if command.flags.get() != 0 {
        return Err(bad(0));
    }
    let bytes = &command.params;
    match opcode {
        Opcode::QueryDevice => objects::query_device(function, &params(bytes)?),
        Opcode::QueryStats => objects::query_stats(function, &params(bytes)?),
        Opcode::Inspect => inspect::inspect(function, &params(bytes)?),
        Opcode::SetPort => objects::set_port(function, &params(bytes)?),
        Opcode::SetGid => objects::set_gid(function, &params(bytes)?),
        Opcode::AllocContext => objects::alloc_context(function, &params(bytes)?),
        Opcode::FreeContext => objects::free_context(function, object(bytes)?),
        Opcode::AllocUar => objects::alloc_uar(function, object(bytes)?),
        Opcode::FreeUar => objects::free_uar(function, object(bytes)?),
        Opcode::AllocPd => objects::alloc_pd(function, object(bytes)?),
        Opcode::FreePd => objects::free_pd(function, object(bytes)?),
        Opcode::RegMr => memory::reg_mr(function, &params(bytes)?),
        Opcode::DeregMr => memory::dereg_mr(function, object(bytes)?),
        Opcode::CreateEq => queues::create_eq(function, &params(bytes)?),
        Opcode::DestroyEq => queues::destroy_eq(function, object(bytes)?),
        Opcode::CreateCq => queues::create_cq(function, &params(bytes)?),
        Opcode::ModifyCq => queues::modify_cq(function, &params(bytes)?),
        Opcode::ResizeCq => queues::resize_cq(function, &params(bytes)?),
        Opcode::DestroyCq => queues::destroy_cq(function, object(bytes)?),
        Opcode::CreateQp => queues::create_qp(function, &params(bytes)?),
        Opcode::DestroyQp => queues::destroy_qp(function, object(bytes)?),
        Opcode::ModifyQp => modify::modify_qp(function, &params(bytes)?),
        Opcode::QueryQp => modify::query_qp(function, &params(bytes)?),
        Opcode::CreateSrq => srq::create_srq(function, &params(bytes)?),
        Opcode::DestroySrq => srq::destroy_srq(function, object(bytes)?),
        Opcode::ModifySrq => srq::modify_srq(function, &params(bytes)?),
        Opcode::QuerySrq => srq::query_srq(function, &params(bytes)?),
        Opcode::AllocXrcd => srq::alloc_xrcd(function, &params(bytes)?),
        Opcode::FreeXrcd => srq::free_xrcd(function, object(bytes)?),
        Opcode::AttachMcast => multicast::attach(function, &params(bytes)?),
        Opcode::DetachMcast => multicast::detach(function, &params(bytes)?),
        Opcode::ReregMr => memory::rereg_mr(function, &params(bytes)?),
        Opcode::AllocMr => memory::alloc_mr(function, &params(bytes)?),
        Opcode::AllocMw => memory::alloc_mw(function, &params(bytes)?),
        Opcode::DeallocMw => memory::dealloc_mw(function, object(bytes)?),
    }
}

/// The number in [`vrnic_abi::admin::ObjectId`].
fn object(bytes: &[u8; PARAMS_LEN]) -> Result<u32, Failure> {
    let params: vrnic_abi::admin::ObjectId = params(bytes)?;
    zero(&params.reserved, 4)?;
    Ok(params.id.get())
}
