// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The newer interface for posting sends: a request is built by one call for its kind and one or two for its data, and
//! all since `wr_start` are posted, or none.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::slice;

use rustix::io::Errno;
use vrnic_abi::qp::AddressVector;
use vrnic_abi::sq::{AtomicSeg, BindMwSeg, DatagramSeg, MAX_SGE, MemFlags, Opcode, Sge};
use vrnic_queues::qp::{QueuePair, StagedSends};
use vrnic_queues::request::{DatagramData, Payload, PostError, SendHeader};

use super::bindings as c;
use super::post::{errno, inline_pieces, segments, send_flags};
use super::{ah, mw, qp, status};

/// Operations that datagrams have.
const DATAGRAM: u32 = c::IBV_QP_EX_WITH_SEND | c::IBV_QP_EX_WITH_SEND_WITH_IMM;
/// Operations that unreliable connections have.
const UNRELIABLE: u32 = DATAGRAM
    | c::IBV_QP_EX_WITH_RDMA_WRITE
    | c::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | c::IBV_QP_EX_WITH_LOCAL_INV
    | c::IBV_QP_EX_WITH_BIND_MW;
/// Operations that reliable connections have.
const RELIABLE: u32 = UNRELIABLE
    | c::IBV_QP_EX_WITH_RDMA_READ
    | c::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | c::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | c::IBV_QP_EX_WITH_SEND_WITH_INV;

/// Requests being built, by the thread between `wr_start` and its end alone: it holds the send queue's lock.
#[derive(Default)]
pub(super) struct Building(UnsafeCell<State>);

// SAFETY: the cell is touched by the thread alone that holds the send queue's lock, by libibverbs' rule that the
// calls between `wr_start` and `wr_complete` or `wr_abort` come from one thread.
unsafe impl Sync for Building {}
// SAFETY: what it holds while no thread builds is nothing.
unsafe impl Send for Building {}

#[derive(Default)]
struct State {
    /// Those that are complete; `None` for a queue pair without a send queue.
    staged: Option<StagedSends<'static>>,
    current: Option<Request>,
    error: Option<Errno>,
}

/// A request that is not complete.
struct Request {
    header: SendHeader,
    operands: Option<AtomicSeg>,
    destination: Option<DatagramSeg>,
    data: Option<Data>,
}

/// The data of a datagram whose destination was not given yet.
enum Data {
    Segments(Vec<Sge>),
    Inline(Vec<u8>),
}

impl State {
    /// Remembers the first error; nothing is posted then.
    fn fail(&mut self, error: Errno) {
        self.error.get_or_insert(error);
        self.current = None;
    }

    /// Adds a complete request.
    fn push(&mut self, header: SendHeader, payload: Payload<'_>) {
        let Some(staged) = &mut self.staged else { return };
        if self.error.is_none()
            && let Err(error) = staged.push(header, payload)
        {
            self.fail(errno(error));
        }
    }

    /// A request begins. One that never got its data has none.
    fn begin(&mut self, request: Request) {
        self.finish();
        self.current = Some(request);
    }

    /// Ends a request that still waits for data.
    fn finish(&mut self) {
        if self.current.is_some() {
            self.set_segments(&[]);
        }
    }

    /// The data of the current request lies there.
    #[inline]
    fn set_segments(&mut self, segments: &[Sge]) {
        let Some(request) = self.current.take() else { return self.fail(Errno::INVAL) };
        let datagram = self.staged.as_ref().is_some_and(StagedSends::is_datagram);
        let payload = match (request.operands, request.destination) {
            (Some(operands), _) => Payload::Atomic(operands, segments),
            (None, Some(to)) => Payload::Datagram(to, DatagramData::Segments(segments)),
            (None, None) if datagram => {
                let data = Some(Data::Segments(segments.to_vec()));
                self.current = Some(Request { data, ..request });
                return;
            }
            (None, None) => Payload::Segments(segments),
        };
        self.push(request.header, payload);
    }

    /// The data of the current request are these.
    fn set_inline(&mut self, pieces: &[&[u8]]) {
        let Some(request) = self.current.take() else { return self.fail(Errno::INVAL) };
        let datagram = self.staged.as_ref().is_some_and(StagedSends::is_datagram);
        let payload = match (request.operands, request.destination) {
            (Some(_), _) => return self.fail(errno(PostError::Inline)),
            (None, Some(to)) => Payload::Datagram(to, DatagramData::Inline(pieces)),
            (None, None) if datagram => {
                let data = Some(Data::Inline(pieces.concat()));
                self.current = Some(Request { data, ..request });
                return;
            }
            (None, None) => Payload::Inline(pieces),
        };
        self.push(request.header, payload);
    }

