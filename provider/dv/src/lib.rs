// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Direct verbs of the vrnic adapter, which libibverbs does not offer, for Rust programs.
//! `vrnicdv.h` has them for C; the manual is docs/vrnicdv.md.
//!
//! The functions are in the plugin, which libibverbs loads with the first device. This crate finds
//! them there, so a program that uses it needs no library at build time, and also runs on other
//! adapters. Objects of libibverbs are passed as pointers, so a program may use any bindings.
//!
//! | module | contents |
//! | --- | --- |
//! | [`connection`] | the states of TCP connections, and their ends |
//! | [`handover`] | queues for another poster |
//! | [`reserve`] | what a connection needs before it carries RDMA messages |
//! | [`stream`] | queue pairs of TCP streams |
//! | [`transfer`] | direct transfers: address ranges and marks |
//!
//! `unsafe` is confined to `crate`, [`connection`], [`handover`], [`reserve`], [`stream`]
//! and [`transfer`].

pub mod connection;
pub mod handover;
pub mod reserve;
pub mod stream;
pub mod transfer;

use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::ptr::NonNull;

use bitflags::bitflags;
use vrnic_abi as abi;
pub use vrnic_abi::uar::CqState;

/// The name under which the plugin is found once it is loaded.
const PLUGIN: &CStr = c"libvrnic.so.1";

bitflags! {
    /// Selects what a failure of a queue pair ends, and what it carries.
    #[repr(transparent)]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct QpFlags: u32 {
        /// A refused memory operation stops only the send queue (state SQE), not the connection.
        const REACTIVE = 1 << 0;
        /// The queue pair carries the bytes of a TCP connection, which
        /// [`Streams`](stream::Streams) gives it. Its type is `IBV_QPT_DRIVER`.
        const TOE = 1 << 1;
        /// A receive of such a queue pair also completes at the end of a segment with the flag PSH.
        const PUSH = 1 << 2;
        /// The send queue makes no keys valid: bindings of windows and commands are refused.
        const NO_SQ_KEYS = 1 << 3;
        /// The peer reaches memory by windows and commands only, not by regions.
        const WINDOWS_ONLY = 1 << 4;
        /// A send of a queue pair with a TCP connection is complete when the number of bytes that
        /// the peer has not acknowledged shows it, and not the number of its last byte. The times
        /// are the same.
        const QUEUE_LENGTH = 1 << 5;
        /// With iWARP, no SEND or WRITE of a queue pair of type `IBV_QPT_RC` completes before the
        /// peer has acknowledged all of it, however late the peer acknowledges.
        const ACKNOWLEDGED = 1 << 6;
    }
}

bitflags! {
    /// Limits the use of a key.
    #[repr(transparent)]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct MemFlags: u32 {
        /// The key is valid for one message of the peer.
        const ONE_TOUCH = abi::sq::MemFlags::ONE_TOUCH.bits() as u32;
        /// In a binding: it keeps the key of the window, and is refused if the window has another
        /// one by then.
        const SAME_KEY = abi::sq::MemFlags::SAME_KEY.bits() as u32;
        /// In a registration: nothing is sent from the region.
        const NO_LOCAL_READ = abi::sq::MemFlags::NO_LOCAL_READ.bits() as u32;
    }
}

/// The place of a command's key in the response, and in the command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum TagForm {
    /// The queue pair has no commands.
    #[default]
    None = abi::admin::TagForm::None as u32,
    /// 4 bytes, big-endian: in a response at [`QpAttr::tag_offset`], in a command at its own
    /// offset.
    General = abi::admin::TagForm::General as u32,
    /// The initiator task tag of the iSCSI header at [`QpAttr::tag_offset`].
    Iscsi = abi::admin::TagForm::Iscsi as u32,
}

/// Attributes that `ibv_create_qp` lacks. The default is a plain queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct QpAttr {
    /// Selects what a failure ends.
    pub flags: QpFlags,
    /// The form of its commands, if it has any.
    pub tag_form: TagForm,
    /// Bytes from the start of a message.
    pub tag_offset: u32,
    /// Data segments of a command; zero without commands.
    pub max_command_sge: u32,
}

bitflags! {
    /// Selects the completion vector of a queue.
    #[repr(transparent)]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CqFlags: u32 {
        /// The driver chooses a completion vector with few recent events. The verbs' attributes
        /// must name vector 0.
        const ANY_VECTOR = abi::uverbs::CQ_ANY_VECTOR as u32;
        /// When the queue is full, its completions and the queue pairs that need room wait, and
        /// nothing fails.
        const HOLDING = abi::uverbs::CQ_HOLDING as u32;
    }
}

