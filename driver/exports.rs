// SPDX-License-Identifier: GPL-2.0
//! The functions of `direct.h`, for other modules of the kernel; `symbols.c` exports them.

use abi::{
    Key,
    connection::{Closing, RdmaState, Stage},
    direct::{Await, MARK_FAILED, MARKS, PacketMemory},
    iscsi::{Device, IscsiFlags, SetIscsi},
    qp::Access,
    sq::Sge,
    uar::CqState,
};
use kernel::{
    error::from_result,
    ffi::{c_int, c_void},
    prelude::*,
    sync::Arc,
};

use crate::{
    bindings,
    iwarp::{ClientSocket, Observer},
    rdma::{lend, queues::cq::Cq, queues::qp::Qp},
    verbs::{
        Command, Ctx, Verbs, cq,
        direct::{self, Transfer},
        tcp::connection,
        tcp::toe,
    },
};

mod transition;

/// The event that a connection has left the adapter. The others have the numbers of
/// [`abi::connection::ConnectionEvents`].
const EVENT_RELEASED: u32 = bindings::vrnic_connection_events_VRNIC_CONNECTION_RELEASED;

const _: () = {
    assert!(RdmaState::Error as u32 == bindings::vrnic_connection_status_VRNIC_CONNECTION_ERROR);
    assert!(
        Closing::IdleNow as u32 == bindings::vrnic_connection_end_VRNIC_CONNECTION_MAKE_IDLE_NOW
    );
};

const _: () = {
    assert!(
        PacketMemory::Address as u32 == bindings::vrnic_packet_memory_VRNIC_PACKET_ADDRESS
            && PacketMemory::Block as u32 == bindings::vrnic_packet_memory_VRNIC_PACKET_BLOCK
            && PacketMemory::FreeBlock as u32
                == bindings::vrnic_packet_memory_VRNIC_PACKET_FREE_BLOCK
    );
    assert!(Key::WINDOW.get() == bindings::VRNIC_WINDOW_KEY);
};

const _: () = assert!(MARKS == bindings::VRNIC_MARKS);
const _: () = {
    let wanted = Await { word: 3, mark: 1, time_limit_ms: 7 };
    // The same value as `vrnic_await_addr` of direct.h.
    assert!(wanted.fields().0 == 3 << 32 | 7);
};