    /// Where the current datagram goes; its data may be known already.
    fn set_destination(&mut self, to: DatagramSeg) {
        let Some(request) = &mut self.current else { return self.fail(Errno::INVAL) };
        request.destination = Some(to);
        match request.data.take() {
            None => {}
            Some(Data::Segments(segments)) => self.set_segments(&segments),
            Some(Data::Inline(bytes)) => self.set_inline(&[&bytes]),
        }
    }

    /// Whether all can be posted.
    fn conclude(&mut self) -> Result<(), Errno> {
        self.finish();
        // A datagram without a destination is still there.
        if self.current.take().is_some() {
            self.fail(errno(PostError::Address));
        }
        self.error.map_or(Ok(()), Err)
    }
}

/// Sets the interface of a queue pair up for the operations asked for.
///
/// # Errors
/// `EOPNOTSUPP` when one is not offered.
///
/// # Safety
/// `qp` must be new, and known to nobody else.
pub(super) unsafe fn set_up(
    qp: *mut c::ibv_qp,
    kind: c::ibv_qp_type,
    operations: u64,
) -> Result<(), Errno> {
    let offered = match kind {
        c::IBV_QPT_UD => DATAGRAM,
        c::IBV_QPT_UC => UNRELIABLE,
        c::IBV_QPT_RC => RELIABLE,
        // Requests of XRC are built by lists alone.
        _ => 0,
    };
    let operations = u32::try_from(operations).map_err(|_| Errno::OPNOTSUPP)?;
    if operations & !offered != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let whole: *mut c::verbs_qp = qp.cast();
    // SAFETY: ours alone, by the caller's promise; the union's larger member is the extended queue pair.
    let ex = unsafe {
        (*whole).comp_mask |= c::VERBS_QP_EX;
        &mut (*whole).__bindgen_anon_1.qp_ex
    };
    /// Sets functions for the operations asked for.
    macro_rules! set {
        ($($operation:ident: $field:ident = $function:ident,)*) => {
            $(if operations & c::$operation != 0 {
                ex.$field = Some($function);
            })*
        };
    }
    ex.wr_start = Some(start);
    ex.wr_complete = Some(complete);
    ex.wr_abort = Some(abort);
    ex.wr_set_sge = Some(set_sge);
    ex.wr_set_sge_list = Some(set_sge_list);
    ex.wr_set_inline_data = Some(set_inline_data);
    ex.wr_set_inline_data_list = Some(set_inline_data_list);
    if kind == c::IBV_QPT_UD {
        ex.wr_set_ud_addr = Some(set_ud_addr);
    }
    set! {
        IBV_QP_EX_WITH_SEND: wr_send = send,
        IBV_QP_EX_WITH_SEND_WITH_IMM: wr_send_imm = send_imm,
        IBV_QP_EX_WITH_SEND_WITH_INV: wr_send_inv = send_inv,
        IBV_QP_EX_WITH_RDMA_WRITE: wr_rdma_write = write,
        IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM: wr_rdma_write_imm = write_imm,
        IBV_QP_EX_WITH_RDMA_READ: wr_rdma_read = read,
        IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP: wr_atomic_cmp_swp = cmp_swp,
        IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD: wr_atomic_fetch_add = fetch_add,
        IBV_QP_EX_WITH_LOCAL_INV: wr_local_inv = local_inv,
        IBV_QP_EX_WITH_BIND_MW: wr_bind_mw = bind_mw,
    }
    Ok(())
}

/// The state of a queue pair; `None` for one that is not ours.
///
/// # Safety
/// `qp` must be live, and this thread must have the send queue's lock by `start`, or be in `start`; nobody may hold
/// another reference to the state.
#[inline]
unsafe fn state<'a>(qp: *mut c::ibv_qp_ex) -> Option<&'a mut State> {
    // SAFETY: by the caller's promise.
    let own = unsafe { qp::whole(qp.cast()) }?;
    // SAFETY: by the caller's promise no other thread touches it.
    Some(unsafe { &mut *own.building.0.get() })
}

unsafe extern "C" fn start(qp: *mut c::ibv_qp_ex) {
    // SAFETY: live by libibverbs' promise.
    let Some(queues) = (unsafe { qp::own(qp.cast()) }) else { return };
    // SAFETY: only the lifetime changes. The queue pair lives, at one place, until it is destroyed, which is not while
    // requests are built.
    let queues: &'static QueuePair = unsafe { &*std::ptr::from_ref(queues) };
    let Some(staged) = queues.stage() else { return };
    // SAFETY: `staged` holds the lock.
    if let Some(state) = unsafe { state(qp) } {
        *state = State { staged: Some(staged), current: None, error: None };
    }
}

