// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Contexts: an open device, its mappings, and the queries of its attributes.

use std::ffi::{CStr, c_char, c_int};
use std::io::Write;
use std::mem::offset_of;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;

use rustix::io::Errno;
use vrnic_abi as abi;
use vrnic_abi::UarIndex;
use vrnic_abi::uverbs::Features;
use vrnic_queues::clock::Clock;
use vrnic_queues::doorbell::{Kick, Uar, UarTable};
use vrnic_queues::heap::{Shared, boxed};
use vrnic_queues::layout::Limits;
use vrnic_queues::mapping::{Mapping, RingFile};
use vrnic_queues::policy::{SqPolicy, VectorPolicy};

use super::bindings as c;
use super::libibverbs::environment::{policy, warn};
use super::libibverbs::functions::{AnyContext, AnyOps, layout};
use super::object::Object;
use super::{check, pointer, status};

/// The environment variable that overrides where send queues are put.
const SQ_VARIABLE: &CStr = c"VRNIC_SQ";
/// The environment variable that lets the driver choose completion vectors.
const VECTOR_VARIABLE: &CStr = c"VRNIC_COMP_VECTOR";

type ContextObject = Object<AnyContext, Box<Context>>;

/// An open device.
pub(super) struct Context {
    /// The command file. It stays open until `verbs_uninit_context`, which [`free`] calls last.
    fd: RawFd,
    uars: UarTable,
    /// The adapter's clock.
    pub(super) clock: Clock,
    /// The limits of the adapter.
    pub(super) limits: Limits,
    /// The command file, if the adapter shares its memory.
    pub(super) ring_file: Option<RingFile>,
    /// The features of the kernel module.
    features: Features,
    /// Selects the memory of send queues.
    pub(super) sq_policy: SqPolicy,
    /// Selects the meaning of completion vector 0.
    pub(super) vector_policy: VectorPolicy,
}

impl Context {
    /// Maps the pages in the kernel's answer.
    fn new(fd: RawFd, response: &abi::uverbs::ContextResp) -> Result<Self, Errno> {
        let version = response.abi_version.get();
        if version >> 16 != abi::ABI_VERSION >> 16 {
            warn(format_args!(
                "the adapter speaks version {}.{} of the queue formats, this library {}.x",
                version >> 16,
                version & 0xffff,
                abi::ABI_VERSION >> 16
            ));
            return Err(Errno::NOSYS);
        }
        let features = Features::from_bits_retain(response.features.get());
        let vector_policy = match features.contains(Features::ANY_VECTOR) {
            true => policy(VECTOR_VARIABLE, "asked, any"),
            false => VectorPolicy::Asked,
        };
        let kick = response.kick_mmap.get();
        let kick = Shared::new(map(fd, kick, abi::regs::KICK_LEN)?)?;
        let shares = response.rings.get() != 0;
        // SAFETY: the command file stays open as long as the context, which outlives its objects.
        let ring_file = shares.then(|| unsafe { RingFile::new(fd, &kick) }).flatten();
        let bell = if shares { Kick::memory(kick.clone()) } else { kick.clone().into() };
        let uars = UarTable::new(bell);
        let first =
            uars.get(response.uar, || map(fd, response.uar_mmap.get(), abi::uar::UAR_LEN))?;
        Ok(Self {
            fd,
            uars,
            clock: Clock::new(kick, &first, features.contains(Features::SYSTEM_CLOCK)),
            limits: Limits::from(response),
            ring_file,
            sq_policy: policy(SQ_VARIABLE, "guest, device, auto"),
            vector_policy,
            features,
        })
    }

    /// Returns the plugin's part of a context; `EINVAL` if the context is not open.
    ///
    /// # Safety
    /// `context` must be a context of this plugin, open as long as the result is used.
    pub(super) unsafe fn of<'a>(context: *mut c::ibv_context) -> Result<&'a Self, Errno> {
        // SAFETY: the caller passes an open context of this plugin.
        let own = unsafe { ContextObject::own(outer(context).cast()) };
        own.map(|own| &**own).ok_or(Errno::INVAL)
    }

    /// Returns the features of the kernel module.
    pub(super) fn features(&self) -> Features {
        self.features
    }

    /// Returns an error if the kernel module lacks a feature.
    pub(super) fn needs(&self, feature: Features) -> Result<(), Errno> {
        if self.features.contains(feature) { Ok(()) } else { Err(Errno::OPNOTSUPP) }
    }

    /// Maps `len` bytes at an offset that the kernel gave for this context.
    pub(super) fn map(&self, offset: u64, len: u32) -> Result<Mapping, Errno> {
        map(self.fd, offset, len)
    }

