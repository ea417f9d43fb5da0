//! Queues that are handed over to another poster: a process or a device that writes work requests,
//! rings the doorbell and reads completions by itself (docs/vrnicdv.md). `vrnic-abi` has the
//! formats of entries: [`vrnic_abi::sq`], [`vrnic_abi::rq`] and [`vrnic_abi::cq`].

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr;

use bitflags::bitflags;

use crate::Plugin;

bitflags! {
    /// Queues of a queue pair.
    #[repr(transparent)]
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Queues: u32 {
        /// The send queue.
        const SEND = 1 << 0;
        /// The receive queue.
        const RECV = 1 << 1;
    }
}

/// Memory of the adapter, or of the process that has opened it: `struct vrnicdv_area`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Area {
    /// The address of the area in that process.
    pub address: *mut c_void,
    /// Number of bytes.
    pub length: u64,
    /// Memory of the adapter: the offset for mmap(2) of the context's command file. Otherwise zero.
    pub offset: u64,
}

impl Default for Area {
    fn default() -> Self {
        Self { address: ptr::null_mut(), length: 0, offset: 0 }
    }
}

/// The doorbell of queues: `struct vrnicdv_doorbell`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Doorbell {
    /// The UAR ([`vrnic_abi::uar`]).
    pub page: Area,
    /// The register that wakes the adapter.
    pub kick: Area,
    /// The bit of [`vrnic_abi::uar::Control::summary`].
    pub bit: u64,
    /// The value that is stored in the register.
    pub number: u32,
    /// Zero.
    pub reserved: u32,
}

/// A ring: `struct vrnicdv_ring`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Ring {
    /// The memory, which begins with the first entry.
    pub memory: Area,
    /// 0 for memory of the process, 1 for memory of the adapter.
    pub place: u32,
    /// Number of entries, a power of two.
    pub entries: u32,
    /// Number of bytes of an entry.
    pub stride: u32,
    /// Offset in the doorbell's page of the ring's index.
    pub word: u32,
    /// The index of the next entry.
    pub next: u32,
    /// The index after the last work request that has completed.
    pub freed: u32,
}

/// The queues of a queue pair that were handed over: `struct vrnicdv_qp_layout`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct QpLayout {
    /// The doorbell of the queue pair.
    pub doorbell: Doorbell,
    /// The send queue. Zeroed if it was not handed over.
    pub send: Ring,
    /// The receive queue. Zeroed if it was not handed over.
    pub recv: Ring,
    /// The number of the queue pair.
    pub qpn: u32,
    /// The kind of data after the header of each entry of the send queue: 0 nothing, 1 a
    /// [`vrnic_abi::sq::DatagramSeg`], 2 an [`vrnic_abi::sq::XrcSeg`], 3 nothing, for raw packets.
    pub header: u32,
}

/// A completion queue that was handed over: `struct vrnicdv_cq_layout`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CqLayout {
    /// The doorbell of the CQ.
    pub doorbell: Doorbell,
    /// The ring of entries.
    pub ring: Ring,
    /// The last request for an event.
    pub arm: u32,
    /// 1 if it is a holding queue.
    pub holding: u32,
}

type HandOverQp = unsafe extern "C" fn(*mut c_void, Queues, *mut QpLayout) -> c_int;
type HandOverCq = unsafe extern "C" fn(*mut c_void, *mut CqLayout) -> c_int;

/// The functions of the loaded plugin that hand queues over.
#[derive(Clone, Copy, Debug)]
pub struct Handover {
    qp: HandOverQp,
    cq: HandOverCq,
}

impl Handover {
    /// Returns the functions, if libibverbs has loaded the plugin and the plugin is new enough.
    #[must_use]
    pub fn load() -> Option<Self> {
        let plugin = Plugin::find()?;
        let qp = plugin.symbol(c"vrnicdv_hand_over_qp")?;
        let cq = plugin.symbol(c"vrnicdv_hand_over_cq")?;
        // SAFETY: the plugin's functions of these names have these types (vrnicdv.h).
        unsafe {
            Some(Self {
                qp: transmute::<*mut c_void, HandOverQp>(qp),
                cq: transmute::<*mut c_void, HandOverCq>(cq),
            })
        }
    }

    /// Hands queues of a queue pair over. libibverbs posts nothing to them any more.
    ///
    /// # Errors
    /// An errno: `EINVAL` if the queue pair does not have such a queue, `EOPNOTSUPP` for one of
    /// another adapter.
    ///
    /// # Safety
    /// `qp` must be a live `struct ibv_qp`.
    pub unsafe fn qp(&self, qp: *mut c_void, queues: Queues) -> Result<QpLayout, c_int> {
        let mut layout = QpLayout::default();
        // SAFETY: the caller passes a live queue pair. The plugin's function checks that it is its
        // own.
        match unsafe { (self.qp)(qp, queues, &raw mut layout) } {
            0 => Ok(layout),
            error => Err(error),
        }
    }

    /// Hands a completion queue over. libibverbs neither polls nor arms it any more.
    ///
    /// # Errors
    /// An errno: `EOPNOTSUPP` for a queue of another adapter.
    ///
    /// # Safety
    /// `cq` must be a live `struct ibv_cq`.
    pub unsafe fn cq(&self, cq: *mut c_void) -> Result<CqLayout, c_int> {
        let mut layout = CqLayout::default();
        // SAFETY: the caller passes a live queue. The plugin's function checks that it is its own.
        match unsafe { (self.cq)(cq, &raw mut layout) } {
            0 => Ok(layout),
            error => Err(error),
        }
    }
}