unsafe extern "C" fn complete(qp: *mut c::ibv_qp_ex) -> c_int {
    // SAFETY: `wr_start` comes first.
    let Some(state) = (unsafe { state(qp) }) else { return status(Err(Errno::INVAL)) };
    let concluded = state.conclude();
    // Its place is empty before the lock is free.
    let State { staged, .. } = std::mem::take(state);
    status(concluded.and_then(|()| staged.ok_or(Errno::INVAL)).map(StagedSends::post))
}

unsafe extern "C" fn abort(qp: *mut c::ibv_qp_ex) {
    // SAFETY: `wr_start` comes first.
    if let Some(state) = unsafe { state(qp) } {
        // As in `complete`. What is staged and not posted is dropped.
        drop(std::mem::take(state));
    }
}

/// A request of this kind, with what the program has put into the queue pair.
///
/// # Safety
/// As for [`state`].
#[inline]
unsafe fn header(qp: *mut c::ibv_qp_ex, opcode: Opcode) -> SendHeader {
    // SAFETY: live, and these fields are of the thread that builds.
    let (wr_id, flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
    SendHeader { wr_id, opcode, flags: send_flags(flags), imm: [0; 4], raddr: 0, rkey: 0 }
}

/// Begins a request that data follow.
///
/// # Safety
/// As for [`state`].
#[inline]
unsafe fn begin(qp: *mut c::ibv_qp_ex, header: SendHeader, operands: Option<AtomicSeg>) {
    // SAFETY: by the caller's promise.
    if let Some(state) = unsafe { state(qp) } {
        state.begin(Request { header, operands, destination: None, data: None });
    }
}

unsafe extern "C" fn send(qp: *mut c::ibv_qp_ex) {
    // SAFETY: `wr_start` comes first, here and in what follows.
    unsafe { begin(qp, header(qp, Opcode::Send), None) }
}

unsafe extern "C" fn send_imm(qp: *mut c::ibv_qp_ex, imm: u32) {
    // SAFETY: as for `send`. In network order, which we keep.
    unsafe { begin(qp, SendHeader { imm: imm.to_ne_bytes(), ..header(qp, Opcode::SendImm) }, None) }
}

unsafe extern "C" fn send_inv(qp: *mut c::ibv_qp_ex, rkey: u32) {
    // SAFETY: as for `send`.
    unsafe { begin(qp, SendHeader { rkey, ..header(qp, Opcode::SendInv) }, None) }
}

unsafe extern "C" fn write(qp: *mut c::ibv_qp_ex, rkey: u32, raddr: u64) {
    // SAFETY: as for `send`.
    unsafe { begin(qp, SendHeader { raddr, rkey, ..header(qp, Opcode::Write) }, None) }
}

unsafe extern "C" fn write_imm(qp: *mut c::ibv_qp_ex, rkey: u32, raddr: u64, imm: u32) {
    let imm = imm.to_ne_bytes();
    // SAFETY: as for `send`.
    unsafe { begin(qp, SendHeader { imm, raddr, rkey, ..header(qp, Opcode::WriteImm) }, None) }
}

unsafe extern "C" fn read(qp: *mut c::ibv_qp_ex, rkey: u32, raddr: u64) {
    // SAFETY: as for `send`.
    unsafe { begin(qp, SendHeader { raddr, rkey, ..header(qp, Opcode::Read) }, None) }
}

unsafe extern "C" fn cmp_swp(
    qp: *mut c::ibv_qp_ex,
    rkey: u32,
    raddr: u64,
    compare: u64,
    swap: u64,
) {
    let operands = AtomicSeg { swap_add: swap.into(), compare: compare.into() };
    // SAFETY: as for `send`.
    unsafe { begin(qp, SendHeader { raddr, rkey, ..header(qp, Opcode::CmpSwp) }, Some(operands)) }
}

unsafe extern "C" fn fetch_add(qp: *mut c::ibv_qp_ex, rkey: u32, raddr: u64, add: u64) {
    let operands = AtomicSeg { swap_add: add.into(), compare: 0.into() };
    // SAFETY: as for `send`.
    unsafe { begin(qp, SendHeader { raddr, rkey, ..header(qp, Opcode::FetchAdd) }, Some(operands)) }
}

unsafe extern "C" fn local_inv(qp: *mut c::ibv_qp_ex, rkey: u32) {
    // SAFETY: as for `send`.
    let header = SendHeader { rkey, ..unsafe { header(qp, Opcode::LocalInv) } };
    // SAFETY: as for `send`.
    if let Some(state) = unsafe { state(qp) } {
        state.finish();
        state.push(header, Payload::Segments(&[]));
    }
}

unsafe extern "C" fn bind_mw(
    qp: *mut c::ibv_qp_ex,
    _window: *mut c::ibv_mw,
    rkey: u32,
    info: *const c::ibv_mw_bind_info,
) {
    // SAFETY: as for `send`.
    let SendHeader { wr_id, flags, .. } = unsafe { header(qp, Opcode::BindMw) };
    // SAFETY: as for `send`.
    let Some(state) = (unsafe { state(qp) }) else { return };
    // SAFETY: valid by libibverbs' promise, with a live region.
    let bound: Result<(SendHeader, BindMwSeg), Errno> =
        unsafe { mw::binding(wr_id, flags, rkey, &*info, MemFlags::empty()) };
    state.finish();
    match bound {
        Ok((header, segment)) => state.push(header, Payload::Bind(segment)),
        Err(error) => state.fail(error),
    }
}

unsafe extern "C" fn set_ud_addr(
    qp: *mut c::ibv_qp_ex,
    handle: *mut c::ibv_ah,
    dest_qpn: u32,
    qkey: u32,
) {
    // SAFETY: as for `send`.
    let Some(state) = (unsafe { state(qp) }) else { return };
    // SAFETY: null or live, by libibverbs' promise.
    let path: Option<&AddressVector> = unsafe { ah::path(handle) };
    match path {
        Some(av) => state.set_destination(DatagramSeg {
            av: *av,
            dest_qpn: dest_qpn.into(),
            qkey: qkey.into(),
        }),
        None => state.fail(errno(PostError::Address)),
    }
}

unsafe extern "C" fn set_sge(qp: *mut c::ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: as for `send`.
    if let Some(state) = unsafe { state(qp) } {
        let segment = Sge { addr: addr.into(), length: length.into(), lkey: lkey.into() };
        state.set_segments(&[segment]);
    }
}

unsafe extern "C" fn set_sge_list(qp: *mut c::ibv_qp_ex, count: usize, list: *const c::ibv_sge) {
    // SAFETY: as for `send`.
    let Some(state) = (unsafe { state(qp) }) else { return };
    let count = c_int::try_from(count).unwrap_or(-1);
    // SAFETY: as long as said, by libibverbs' promise.
    match unsafe { segments(list.cast_mut(), count) } {
        Ok(segments) => state.set_segments(segments),
        Err(error) => state.fail(errno(error)),
    }
}

unsafe extern "C" fn set_inline_data(qp: *mut c::ibv_qp_ex, addr: *mut c_void, length: usize) {
    // SAFETY: as for `send`.
    let Some(state) = (unsafe { state(qp) }) else { return };
    let bytes: &[u8] = match length {
        0 => &[],
        // SAFETY: readable memory of the caller, by libibverbs' promise.
        _ => unsafe { slice::from_raw_parts(addr.cast(), length) },
    };
    state.set_inline(&[bytes]);
}

unsafe extern "C" fn set_inline_data_list(
    qp: *mut c::ibv_qp_ex,
    count: usize,
    list: *const c::ibv_data_buf,
) {
    // SAFETY: as for `send`.
    let Some(state) = (unsafe { state(qp) }) else { return };
    if count > MAX_SGE as usize {
        return state.fail(errno(PostError::Segments));
    }
    let mut named = [Sge::default(); MAX_SGE as usize];
    for (index, segment) in named.iter_mut().enumerate().take(count) {
        // SAFETY: as long as said, by libibverbs' promise.
        let buffer = unsafe { &*list.add(index) };
        let Ok(length) = u32::try_from(buffer.length) else {
            return state.fail(errno(PostError::Inline));
        };
        segment.addr = (buffer.addr.expose_provenance() as u64).into();
        segment.length = length.into();
    }
    let mut pieces: [&[u8]; MAX_SGE as usize] = [&[]; MAX_SGE as usize];
    // SAFETY: readable memory of the caller, by libibverbs' promise.
    match unsafe { inline_pieces(named.get(..count).unwrap_or_default(), &mut pieces) } {
        Ok(pieces) => state.set_inline(pieces),
        Err(error) => state.fail(errno(error)),
    }
}
