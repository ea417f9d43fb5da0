//! The admin queue: reads commands, passes them to the module of their object, and writes
//! completions.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `objects` | QUERY_DEVICE, the GID table, the port, contexts, UARs and PDs |
//! | `memory` | regions and windows |
//! | `paging` | MAP_PAGES and UNMAP_PAGES |
//! | `queues` | EQs, CQs and QPs |
//! | `modify` | MODIFY_QP and QUERY_QP |
//! | `depths` | MODIFY_QP of the numbers of READs on a connection of iWARP |
//! | `srq` | SRQs and XRC domains |
//! | `counters` | counters of the function, and sets of counters |
//! | `multicast` | ATTACH_MCAST and DETACH_MCAST |
//! | `connection` | OPEN_CONNECTION, QUERY_CONNECTION, MOVE_CONNECTION, START_RDMA, CLOSE_CONNECTION, SET_ISCSI, END_COMMAND |
//! | `flows` | CREATE_FLOW and DESTROY_FLOW |
//! | `spread` | the tables of QPs that spread frames over others |
//! | `direct` | address ranges of direct transfers |
//! | `inspect` | INSPECT |
//! | `faults` | EDIT_FAULTS and LIST_FAULTS |

mod connection;
mod counters;
mod depths;
mod direct;
mod faults;
mod flows;
mod inspect;
mod memory;
mod modify;
mod multicast;
mod objects;
mod paging;
mod queues;
mod spread;
mod srq;

use std::sync::Arc;

use vrnic_abi::admin::{
    Command, Completion, Opcode, PARAMS_LEN, RESULT_LEN, Status, Submission, Transport, command,
};
use vrnic_abi::doorbell::Doorbell;
use vrnic_abi::eq::{self, Kind};
use vrnic_abi::pci::VECTOR_ASYNC;
use vrnic_abi::regs::{self, FatalCode};
use vrnic_abi::uar::ASYNC_EQ_SLOT;
use vrnic_abi::{ContextId, Eqn};
use vrnic_abi::{SlotIndex, UarIndex};
use vrnic_faults::Site;
use zerocopy::{FromBytes, IntoBytes};

use crate::adapter::Adapter;
use crate::host::{HeldMemory, Host, Lane};
use crate::memory::pages::{PagesError, Ring};
use crate::objects::eq::EventQueue;
use crate::objects::faults::injection::CommandFate;
use crate::objects::uar::Uar;
use crate::objects::{Admin, Context};
use crate::registers::Rings;
use crate::stats::Counter;

/// The reason for which a command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The status in the completion.
    pub status: Status,
    /// With [`Status::BadParam`], the offset of the parameter.
    pub detail: u32,
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self { status, detail: 0 }
    }
}

/// Returns the failure for a bad parameter at this byte offset.
fn bad(offset: usize) -> Failure {
    Failure { status: Status::BadParam, detail: u32::try_from(offset).unwrap_or(u32::MAX) }
}

/// Returns the failure for a memory description at this byte offset.
fn pages_failure(error: PagesError, offset: usize) -> Failure {
    match error {
        PagesError::Malformed => bad(offset),
        PagesError::Unreachable(_) => Status::BadAddress.into(),
        PagesError::TooMany => Status::NoResource.into(),
    }
}

/// The result of a handler: the command's result, or the reason for its failure.
type Outcome<Reply> = Result<Reply, Failure>;

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

/// Reads the ring registers and starts the queue.
pub fn enable<H: Host>(adapter: &Arc<Adapter<H>>) {
    let mut admin = adapter.objects.admin.lock();
    if admin.rings.is_some() || adapter.registers.status().contains(regs::Status::FATAL) {
        return;
    }
    let rings = adapter.registers.rings();
    if let Err(code) = check_rings(adapter, &rings) {
        return fatal(adapter, code);
    }
    let log = |size: u32| u8::try_from(size).unwrap_or(0);
    let ring = Ring::run(rings.async_eq, log(rings.async_eq_log_size), 4);
    let any_holding = Arc::clone(&adapter.objects.holding);
    let doorbell = Doorbell::new(UarIndex::new(0), SlotIndex::new(ASYNC_EQ_SLOT));
    let eq = Arc::new(EventQueue::new(Eqn::new(0), VECTOR_ASYNC, doorbell, ring, any_holding));
    let objects = &adapter.objects;
    let context = objects.contexts.insert(|id| Ok::<_, Failure>(Context { id, users: 1.into() }));
    let domain = adapter.core().domain();
    let uar =
        objects.uars.insert(|number| Ok::<_, Failure>(Uar::new(number, domain, ContextId::new(0))));
    let (Ok(Some(_)), Ok(Some(uar))) = (context, uar) else {
        return fatal(adapter, FatalCode::Internal);
    };
    let taken = uar.take(None);
    debug_assert_eq!(taken, Some(eq.doorbell));
    objects.refresh_uars();
    objects.refresh_eqs(&eq);
    *adapter.core().asynchronous.write() = Some(eq);
    *admin = Admin { rings: Some(rings), ci: 0, pi: 0 };
    adapter.wake_all();
    adapter.registers.set_enabled();
}