/// Attributes that `ibv_create_cq_ex` lacks. The default is a plain completion queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CqAttr {
    /// Selects the completion vector.
    pub flags: CqFlags,
    /// On return: the completion vector that the queue is bound to.
    pub comp_vector: u32,
    /// With [`CqFlags::HOLDING`]: the number of free entries, fewer than the queue has, at which
    /// the program gets an event that few are left; zero for no event.
    pub few: u32,
}

/// A command: a SEND that lets the peer reach data until it responds.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Command {
    /// An opaque value that comes back with the completion.
    pub wr_id: u64,
    /// `enum ibv_send_flags`; `IBV_SEND_INLINE` concerns the message and takes one segment.
    pub send_flags: u32,
    /// `IBV_ACCESS_REMOTE_READ`, `IBV_ACCESS_REMOTE_WRITE`, or both.
    pub access: u32,
    /// Limits the use of the key.
    pub mem_flags: MemFlags,
    /// General form: the offset in the message at which the key is stored. Otherwise zero.
    pub tag_offset: u32,
    /// The memory that the peer may reach, from address zero on: an array of `struct ibv_sge`.
    pub data: *mut c_void,
    /// The message: an array of `struct ibv_sge`.
    pub message: *mut c_void,
    /// Segments of data.
    pub num_data: u32,
    /// Segments of the message.
    pub num_message: u32,
}

type IsSupported = unsafe extern "C" fn(*mut c_void) -> bool;
type CreateQp = unsafe extern "C" fn(*mut c_void, *mut c_void, *const QpAttr) -> *mut c_void;
type CreateCq = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut CqAttr) -> *mut c_void;
type QueryCq = unsafe extern "C" fn(*mut c_void, *mut u32) -> c_int;
type RegMr = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, c_int, MemFlags) -> *mut c_void;
type BindMw = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, MemFlags) -> c_int;
type PostCommand = unsafe extern "C" fn(*mut c_void, *const Command) -> c_int;

/// The functions of the loaded plugin.
#[derive(Clone, Copy, Debug)]
pub struct Vrnicdv {
    is_supported: IsSupported,
    create_qp: CreateQp,
    create_cq: CreateCq,
    query_cq: QueryCq,
    reg_mr: RegMr,
    bind_mw: BindMw,
    post_command: PostCommand,
}

/// The plugin, as libibverbs has loaded it.
struct Plugin(NonNull<c_void>);

impl Plugin {
    fn find() -> Option<Self> {
        // SAFETY: a lookup by name among what is loaded. The library stays: libibverbs never
        // unloads it.
        NonNull::new(unsafe { libc::dlopen(PLUGIN.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_NOW) })
            .map(Self)
    }

    fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: an open library and a name that ends.
        let found = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        (!found.is_null()).then_some(found)
    }
}

impl Vrnicdv {
    /// Returns the functions, if libibverbs has loaded the plugin (as `ibv_get_device_list` does)
    /// and the plugin is new enough.
    #[must_use]
    pub fn load() -> Option<Self> {
        let plugin = Plugin::find()?;
        let symbol = |name: &CStr| plugin.symbol(name);
        let is_supported = symbol(c"vrnicdv_is_supported")?;
        let create_qp = symbol(c"vrnicdv_create_qp")?;
        let create_cq = symbol(c"vrnicdv_create_cq")?;
        let query_cq = symbol(c"vrnicdv_query_cq")?;
        let reg_mr = symbol(c"vrnicdv_reg_mr")?;
        let bind_mw = symbol(c"vrnicdv_bind_mw")?;
        let post_command = symbol(c"vrnicdv_post_command")?;
        // SAFETY: the plugin's functions of these names have these types (vrnicdv.h).
        unsafe {
            Some(Self {
                is_supported: transmute::<*mut c_void, IsSupported>(is_supported),
                create_qp: transmute::<*mut c_void, CreateQp>(create_qp),
                create_cq: transmute::<*mut c_void, CreateCq>(create_cq),
                query_cq: transmute::<*mut c_void, QueryCq>(query_cq),
                reg_mr: transmute::<*mut c_void, RegMr>(reg_mr),
                bind_mw: transmute::<*mut c_void, BindMw>(bind_mw),
                post_command: transmute::<*mut c_void, PostCommand>(post_command),
            })
        }
    }