    /// Returns the UAR with this number, which is at `offset`.
    pub(super) fn uar(&self, index: UarIndex, offset: u64) -> Result<Shared<Uar>, Errno> {
        self.uars.get(index, || self.map(offset, abi::uar::UAR_LEN))
    }
}

fn map(fd: RawFd, offset: u64, len: u32) -> Result<Mapping, Errno> {
    // SAFETY: the command file, open by libibverbs' promise.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    Mapping::device(fd, offset, len as usize)
}

/// Returns the public part of a context, which is the last one.
pub(super) fn public(context: *mut c::verbs_context) -> *mut c::ibv_context {
    context.wrapping_byte_add(layout().context_offset()).cast()
}

/// Returns the struct that contains a public context as its last part.
fn outer(context: *mut c::ibv_context) -> *mut c::verbs_context {
    if context.is_null() {
        return ptr::null_mut();
    }
    context.wrapping_byte_sub(layout().context_offset()).cast()
}

/// Opens a device with these operations, for `alloc_context` and `import_context`. `ask` gets the
/// kernel's answer. Takes the command file over, also when it fails.
///
/// # Safety
/// `device` and `fd` must be the arguments that libibverbs has passed to `alloc_context` or
/// Implements `import_context`.
pub(super) unsafe fn open(
    device: *mut c::ibv_device,
    fd: c_int,
    ops: &AnyOps,
    ask: unsafe fn(*mut c::verbs_context) -> Result<abi::uverbs::ContextResp, Errno>,
) -> *mut c::verbs_context {
    // SAFETY: `device` and `fd` are libibverbs' own; the size is the size of our struct, which
    // begins with the part of libibverbs.
    let base = unsafe {
        c::_verbs_init_and_alloc_context(
            device,
            fd,
            size_of::<ContextObject>(),
            ptr::null_mut(),
            abi::RDMA_DRIVER_ID,
        )
    };
    let base: *mut c::verbs_context = base.cast();
    if base.is_null() {
        return base;
    }
    // SAFETY: just made.
    let opened = unsafe { check_size(base).and_then(|()| ask(base)) }
        .and_then(|response| boxed(Context::new(fd, &response)?));
    let result = opened.map(|context| {
        // SAFETY: just made, with our part zeroed, which is `None`.
        unsafe { ContextObject::set_own(base.cast(), Some(context)) };
        // SAFETY: valid, and the table is copied.
        unsafe { c::verbs_set_ops(base, ptr::from_ref(ops).cast()) };
        base
    });
    if result.is_err() {
        // SAFETY: just made, and libibverbs will not see it.
        unsafe { release(base) };
    }
    pointer(result)
}

/// Checks that the struct of libibverbs has the size that the plugin expects.
///
/// # Safety
/// `base` must come from `_verbs_init_and_alloc_context`.
unsafe fn check_size(base: *mut c::verbs_context) -> Result<(), Errno> {
    let at: *const usize = base.wrapping_byte_add(layout().context_sz_offset()).cast();
    // SAFETY: the caller passes a struct of libibverbs, which is longer in every layout.
    let size = unsafe { at.read() };
    if size == layout().context_size {
        return Ok(());
    }
    warn(format_args!("this libibverbs has another private interface than its release has"));
    Err(Errno::NOSYS)
}

/// Implements `free_context`.
pub(super) unsafe extern "C" fn free(context: *mut c::ibv_context) {
    // SAFETY: made by `open` and given up by libibverbs; all its objects are gone.
    unsafe { release(outer(context)) };
}

/// Unmaps, closes and frees a context.
///
/// # Safety
/// `base` must come from `_verbs_init_and_alloc_context` and never be used again.
unsafe fn release(base: *mut c::verbs_context) {
    // SAFETY: the caller passes a context that no code uses any more. Our part goes first, as it
    // needs the command file.
    unsafe {
        ContextObject::set_own(base.cast(), None);
        c::verbs_uninit_context(base);
        libc::free(base.cast());
    }
}

/// Implements `query_device_ex`.
pub(super) unsafe extern "C" fn query_device(
    context: *mut c::ibv_context,
    input: *const c::ibv_query_device_ex_input,
    attr: *mut c::ibv_device_attr_ex,
    attr_size: usize,
) -> c_int {
    let mut response = c::ib_uverbs_ex_query_device_resp::default();
    let mut size = size_of_val(&response);
    // SAFETY: the arguments are libibverbs' own; the response has the given length.
    let result = check(unsafe {
        c::ibv_cmd_query_device_any(
            context,
            input,
            attr,
            attr_size,
            &raw mut response,
            &raw mut size,
        )
    });
    if result.is_ok() {
        let version = response.base.fw_ver;
        let (major, minor, patch) = (version >> 32, version >> 16 & 0xffff, version & 0xffff);
        let mut text = [0; 24];
        // Three numbers of 16 bits fit.
        let _ = write!(&mut text[..], "{}.{minor}.{patch}", major & 0xffff);
        // SAFETY: filled in by the call above, which refuses a shorter struct.
        let to = unsafe { &mut (*attr).orig_attr.fw_ver };
        // The struct was zeroed; its last byte stays so.
        let room = to.len().saturating_sub(1);
        for (to, from) in to.iter_mut().take(room).zip(text) {
            // CAST: digits, dots and zeroes.
            *to = from as c_char;
        }
        // SAFETY: the context is libibverbs' own, and live during the call.
        if let Ok(own) = unsafe { Context::of(context) } {
            // SAFETY: the context is live, and so is its device.
            let transport = unsafe { (*(*context).device).transport_type };
            // SAFETY: the caller's struct has this length.
            unsafe { add_caps(own, transport, attr, attr_size) };
        }
    }
    status(result)
}