fn check_rings<H: Host>(adapter: &Adapter<H>, rings: &Rings) -> Result<(), FatalCode> {
    let logs = (2..=regs::ADMIN_LOG_SIZE_MAX).contains(&rings.admin_log_size)
        && (4..=eq::LOG_SIZE_MAX).contains(&rings.async_eq_log_size);
    let aligned = [rings.admin_sq, rings.admin_cq, rings.async_eq]
        .iter()
        .all(|addr| addr.is_multiple_of(4096));
    if !logs || !aligned {
        return Err(FatalCode::BadRings);
    }
    let admin = 64 << rings.admin_log_size;
    let memory = adapter.host().hold(Lane::SHARED);
    let reachable = memory.check(rings.admin_sq, admin, false).is_ok()
        && memory.check(rings.admin_cq, admin, true).is_ok()
        && memory.check(rings.async_eq, 16 << rings.async_eq_log_size, true).is_ok();
    if reachable { Ok(()) } else { Err(FatalCode::RingMemory) }
}

/// Stops the adapter after an error.
fn fatal<H: Host>(adapter: &Adapter<H>, code: FatalCode) {
    adapter.core().warn(|name| {
        tracing::error!(
            function = name,
            ?code,
            "the adapter has failed, and does nothing until its next reset"
        );
    });
    stop(adapter, code);
}

/// Stops the adapter. Only the event of [`tell_failure`] is still delivered to the guest before the
/// next reset.
pub(super) fn stop<H: Host>(adapter: &Adapter<H>, code: FatalCode) {
    adapter.registers.set_fatal(code);
    adapter.halt();
    adapter.end_accesses();
}

/// Reports a failure to the driver, if there is one that it does not know, when nothing accesses
/// guest memory any more. The caller is the control thread, and holds no lock.
pub(super) fn tell_failure<H: Host>(adapter: &Adapter<H>) {
    if let Some(code) = adapter.registers.take_untold() {
        adapter.host().wait_until_quiet();
        adapter.core().report(Kind::DeviceFatal, code);
    }
}

/// Runs all posted commands.
pub fn run<H: Host>(adapter: &Arc<Adapter<H>>) {
    loop {
        let mut admin = adapter.objects.admin.lock();
        let Some(rings) = admin.rings else { return };
        if adapter.registers.status().contains(regs::Status::FATAL) {
            return;
        }
        let posted = adapter.registers.admin_pi().wrapping_sub(admin.ci);
        if posted == 0 {
            return;
        }
        if posted > 1 << rings.admin_log_size {
            return fatal(adapter, FatalCode::AdminIndex);
        }
        match one(adapter, &mut admin, &rings) {
            Some(Next::On) => {}
            Some(Next::Later) => return,
            None => return fatal(adapter, FatalCode::RingMemory),
        }
    }
}

/// What follows a command.
enum Next {
    /// The next command is executed.
    On,
    /// Nothing, because a rule for faults holds the command back, or a reset has been requested.
    Later,
}