/// Runs `run` with a queue pair, and returns what C callers get.
///
/// # Safety
///
/// `qp` must be a queue pair that the core has created or opened, and that is not destroyed or
/// closed during the call.
unsafe fn call(
    qp: *mut bindings::ib_qp,
    run: impl FnOnce(&Ctx<'_>, &Qp<Verbs>) -> Result<c_int>,
) -> c_int {
    // SAFETY: the caller passes a live queue pair.
    from_result(|| unsafe { Qp::<Verbs>::lend(qp, |ctx, qp| run(ctx, qp)) })
}

const _: () = {
    assert!(CqState::Room as u32 == bindings::vrnic_cq_state_VRNIC_CQ_ROOM);
    assert!(CqState::Full as u32 == bindings::vrnic_cq_state_VRNIC_CQ_FULL);
    assert!(CqState::Failed as u32 == bindings::vrnic_cq_state_VRNIC_CQ_FAILED);
};

/// Returns the state of a completion queue of a kernel client, or a negative error number. Can be
/// called in any context.
///
/// # Safety
///
/// `cq` must be a completion queue that the core has created, and that is not destroyed during the
/// call.
#[no_mangle]
unsafe extern "C" fn vrnic_cq_state(cq: *mut bindings::ib_cq) -> c_int {
    // CAST: the enum's number.
    let query = |ctx: &Ctx<'_>, cq: &Cq<Verbs>| Ok((cq::state(ctx, cq)? as u32).try_into()?);
    // SAFETY: the caller passes a live completion queue.
    from_result(|| unsafe { lend::cq::<Verbs, c_int>(cq, query) })
}

/// Gives a completion queue of a kernel client room for at least `entries`. Returns 0 or a negative
/// error number.
///
/// # Safety
///
/// As for [`vrnic_cq_state`].
#[no_mangle]
unsafe extern "C" fn vrnic_cq_resize(cq: *mut bindings::ib_cq, entries: u32) -> c_int {
    from_result(|| {
        let resize = |ctx: &Ctx<'_>, cq: &Cq<Verbs>| cq::resize(ctx, cq, entries);
        // SAFETY: the caller passes a live completion queue.
        let granted = c_int::try_from(unsafe { lend::cq::<Verbs, u32>(cq, resize) }?)?;
        // SAFETY: the queue is live; only the field's address is made.
        let field = unsafe { &raw mut (*cq).cqe };
        // SAFETY: the field is part of a live queue, and `direct.h` demands that calls for one
        // queue do not overlap. The core only reads it.
        unsafe { field.write_volatile(granted) };
        Ok(0)
    })
}

/// Gives a free range to a queue pair. Returns its number, or a negative error number.
///
/// # Safety
///
/// As for [`call`].
#[no_mangle]
unsafe extern "C" fn vrnic_range_get(qp: *mut bindings::ib_qp) -> c_int {
    // SAFETY: the caller passes a live queue pair.
    unsafe { call(qp, |ctx, qp| Ok(direct::get(ctx, qp)?.get().try_into()?)) }
}

/// Ends the transfer of a range and takes the range from its queue pair. Returns 0 or a negative
/// error number.
///
/// # Safety
///
/// As for [`call`].
#[no_mangle]
unsafe extern "C" fn vrnic_range_put(qp: *mut bindings::ib_qp, range: u32) -> c_int {
    // SAFETY: the caller passes a live queue pair.
    unsafe { call(qp, |ctx, qp| direct::put(ctx, qp, range.into()).map(|()| 0)) }
}

/// Arms a range for one transfer. Returns 0 or a negative error number.
///
/// # Safety
///
/// As for [`call`]; `transfer` must be valid.
#[no_mangle]
unsafe extern "C" fn vrnic_range_arm(
    qp: *mut bindings::ib_qp,
    range: u32,
    transfer: *const bindings::vrnic_transfer,
) -> c_int {
    // SAFETY: the caller passes a valid struct.
    let raw = unsafe { &*transfer };
    let transfer = Transfer {
        memory: raw.memory.into(),
        length: raw.length,
        time_limit_ms: raw.time_limit_ms,
        write: raw.write,
        counted: raw.counted,
        at_once: raw.at_once,
        packet_memory: raw.packet_memory,
    };
    // SAFETY: the caller passes a live queue pair.
    unsafe { call(qp, |ctx, qp| direct::arm(ctx, qp, range.into(), &transfer).map(|()| 0)) }
}

/// Returns the kernel's address of a range in the window, or an error pointer.
///
/// # Safety
///
/// As for [`call`].
#[no_mangle]
unsafe extern "C" fn vrnic_range_page(qp: *mut bindings::ib_qp, range: u32) -> *mut c_void {
    let page = |ctx: &Ctx<'_>, qp: &Qp<Verbs>| direct::page(ctx, qp, range.into());
    // SAFETY: the caller passes a live queue pair.
    unsafe { Qp::<Verbs>::lend(qp, page) }.unwrap_or_else(|error| error.to_ptr())
}

/// Stores the state of a range in `state`. Returns 0 or a negative error number.
///
/// # Safety
///
/// As for [`call`]; `state` must be valid.
#[no_mangle]
unsafe extern "C" fn vrnic_range_query(
    qp: *mut bindings::ib_qp,
    range: u32,
    state: *mut bindings::vrnic_range_state,
) -> c_int {
    let query = |ctx: &Ctx<'_>, qp: &Qp<Verbs>| {
        let registers = direct::query(ctx, qp, range.into())?;
        let found = bindings::vrnic_range_state {
            count: registers.count.get(),
            pci_valid: registers.pci_valid != 0,
            adapter_valid: registers.adapter_valid != 0,
            failure: registers.failure,
        };
        // SAFETY: the caller passes a valid place.
        unsafe { state.write(found) };
        Ok(0)
    };
    // SAFETY: the caller passes a live queue pair.
    unsafe { call(qp, query) }
}

/// Tells the adapter that the transfer of a mark has ended, or has failed. Can be called in any
/// context. Returns 0 or a negative error number.
///
/// # Safety
///
/// As for [`call`].
#[no_mangle]
unsafe extern "C" fn vrnic_mark(
    qp: *mut bindings::ib_qp,
    word: u32,
    mark: u32,
    failed: bool,
) -> c_int {
    let bit = if failed { MARK_FAILED } else { 0 };
    // SAFETY: the caller passes a live queue pair.
    unsafe { call(qp, |ctx, qp| direct::mark(ctx, qp, word, mark | bit).map(|()| 0)) }
}

