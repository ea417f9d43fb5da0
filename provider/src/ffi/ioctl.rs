// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Calls of kernel methods that libibverbs does not make: the methods of the driver, and
//! QUERY_CONTEXT.

use std::ffi::c_int;

use rustix::io::Errno;
use vrnic_abi as abi;
use vrnic_abi::uverbs::{
    ATTR_ATTACH_QP, ATTR_CONNECTION_QP, ATTR_QUERY_DM, ATTR_RANGE_DM, ATTR_RANGE_QP,
    ATTR_START_FROM, ATTR_START_TO, AttachReq, ConnectionReq, ConnectionResp, ContextResp, DmResp,
    METHOD_ATTACH, METHOD_CONNECTION, METHOD_QUERY_DM, METHOD_RANGE, METHOD_START, RangeReq,
    RangeResp, StartReq,
};

use super::bindings as c;
use super::context;

/// `RDMA_VERBS_IOCTL`, which is made by a macro.
const RDMA_VERBS_IOCTL: libc::Ioctl = {
    const READ_WRITE: u64 = 3;
    // CAST: a small constant.
    let size = size_of::<c::ib_uverbs_ioctl_hdr>() as u64;
    // CAST: a number of 32 bits.
    (READ_WRITE << 30 | size << 16 | (c::RDMA_IOCTL_MAGIC as u64) << 8 | 1) as libc::Ioctl
};

/// Attributes of a call, at most.
const ATTRIBUTES: usize = 4;

/// A call, as the kernel reads it.
#[repr(C)]
#[derive(Default)]
struct Call {
    header: c::ib_uverbs_ioctl_hdr,
    attributes: [c::ib_uverbs_attr; ATTRIBUTES],
}

impl Call {
    fn new(object: u32, method: u16) -> Self {
        let header = c::ib_uverbs_ioctl_hdr {
            // CAST: a small number.
            object_id: object as u16,
            method_id: method,
            driver_id: abi::RDMA_DRIVER_ID,
            ..c::ib_uverbs_ioctl_hdr::default()
        };
        Self { header, ..Self::default() }
    }

    /// Adds an attribute. More than there is room for are left out, which the kernel refuses.
    fn add(&mut self, id: u16, len: u16, data: u64) {
        let count = usize::from(self.header.num_attrs);
        if let Some(attribute) = self.attributes.get_mut(count) {
            attribute.attr_id = id;
            attribute.len = len;
            // CAST: a flag.
            attribute.flags = c::UVERBS_ATTR_F_MANDATORY as u16;
            attribute.__bindgen_anon_1.data = data;
            self.header.num_attrs += 1;
        }
    }

    /// Names an object.
    fn object(&mut self, id: u16, handle: u32) {
        self.add(id, 0, handle.into());
    }

    /// Adds input data, which must stay valid until the call.
    fn input<T>(&mut self, id: u16, data: &T) {
        const { assert!(size_of::<T>() > 8, "the kernel expects it in the attribute itself") };
        // CAST: a small struct.
        let len = size_of::<T>() as u16;
        self.add(id, len, (&raw const *data).expose_provenance() as u64);
    }

    /// Gives room for an answer, which must live until the call.
    fn output<T>(&mut self, id: u16, room: &mut T) {
        // CAST: a small struct.
        let len = size_of::<T>() as u16;
        self.add(id, len, (&raw mut *room).expose_provenance() as u64);
    }

    /// Makes the call.
    ///
    /// # Errors
    /// The error of the method; `EOPNOTSUPP` if the kernel module lacks it.
    ///
    /// # Safety
    /// `fd` must be the command file of an open context. The data that the attributes name must be
    /// alive and have the given lengths.
    unsafe fn run(mut self, fd: c_int) -> Result<(), Errno> {
        let count = usize::from(self.header.num_attrs);
        let len = size_of::<c::ib_uverbs_ioctl_hdr>() + count * size_of::<c::ib_uverbs_attr>();
        // CAST: a small number.
        self.header.length = len as u16;
        // SAFETY: the struct has the length that it gives, and the caller promises that the data
        // that it names has the given lengths.
        match unsafe { libc::ioctl(fd, RDMA_VERBS_IOCTL, &raw mut self) } {
            0 => Ok(()),
            _ => Err(match std::io::Error::last_os_error().raw_os_error() {
                Some(libc::EPROTONOSUPPORT) | None => Errno::OPNOTSUPP,
                Some(error) => Errno::from_raw_os_error(error),
            }),
        }
    }
}

/// Returns the kernel's answer about a context that another process has opened, and sets the
/// vectors and the core's support in libibverbs' structs.
///
/// # Safety
/// `context` must be one that `_verbs_init_and_alloc_context` just made.
pub(super) unsafe fn query_context(context: *mut c::verbs_context) -> Result<ContextResp, Errno> {
    let (mut vectors, mut support, mut response) = (0u32, 0u64, ContextResp::default());
    // CAST: a small number.
    let mut call = Call::new(c::UVERBS_OBJECT_DEVICE, c::UVERBS_METHOD_QUERY_CONTEXT as u16);
    // CAST: small numbers.
    call.output(c::UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS as u16, &mut vectors);
    call.output(c::UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT as u16, &mut support);
    call.output(c::UVERBS_ATTR_UHW_OUT as u16, &mut response);
    // SAFETY: the caller passes a valid context, and the rooms for the answer are locals of this
    // function.
    unsafe {
        let public = context::public(context);
        call.run((*public).cmd_fd)?;
        // CAST: a small number.
        (*public).num_comp_vectors = vectors as c_int;
        // The public struct is the first part of the private one.
        (*(*public).device.cast::<c::verbs_device>()).core_support = support;
    }
    Ok(response)
}

