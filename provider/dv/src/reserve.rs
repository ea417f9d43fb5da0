//! Reservations of what a connection needs for RDMA, before anything changes for the connection
//! (docs/streams.md).

use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::ptr;

use crate::Plugin;

type Reserve = unsafe extern "C" fn(*mut Reservation) -> c_int;

/// Why there is no reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Reason {
    /// The reservation exists.
    Reserved = 0,
    /// The caller may ask again, with at most [`Reservation::would_do`] READs that it serves.
    IrdTooLarge = 1,
    /// The caller may ask again, with at most [`Reservation::would_do`] READs that it sends.
    OrdTooLarge = 2,
    /// The caller may ask again, with at most [`Reservation::would_do`] entries of both queues.
    CqTooLarge = 3,
    /// The queue pair is not one of a vrnic device that carries the bytes of connections.
    NoRnic = 16,
    /// No protection domain could be made.
    NoPd = 17,
    /// No queue pair could be made.
    NoQp = 18,
    /// The connection has ended.
    NoConnection = 19,
}

/// The sizes of a queue pair (`struct ibv_qp_cap`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Cap {
    /// Work requests of the send queue.
    pub max_send_wr: u32,
    /// Work requests of the receive queue.
    pub max_recv_wr: u32,
    /// Segments of a send.
    pub max_send_sge: u32,
    /// Segments of a receive.
    pub max_recv_sge: u32,
    /// Bytes of inline data.
    pub max_inline_data: u32,
}

/// What a connection needs for RDMA (`struct vrnicdv_reservation`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Reservation {
    /// The `struct ibv_qp` that has the connection, or gets it.
    pub stream: *mut c_void,
    /// A `struct ibv_pd`, or null for a new one. The call sets it.
    pub pd: *mut c_void,
    /// A `struct ibv_cq` that is shared, or null for a new one. The call sets it.
    pub cq: *mut c_void,
    /// The entries that the queues on a shared CQ need, or null for a CQ that only grows.
    pub entries: *mut u32,
    /// A `struct ibv_comp_channel` for a new CQ, or null.
    pub channel: *mut c_void,
    /// The sizes of the queue pair. The call sets the actual ones.
    pub cap: Cap,
    /// READs and atomics of the peer that are served at a time.
    pub ird: u32,
    /// READs and atomics that are outstanding at a time.
    pub ord: u32,
    /// What the peer may do (`enum ibv_access_flags`).
    pub access: u32,
    /// The number of a [`Reason`], which the call sets.
    pub reason: u32,
    /// The largest value that would do, if the reason is a value that is too large.
    pub would_do: u32,
    /// Whether [`Self::pd`] is new, so that the caller frees it after the queue pair.
    pub new_pd: bool,
    /// Whether [`Self::cq`] is new, so that the caller frees it after the queue pair.
    pub new_cq: bool,
    /// The queue pair, in the state INIT.
    pub qp: *mut c_void,
}

impl Reservation {
    /// Returns a wish for a queue pair of this size, with a protection domain and a CQ of its own
    /// and without READs.
    #[must_use]
    pub fn new(stream: *mut c_void, cap: Cap) -> Self {
        let none = ptr::null_mut();
        Self {
            stream,
            pd: none,
            cq: none,
            entries: ptr::null_mut(),
            channel: none,
            cap,
            ird: 0,
            ord: 0,
            access: 0,
            reason: Reason::Reserved as u32,
            would_do: 0,
            new_pd: false,
            new_cq: false,
            qp: none,
        }
    }

    /// Returns why the reservation was refused, or [`Reason::Reserved`].
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self.reason {
            0 => Reason::Reserved,
            1 => Reason::IrdTooLarge,
            2 => Reason::OrdTooLarge,
            3 => Reason::CqTooLarge,
            16 => Reason::NoRnic,
            17 => Reason::NoPd,
            19 => Reason::NoConnection,
            _ => Reason::NoQp,
        }
    }
}

/// The functions of the loaded plugin for reservations.
#[derive(Clone, Copy, Debug)]
pub struct Reservations {
    reserve: Reserve,
    release: Reserve,
}

impl Reservations {
    /// Returns the functions, if libibverbs has loaded the plugin and the plugin is new enough.
    #[must_use]
    pub fn load() -> Option<Self> {
        let plugin = Plugin::find()?;
        let symbol = |name: &CStr| plugin.symbol(name);
        let reserve = symbol(c"vrnicdv_reserve_rdma")?;
        let release = symbol(c"vrnicdv_release_rdma")?;
        // SAFETY: the plugin's functions of these names have these types (vrnicdv.h).
        unsafe {
            Some(Self {
                reserve: transmute::<*mut c_void, Reserve>(reserve),
                release: transmute::<*mut c_void, Reserve>(release),
            })
        }
    }

    /// Reserves what a connection needs. Returns zero, or an errno; the reservation then says why,
    /// and nothing is left of it.
    ///
    /// # Safety
    /// [`Reservation::stream`] must be live, and the other pointers null or live.
    #[must_use]
    pub unsafe fn reserve(&self, reservation: &mut Reservation) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { (self.reserve)(reservation) }
    }

    /// Destroys the queue pair of a reservation, and makes a shared CQ with
    /// [`Reservation::entries`] smaller. Returns zero, or an errno; nothing has changed then.
    ///
    /// # Safety
    /// The reservation must have been granted, and its pointers be live.
    #[must_use]
    pub unsafe fn release(&self, reservation: &mut Reservation) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { (self.release)(reservation) }
    }
}

#[test]
fn a_new_reservation_has_no_objects_of_its_own() {
    let wanted = Reservation::new(ptr::null_mut(), Cap::default());
    assert!(wanted.qp.is_null() && wanted.pd.is_null() && !wanted.new_pd && !wanted.new_cq);
    assert_eq!(wanted.reason(), Reason::Reserved);
    assert_eq!(Reservation { reason: 3, ..wanted }.reason(), Reason::CqTooLarge);
}