/// Tells the adapter that the controller has moved all bytes of a range. Can be called in any
/// context. Returns 0 or a negative error number.
///
/// # Safety
///
/// As for [`call`].
#[no_mangle]
unsafe extern "C" fn vrnic_range_done(qp: *mut bindings::ib_qp, range: u32) -> c_int {
    // SAFETY: the caller passes a live queue pair.
    unsafe { call(qp, |ctx, qp| direct::done(ctx, qp, range.into()).map(|()| 0)) }
}

/// The function by which a kernel client observes a connection.
struct Callback {
    changed: unsafe extern "C" fn(*mut c_void),
    context: *mut c_void,
}

// SAFETY: `direct.h` demands of clients that the function may be called with the context by any
// thread.
unsafe impl Send for Callback {}
// SAFETY: as for `Send`.
unsafe impl Sync for Callback {}

impl Observer for Callback {
    fn changed(&self) {
        // SAFETY: `direct.h` demands that the function may be called with the context until the
        // client has named another one, or the queue pair is destroyed; it is not called later.
        unsafe { (self.changed)(self.context) };
    }
}

/// Stores the state of a connection in `found`. Returns 0 or a negative error number.
///
/// # Safety
///
/// As for [`call`]; `found` must be valid.
#[no_mangle]
unsafe extern "C" fn vrnic_connection_query(
    qp: *mut bindings::ib_qp,
    found: *mut bindings::vrnic_connection,
) -> c_int {
    let query = |ctx: &Ctx<'_>, qp: &Qp<Verbs>| {
        let now = connection::query(ctx, qp)?;
        let released = now.stage == Stage::Gone as u8;
        let released = if released { EVENT_RELEASED } else { 0 };
        let state = bindings::vrnic_connection {
            status: now.state.into(),
            events: u32::from(now.events.get()) | released,
            ird: now.ird.get().into(),
            ord: now.ord.get().into(),
        };
        // SAFETY: the caller passes a valid place.
        unsafe { found.write(state) };
        Ok(0)
    };
    // SAFETY: the caller passes a live queue pair.
    unsafe { call(qp, query) }
}

/// Names the function that is called when a connection has changed, or none. Returns 0 or a
/// negative error number.
///
/// # Safety
///
/// As for [`call`]; `changed` must be a function as `direct.h` demands it, or null.
#[no_mangle]
unsafe extern "C" fn vrnic_connection_watch(
    qp: *mut bindings::ib_qp,
    changed: Option<unsafe extern "C" fn(*mut c_void)>,
    context: *mut c_void,
) -> c_int {
    let watch = |ctx: &Ctx<'_>, qp: &Qp<Verbs>| {
        let observer: Option<Arc<dyn Observer>> = match changed {
            Some(changed) => Some(Arc::new(Callback { changed, context }, GFP_KERNEL)?),
            None => None,
        };
        connection::observe(ctx, qp, observer).map(|()| 0)
    };
    // SAFETY: the caller passes a live queue pair.
    unsafe { call(qp, watch) }
}

/// Ends a connection, or makes its queue pair idle. Returns how far that is, or a negative error
/// number.
///
/// # Safety
///
/// As for [`call`].
#[no_mangle]
unsafe extern "C" fn vrnic_connection_end(
    qp: *mut bindings::ib_qp,
    how: u32,
    limit_ms: u32,
) -> c_int {
    let end = |ctx: &Ctx<'_>, qp: &Qp<Verbs>| {
        let how = u8::try_from(how).ok().and_then(Closing::from_raw).ok_or(EINVAL)?;
        // CAST: the enum's number.
        connection::end(ctx, qp, how, limit_ms).map(|closed| c_int::from(closed as u8))
    };
    // SAFETY: the caller passes a live queue pair.
    unsafe { call(qp, end) }
}

/// Gives the connection of a socket to a queue pair. Returns 0 or a negative error number.
///
/// # Safety
///
/// As for [`call`]; `sock` must be a socket of the caller, who does not use it any more if this
/// returns 0.
#[no_mangle]
unsafe extern "C" fn vrnic_stream_attach(
    qp: *mut bindings::ib_qp,
    sock: *mut bindings::socket,
) -> c_int {
    let attach = |ctx: &Ctx<'_>, qp: &Qp<Verbs>| {
        // SAFETY: the caller passes a valid socket, and leaves it to the driver if the connection
        // is taken.
        let socket = unsafe { ClientSocket::new(sock) }?;
        toe::attach_client(ctx, qp, &socket).map(|()| 0)
    };
    // SAFETY: the caller passes a live queue pair.
    unsafe { call(qp, attach) }
}