    /// Returns whether a device is a vrnic adapter.
    ///
    /// # Safety
    /// `device` must be a `struct ibv_device` of a list that is not freed.
    #[must_use]
    pub unsafe fn is_supported(&self, device: *mut c_void) -> bool {
        // SAFETY: the caller passes a device of a list that is not freed.
        unsafe { (self.is_supported)(device) }
    }

    /// Creates a queue pair. Returns a `struct ibv_qp`, or null with errno set.
    ///
    /// # Safety
    /// `pd` and `init_attr` must be a live `struct ibv_pd` and a valid `struct ibv_qp_init_attr`.
    #[must_use]
    pub unsafe fn create_qp(
        &self,
        pd: *mut c_void,
        init_attr: *mut c_void,
        attr: &QpAttr,
    ) -> *mut c_void {
        // SAFETY: the caller passes a live protection domain and valid attributes. The plugin's
        // function checks that they are its own.
        unsafe { (self.create_qp)(pd, init_attr, attr) }
    }

    /// Creates a completion queue. Returns a `struct ibv_cq_ex`, or null with errno set.
    ///
    /// # Safety
    /// `context` and `init_attr` must be an open `struct ibv_context` and a valid `struct
    /// ibv_cq_init_attr_ex`.
    #[must_use]
    pub unsafe fn create_cq(
        &self,
        context: *mut c_void,
        init_attr: *mut c_void,
        attr: &mut CqAttr,
    ) -> *mut c_void {
        // SAFETY: the caller passes an open context and valid attributes. The plugin's function
        // checks that it is its own.
        unsafe { (self.create_cq)(context, init_attr, attr) }
    }

    /// Returns the state of a completion queue.
    ///
    /// # Errors
    /// An errno: `EOPNOTSUPP` for a queue of another adapter, `EIO` if the adapter has died.
    ///
    /// # Safety
    /// `cq` must be a live `struct ibv_cq`.
    pub unsafe fn query_cq(&self, cq: *mut c_void) -> Result<CqState, c_int> {
        let mut state = 0;
        // SAFETY: the caller passes a live queue. The plugin's function checks that it is its own.
        match unsafe { (self.query_cq)(cq, &raw mut state) } {
            0 => CqState::from_raw(state).ok_or(libc::EIO),
            error => Err(error),
        }
    }

    /// Registers `len` bytes at `addr` with the rights `access` (`enum ibv_access_flags`). Returns
    /// a `struct ibv_mr`, or null with errno set.
    ///
    /// # Safety
    /// `pd` must be a live `struct ibv_pd`. The device reads and writes the memory as the rights
    /// say.
    #[must_use]
    pub unsafe fn reg_mr(
        &self,
        pd: *mut c_void,
        addr: *mut c_void,
        len: usize,
        access: c_int,
        flags: MemFlags,
    ) -> *mut c_void {
        // SAFETY: the caller passes a live protection domain, and lets the device use the memory as
        // the rights say.
        unsafe { (self.reg_mr)(pd, addr, len, access, flags) }
    }

    /// Posts the binding of a window of either type under a new key, and sets `mw->rkey` to it.
    /// Returns zero or an errno.
    ///
    /// # Safety
    /// `qp` and `window` must be a live `struct ibv_qp` and `struct ibv_mw`, `bind` a valid `struct
    /// ibv_mw_bind`.
    #[must_use]
    pub unsafe fn bind_mw(
        &self,
        qp: *mut c_void,
        window: *mut c_void,
        bind: *mut c_void,
        flags: MemFlags,
    ) -> c_int {
        // SAFETY: the caller passes a live queue pair, a live window, and a valid binding.
        unsafe { (self.bind_mw)(qp, window, bind, flags) }
    }

    /// Posts a command to a queue pair that was created for commands. Returns zero or an errno.
    ///
    /// # Safety
    /// `qp` must be a live `struct ibv_qp`; the arrays in `command` must have the given lengths,
    /// and inline data must be readable.
    #[must_use]
    pub unsafe fn post_command(&self, qp: *mut c_void, command: &Command) -> c_int {
        // SAFETY: the caller passes a live queue pair, arrays of the given lengths, and readable
        // inline data.
        unsafe { (self.post_command)(qp, command) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_plugin_there_is_nothing() {
        assert!(Vrnicdv::load().is_none() && transfer::Transfers::load().is_none());
        assert!(handover::Handover::load().is_none());
    }
}