/// Runs one command. Returns `None` if the rings cannot be accessed.
fn one<H: Host>(adapter: &Arc<Adapter<H>>, admin: &mut Admin, rings: &Rings) -> Option<Next> {
    if adapter.registers.is_interrupted() {
        return Some(Next::Later);
    }
    let mask = (1u32 << rings.admin_log_size) - 1;
    let mut bytes = [0; size_of::<Submission>()];
    let host = adapter.host();
    host.hold(Lane::SHARED)
        .read(rings.admin_sq.checked_add(u64::from(admin.ci & mask) * 64)?, &mut bytes)
        .ok()?;
    let command = Submission::read_from_bytes(&bytes).ok()?;
    let fate = fate(adapter, admin.ci, &command);
    if fate == CommandFate::Waits {
        return Some(Next::Later);
    }
    admin.ci = admin.ci.wrapping_add(1);
    adapter.stats().step(Counter::CompletedCmds);
    let outcome = match fate {
        CommandFate::Lost => return Some(Next::On),
        CommandFate::Fails(status) => Err(status.into()),
        CommandFate::Runs | CommandFate::Waits => execute(adapter, &command),
    };
    if adapter.registers.is_interrupted() {
        // What the command has ended may be in use until the end of the reset.
        return Some(Next::Later);
    }
    let failure = outcome.err();
    if let Some(Failure { status, detail }) = failure {
        adapter.stats().step(Counter::CmdsErr);
        let (opcode, id) = (command.opcode.get(), command.id.get());
        tracing::debug!(
            function = adapter.name(),
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
    host.hold(Lane::SHARED)
        .write(rings.admin_cq.checked_add(u64::from(admin.pi & mask) * 64)?, completion.as_bytes())
        .ok()?;
    admin.pi = admin.pi.wrapping_add(1);
    adapter.stats().step(Counter::Interrupts);
    adapter.core().caller(Lane::SHARED).raise(VECTOR_ASYNC);
    Some(Next::On)
}

/// Lets rules for faults decide on the command with this index.
fn fate<H: Host>(adapter: &Adapter<H>, index: u32, submission: &Submission) -> CommandFate {
    let core = adapter.core();
    let opcode = || Opcode::from_raw(submission.opcode.get());
    if core.injection.looks_at(Site::Command)
        && let Some(opcode) = opcode()
    {
        return core.injection.command(core.here(), index, opcode);
    }
    core.injection.forget_command();
    CommandFate::Runs
}

/// Executes a command.
fn execute<H: Host>(
    adapter: &Arc<Adapter<H>>,
    submission: &Submission,
) -> Outcome<[u8; RESULT_LEN]> {
    let opcode = opcode_of(submission, adapter.transport())?;
    /// Calls the handler of an opcode.
    macro_rules! dispatch {
        ($($name:ident => $handler:path,)+) => {
            match opcode {
                $(Opcode::$name => run_as::<command::$name>(&submission.params, |params| {
                    $handler(adapter, params)
                }),)+
            }
        };
    }
    dispatch! {
        QueryDevice => objects::query_device,
        QueryStats => counters::query_stats,
        SetGid => objects::set_gid,
        CreateEq => queues::create_eq,
        DestroyEq => queues::destroy_eq,
        AllocContext => objects::alloc_context,
        FreeContext => objects::free_context,
        AllocUar => objects::alloc_uar,
        FreeUar => objects::free_uar,
        AllocPd => objects::alloc_pd,
        FreePd => objects::free_pd,
        RegMr => memory::reg_mr,
        DeregMr => memory::dereg_mr,
        RevokeMr => memory::revoke_mr,
        CreateCq => queues::create_cq,
        DestroyCq => queues::destroy_cq,
        CreateQp => queues::create_qp,
        DestroyQp => queues::destroy_qp,
        ModifyQp => modify::modify_qp,
        QueryQp => modify::query_qp,
        ReregMr => memory::rereg_mr,
        AllocMr => memory::alloc_mr,
        AllocMw => memory::alloc_mw,
        DeallocMw => memory::dealloc_mw,
        ModifyCq => queues::modify_cq,
        CreateSrq => srq::create_srq,
        DestroySrq => srq::destroy_srq,
        ModifySrq => srq::modify_srq,
        QuerySrq => srq::query_srq,
        AllocXrcd => srq::alloc_xrcd,
        FreeXrcd => srq::free_xrcd,
        ResizeCq => queues::resize_cq,
        ResizeSrq => srq::resize_srq,
        CreateCounters => counters::create,
        DestroyCounters => counters::destroy,
        BindCounters => counters::bind,
        QueryCounters => counters::query,
        SwitchCounter => counters::switch,
        QueryOptional => counters::query_optional,
        AttachMcast => multicast::attach,
        DetachMcast => multicast::detach,
        SetPort => objects::set_port,
        Inspect => inspect::inspect,
        EditFaults => faults::edit,
        ListFaults => faults::list,
        OpenConnection => connection::open_connection,
        QueryConnection => connection::query_connection,
        SetWindow => direct::set_window,
        QueryWindow => direct::query_window,
        ArmRange => direct::arm_range,
        EndRange => direct::end_range,
        QueryRange => direct::query_range,
        MoveConnection => connection::move_connection,
        StartRdma => connection::start_rdma,
        CloseConnection => connection::close_connection,
        SetIscsi => connection::set_iscsi,
        EndCommand => connection::end_command,
        MapPages => paging::map_pages,
        UnmapPages => paging::unmap_pages,
        CreateFlow => flows::create_flow,
        DestroyFlow => flows::destroy_flow,
    }
}

/// Returns the opcode of a command, if an adapter of this protocol has it.
fn opcode_of(submission: &Submission, transport: Transport) -> Outcome<Opcode> {
    let opcode = Opcode::from_raw(submission.opcode.get()).ok_or(Status::BadOpcode)?;
    if submission.flags.get() != 0 {
        return Err(bad(0));
    }
    if transport == Transport::Iwarp && is_of_roce(opcode) {
        return Err(Status::Unsupported.into());
    }
    Ok(opcode)
}

/// Returns whether a command concerns XRC, multicast or absent pages, which iWARP does not have.
fn is_of_roce(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::AllocXrcd
            | Opcode::FreeXrcd
            | Opcode::AttachMcast
            | Opcode::DetachMcast
            | Opcode::MapPages
            | Opcode::UnmapPages
    )
}

/// Parses the parameters of the command `C`, checks its reserved fields, and runs the handler.
fn run_as<C: Command>(
    params: &[u8; PARAMS_LEN],
    handler: impl FnOnce(&C::Params) -> Outcome<C::Reply>,
) -> Outcome<[u8; RESULT_LEN]> {
    for reserved in [C::RESERVED, size_of::<C::Params>()..PARAMS_LEN] {
        let start = reserved.start;
        zero(params.get(reserved).unwrap_or_default(), start)?;
    }
    let (params, _) = C::Params::read_from_prefix(params).map_err(|_| Status::Internal)?;
    let mut result = [0; RESULT_LEN];
    handler(&params)?.write_to_prefix(&mut result).map_err(|_| Status::Internal)?;
    Ok(result)
}