/// Lets the next stream of a queue pair consist of iSCSI PDUs. Returns 0 or a negative error
/// number.
///
/// # Safety
///
/// As for [`call`]; `iscsi` must be valid.
#[no_mangle]
unsafe extern "C" fn vrnic_stream_iscsi(
    qp: *mut bindings::ib_qp,
    iscsi: *const bindings::vrnic_iscsi,
) -> c_int {
    // SAFETY: the caller passes a valid struct.
    let raw = unsafe { &*iscsi };
    let mut flags = IscsiFlags::empty();
    flags.set(IscsiFlags::HEADER_DIGEST, raw.header_digest);
    flags.set(IscsiFlags::DATA_DIGEST, raw.data_digest);
    let device = if raw.disk { Device::Disk } else { Device::Any };
    let terms = SetIscsi {
        max_receive: raw.max_receive.into(),
        max_send: raw.max_send.into(),
        max_burst: raw.max_burst.into(),
        flags: flags.bits(),
        // CAST: the enum's number.
        device: device as u8,
        ..SetIscsi::default()
    };
    // SAFETY: the caller passes a live queue pair.
    unsafe { call(qp, |ctx, qp| toe::set_iscsi(ctx, qp, terms).map(|()| 0)) }
}

/// Stores the counters of a stream of iSCSI PDUs in `found`. Returns 0 or a negative error number.
///
/// # Safety
///
/// As for [`call`]; `found` must be valid.
#[no_mangle]
unsafe extern "C" fn vrnic_stream_count(
    qp: *mut bindings::ib_qp,
    found: *mut bindings::vrnic_iscsi_counters,
) -> c_int {
    let count = |ctx: &Ctx<'_>, qp: &Qp<Verbs>| {
        let counters = toe::count(ctx, qp)?;
        let counters = bindings::vrnic_iscsi_counters {
            received: counters.received.get(),
            whole: counters.whole.get(),
            placed: counters.placed.get(),
            served: counters.served.get(),
            data_out: counters.data_out.get(),
            refused: counters.refused.get(),
            dropped: counters.dropped.get(),
        };
        // SAFETY: the caller passes a valid place.
        unsafe { found.write(counters) };
        Ok(0)
    };
    // SAFETY: the caller passes a live queue pair.
    unsafe { call(qp, count) }
}

/// Posts a SCSI command, and stores its Command ID in `id`. Can be called in any context. Returns 0
/// or a negative error number.
///
/// # Safety
///
/// As for [`call`]; `command` and `id` must be valid.
#[no_mangle]
unsafe extern "C" fn vrnic_command_post(
    qp: *mut bindings::ib_qp,
    command: *const bindings::vrnic_command,
    id: *mut u32,
) -> c_int {
    // SAFETY: the caller passes a valid struct.
    let raw = unsafe { &*command };
    let post = |ctx: &Ctx<'_>, qp: &Qp<Verbs>| {
        let message = Sge {
            addr: raw.message.addr.into(),
            length: raw.message.length.into(),
            lkey: raw.message.lkey.into(),
        };
        let pages = Sge { addr: raw.pages.into(), length: raw.length.into(), ..Sge::default() };
        let command = Command {
            // CAST: `wr_cqe` and `wr_id` are views of one union in completions.
            wr_id: raw.wr_cqe.addr() as u64,
            message,
            pages,
            offset: raw.offset.into(),
            access: Access::from_bits(raw.access).ok_or(EINVAL)?,
        };
        let posted = toe::post_command(ctx, qp, &command)?;
        // SAFETY: the caller passes a valid place.
        unsafe { id.write(posted) };
        Ok(0)
    };
    // SAFETY: the caller passes a live queue pair.
    unsafe { call(qp, post) }
}

/// Ends a command that has got no response. Returns 0 or a negative error number.
///
/// # Safety
///
/// As for [`call`].
#[no_mangle]
unsafe extern "C" fn vrnic_command_end(qp: *mut bindings::ib_qp, tag: u32) -> c_int {
    // SAFETY: the caller passes a live queue pair.
    unsafe { call(qp, |ctx, qp| toe::end_command(ctx, qp, tag).map(|()| 0)) }
}
