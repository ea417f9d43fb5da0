//! The opened device.

use std::io;
use std::ptr::NonNull;
use std::time::Duration;
use std::{ffi::CStr, mem};

use super::{check, ffi, object, readable};
use crate::model::{DeviceInfo, PortInfo};

/// The only port of vrnic's devices.
pub const PORT: u8 = 1;

/// An open device.
pub struct Context {
    raw: NonNull<ffi::ibv_context>,
    name: String,
}

/// An asynchronous event, with the address of the object that it names.
pub struct RawEvent {
    pub kind: u32,
    pub object: usize,
}

impl Context {
    /// Opens the device with this name, or the only device.
    pub fn open(name: Option<&str>) -> io::Result<Self> {
        let mut count = 0;
        // SAFETY: the call writes the number of devices to `count`.
        let list = object(unsafe { ffi::ibv_get_device_list(&raw mut count) })?;
        let mut found = Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("no RDMA device {} among {count}", name.unwrap_or("at all")),
        ));
        for i in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the list has `count` entries, which stay valid until it is freed below.
            let device = unsafe { *list.as_ptr().add(i) };
            // SAFETY: a listed device has a name that lives as long as the list.
            let this = unsafe { CStr::from_ptr(ffi::ibv_get_device_name(device)) };
            let this = this.to_string_lossy().into_owned();
            if name.is_none_or(|n| n == this) {
                // SAFETY: the device is listed; an opened context keeps its own reference.
                found = object(unsafe { ffi::ibv_open_device(device) })
                    .map(|raw| Self { raw, name: this });
                break;
            }
        }
        // SAFETY: the list came from ibv_get_device_list and is not used again.
        unsafe { ffi::ibv_free_device_list(list.as_ptr()) };
        found
    }

    /// Opens the same device again.
    pub fn again(&self) -> io::Result<Self> {
        // SAFETY: the context is open, and keeps its device.
        let raw = object(unsafe { ffi::ibv_open_device((*self.raw()).device) })?;
        Ok(Self { raw, name: self.name.clone() })
    }

    /// Closes the context. None of its objects may be in use.
    pub fn close(self) -> io::Result<()> {
        // SAFETY: the context is open, and no reference to it is left.
        check(unsafe { ffi::ibv_close_device(self.raw()) })
    }

    /// Returns the device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn raw(&self) -> *mut ffi::ibv_context {
        self.raw.as_ptr()
    }

    /// Queries the attributes of the device and the port, and chooses the GID: the first one that
    /// maps an IPv4 address, as perftest does, otherwise number 0.
    pub fn info(&self) -> io::Result<DeviceInfo> {
        // SAFETY: all-zero is valid for this struct of integers.
        let mut device: ffi::ibv_device_attr = unsafe { mem::zeroed() };
        // SAFETY: the context is open and the struct is the one that the call fills.
        check(unsafe { ffi::ibv_query_device(self.raw(), &raw mut device) })?;
        // SAFETY: all-zero is valid for this struct of integers.
        let mut port: ffi::ibv_port_attr = unsafe { mem::zeroed() };
        // SAFETY: the context is open, and the exported function fills the first part of the
        // struct.
        check(unsafe { ffi::ibv_query_port(self.raw(), PORT, (&raw mut port).cast()) })?;
        let (gid_index, gid) = self.pick_gid(port.gid_tbl_len)?;
        // SAFETY: the call has left a terminated string in it.
        let firmware = unsafe { CStr::from_ptr(device.fw_ver.as_ptr()) };
        let positive = |n: i32| u32::try_from(n).unwrap_or(0);
        Ok(DeviceInfo {
            name: self.name.clone(),
            vendor_id: device.vendor_id,
            max_qp: positive(device.max_qp),
            max_qp_wr: positive(device.max_qp_wr),
            max_sge: positive(device.max_sge),
            max_cq: positive(device.max_cq),
            max_cqe: positive(device.max_cqe),
            max_mr: positive(device.max_mr),
            max_mr_size: device.max_mr_size,
            max_pd: positive(device.max_pd),
            max_srq: positive(device.max_srq),
            max_srq_wr: positive(device.max_srq_wr),
            max_srq_sge: positive(device.max_srq_sge),
            max_qp_rd_atom: positive(device.max_qp_rd_atom),
            max_qp_init_rd_atom: positive(device.max_qp_init_rd_atom),
            // SAFETY: the context is open.
            comp_vectors: positive(unsafe { (*self.raw()).num_comp_vectors }),
            port_active: port.state == ffi::IBV_PORT_ACTIVE,
            active_mtu: port.active_mtu,
            max_msg_sz: port.max_msg_sz,
            gid_index,
            gid,
            firmware: firmware.to_string_lossy().into_owned(),
            node_guid: device.node_guid,
            sys_image_guid: device.sys_image_guid,
            ports: device.phys_port_cnt.into(),
            max_mw: positive(device.max_mw),
            max_pkeys: device.max_pkeys.into(),
            atomic_cap: device.atomic_cap,
            port: PortInfo {
                state: port.state,
                phys_state: port.phys_state,
                max_mtu: port.max_mtu,
                width: port.active_width,
                speed: port.active_speed,
                gids: port.gid_tbl_len,
                pkeys: port.pkey_tbl_len,
                link_layer: port.link_layer,
                lid: port.lid,
            },
        })
    }

    /// Returns an error unless the port with this number exists.
    pub fn has_port(&self, port: u8) -> io::Result<()> {
        // SAFETY: all-zero is valid for this struct of integers.
        let mut attr: ffi::ibv_port_attr = unsafe { mem::zeroed() };
        // SAFETY: the context is open; the exported function fills the leading part of the struct.
        check(unsafe { ffi::ibv_query_port(self.raw(), port, (&raw mut attr).cast()) })
    }

    /// Returns an entry of the GID table.
    pub fn gid(&self, index: i32) -> io::Result<[u8; 16]> {
        let mut gid = ffi::ibv_gid { raw: [0; 16] };
        // SAFETY: the context is open and the GID is the one that the call fills.
        check(unsafe { ffi::ibv_query_gid(self.raw(), PORT, index, &raw mut gid) })?;
        // SAFETY: every bit pattern is a valid raw GID.
        Ok(unsafe { gid.raw })
    }

    /// Returns an entry of the table of partition keys.
    pub fn pkey(&self, index: i32) -> io::Result<u16> {
        let mut key = 0;
        // SAFETY: the context is open and the key is the one that the call fills.
        check(unsafe { ffi::ibv_query_pkey(self.raw(), PORT, index, &raw mut key) })?;
        Ok(u16::from_be(key))
    }

    fn pick_gid(&self, count: i32) -> io::Result<(u8, [u8; 16])> {
        let mut first = None;
        for index in 0..count.min(256) {
            let gid = self.gid(index)?;
            let entry = (index as u8, gid);
            if gid[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff] {
                return Ok(entry);
            }
            first = first.or((gid != [0; 16]).then_some(entry));
        }
        first.ok_or_else(|| io::Error::other("the port has no GID: has its netdev an address?"))
    }

    /// Returns the next asynchronous event, which is acknowledged, or `None` if none comes in time.
    pub fn async_event(&self, timeout: Duration) -> io::Result<Option<RawEvent>> {
        // SAFETY: the context is open.
        if !readable(unsafe { (*self.raw()).async_fd }, timeout)? {
            return Ok(None);
        }
        // SAFETY: all-zero is valid for this struct of integers and a null pointer.
        let mut event: ffi::ibv_async_event = unsafe { mem::zeroed() };
        // SAFETY: the context is open and the struct is the one that the call fills.
        check(unsafe { ffi::ibv_get_async_event(self.raw(), &raw mut event) })?;
        // SAFETY: the largest member of the union is a pointer; for port events its upper half
        // is the zero from above, and it is never dereferenced.
        let object = unsafe { event.element.cq } as usize;
        // SAFETY: the event came from ibv_get_async_event and is acknowledged once.
        unsafe { ffi::ibv_ack_async_event(&raw mut event) };
        Ok(Some(RawEvent { kind: event.event_type, object }))
    }
}

/// Asks libibverbs to care for forks from now on (`ibv_fork_init`).
pub fn prepare_for_forks() -> io::Result<()> {
    // SAFETY: no preconditions.
    check(unsafe { ffi::ibv_fork_init() })
}

/// Returns whether a program that forks must prevent its children from inheriting its regions
/// (`ibv_is_fork_initialized`): kernels before 5.12 did not give a child copies of pinned pages.
pub fn fork_needs_care() -> bool {
    // SAFETY: no preconditions.
    unsafe { ffi::ibv_is_fork_initialized() != ffi::IBV_FORK_UNNEEDED }
}