/// Carries out a request about an address range of a queue pair.
///
/// # Safety
/// The queue pair must be live, and so must device memory if it is named.
pub(super) unsafe fn range(
    qp: *mut c::ibv_qp,
    memory: Option<*mut c::ibv_dm>,
    request: &RangeReq,
) -> Result<RangeResp, Errno> {
    let mut response = RangeResp::default();
    let mut call = Call::new(c::UVERBS_OBJECT_QP, METHOD_RANGE);
    // SAFETY: the caller passes a live queue pair, whose context is live too.
    let (fd, handle) = unsafe { ((*(*qp).context).cmd_fd, (*qp).handle) };
    call.object(ATTR_RANGE_QP, handle);
    if let Some(memory) = memory {
        // SAFETY: the caller passes live device memory. The public struct is the first part of the
        // private one.
        call.object(ATTR_RANGE_DM, unsafe { (*memory.cast::<c::verbs_dm>()).handle });
    }
    // CAST: small numbers.
    call.input(c::UVERBS_ATTR_UHW_IN as u16, request);
    call.output(c::UVERBS_ATTR_UHW_OUT as u16, &mut response);
    // SAFETY: the context is open as long as its queue pair is live; request and room are here.
    unsafe { call.run(fd) }?;
    Ok(response)
}

/// Gives the connection of a socket to a queue pair.
///
/// # Safety
/// The queue pair must be live.
pub(super) unsafe fn attach(qp: *mut c::ibv_qp, request: &AttachReq) -> Result<(), Errno> {
    let mut call = Call::new(c::UVERBS_OBJECT_QP, METHOD_ATTACH);
    // SAFETY: the caller passes a live queue pair, whose context is live too.
    let (fd, handle) = unsafe { ((*(*qp).context).cmd_fd, (*qp).handle) };
    call.object(ATTR_ATTACH_QP, handle);
    // CAST: a small number.
    call.input(c::UVERBS_ATTR_UHW_IN as u16, request);
    // SAFETY: the context is open as long as its queue pair is live; the request is here.
    unsafe { call.run(fd) }
}

/// Begins to move the connection of one queue pair to another one.
///
/// # Safety
/// Both queue pairs must be live, and the bytes that the request names readable.
pub(super) unsafe fn start(
    from: *mut c::ibv_qp,
    to: *mut c::ibv_qp,
    request: &StartReq,
) -> Result<(), Errno> {
    let mut call = Call::new(c::UVERBS_OBJECT_QP, METHOD_START);
    // SAFETY: the caller passes live queue pairs, whose context is live too.
    let (fd, from, to) = unsafe { ((*(*from).context).cmd_fd, (*from).handle, (*to).handle) };
    call.object(ATTR_START_FROM, from);
    call.object(ATTR_START_TO, to);
    // CAST: a small number.
    call.input(c::UVERBS_ATTR_UHW_IN as u16, request);
    // SAFETY: the context is open as long as its queue pairs are live; the request is here.
    unsafe { call.run(fd) }
}

/// Carries out a request about the connection of a queue pair.
///
/// # Safety
/// The queue pair must be live.
pub(super) unsafe fn connection(
    qp: *mut c::ibv_qp,
    request: &ConnectionReq,
) -> Result<ConnectionResp, Errno> {
    let mut response = ConnectionResp::default();
    let mut call = Call::new(c::UVERBS_OBJECT_QP, METHOD_CONNECTION);
    // SAFETY: the caller passes a live queue pair, whose context is live too.
    let (fd, handle) = unsafe { ((*(*qp).context).cmd_fd, (*qp).handle) };
    call.object(ATTR_CONNECTION_QP, handle);
    // CAST: small numbers.
    call.input(c::UVERBS_ATTR_UHW_IN as u16, request);
    call.output(c::UVERBS_ATTR_UHW_OUT as u16, &mut response);
    // SAFETY: the context is open as long as its queue pair is live; request and room are here.
    unsafe { call.run(fd) }?;
    Ok(response)
}

/// Returns the length of device memory, and the offset by which it is mapped.
///
/// # Safety
/// `context` must be live.
pub(super) unsafe fn query_dm(context: *mut c::ibv_context, handle: u32) -> Result<DmResp, Errno> {
    let mut response = DmResp::default();
    let mut call = Call::new(c::UVERBS_OBJECT_DM, METHOD_QUERY_DM);
    call.object(ATTR_QUERY_DM, handle);
    // CAST: a small number.
    call.output(c::UVERBS_ATTR_UHW_OUT as u16, &mut response);
    // SAFETY: the caller passes a live context, and the room for the answer is a local of this
    // function.
    unsafe { call.run((*context).cmd_fd) }?;
    Ok(response)
}