/// Adds what the plugin itself knows of the device to its attributes.
///
/// # Safety
/// `attr` must be initialised as far as `size` bytes.
unsafe fn add_caps(
    own: &Context,
    transport: c::ibv_transport_type,
    attr: *mut c::ibv_device_attr_ex,
    size: usize,
) {
    let raw = own.needs(Features::RAW_PACKET).is_ok();
    let iwarp = transport == c::IBV_TRANSPORT_IWARP;
    let connected = [c::IBV_QPT_RC, c::IBV_QPT_UC, c::IBV_QPT_UD, c::IBV_QPT_XRC_SEND];
    let bits = |types: &[u32]| types.iter().fold(0, |mask, kind| mask | 1 << kind);
    let raw_type = if raw { 1 << c::IBV_QPT_RAW_PACKET } else { 0 };
    let end = offset_of!(c::ibv_device_attr_ex, tso_caps) + size_of::<c::ibv_tso_caps>();
    if raw && size >= end {
        // Only payload. An entry has the headers, too.
        let max_tso = abi::sq::MAX_SEGMENT - abi::sq::MAX_SEGMENT_HEADERS;
        let caps = c::ibv_tso_caps { max_tso, supported_qpts: raw_type };
        // SAFETY: the caller's struct is long enough.
        unsafe { (*attr).tso_caps = caps };
    }
    let end = offset_of!(c::ibv_device_attr_ex, rss_caps) + size_of::<c::ibv_rss_caps>();
    if size >= end && own.needs(Features::SPREADS).is_ok() {
        // SAFETY: the caller's struct is long enough. The kernel has filled in the rest.
        let caps = unsafe { &mut (*attr).rss_caps };
        caps.rx_hash_fields_mask = abi::rss::Fields::all().bits().into();
        // CAST: a small enum, which C stores in a byte.
        caps.rx_hash_function = c::IBV_RX_HASH_FUNC_TOEPLITZ as u8;
    }
    let end = offset_of!(c::ibv_device_attr_ex, packet_pacing_caps)
        + size_of::<c::ibv_packet_pacing_caps>();
    if size >= end && own.needs(Features::RATE_LIMIT).is_ok() {
        let types = if iwarp { bits(&connected[..1]) } else { bits(&connected) };
        let caps = c::ibv_packet_pacing_caps {
            qp_rate_limit_min: 1,
            qp_rate_limit_max: u32::MAX,
            supported_qpts: types | raw_type,
        };
        // SAFETY: the caller's struct is long enough.
        unsafe { (*attr).packet_pacing_caps = caps };
    }
}

/// `query_rt_values`: the adapter's clock in nanoseconds; other devices return cycles.
pub(super) unsafe extern "C" fn query_rt_values(
    context: *mut c::ibv_context,
    values: *mut c::ibv_values_ex,
) -> c_int {
    // SAFETY: the arguments are libibverbs' own.
    status(unsafe { Context::of(context) }.and_then(|own| {
        // SAFETY: `values` is libibverbs' own, and no other code uses it meanwhile.
        let values = unsafe { &mut *values };
        let wanted = values.comp_mask & c::IBV_VALUES_MASK_RAW_CLOCK;
        values.comp_mask = 0;
        if wanted != 0 {
            let now = own.clock.now()?;
            values.raw_clock.tv_sec = 0;
            values.raw_clock.tv_nsec = i64::try_from(now).map_err(|_| Errno::IO)?;
            values.comp_mask = wanted;
        }
        Ok(())
    }))
}

/// Implements `query_port`.
pub(super) unsafe extern "C" fn query_port(
    context: *mut c::ibv_context,
    port: u8,
    attr: *mut c::ibv_port_attr,
) -> c_int {
    let mut command = c::ibv_query_port::default();
    // SAFETY: the arguments are libibverbs' own; the command has the given length.
    unsafe { c::ibv_cmd_query_port(context, port, attr, &raw mut command, size_of_val(&command)) }
}
