// SPDX-License-Identifier: GPL-2.0
//! Paths, GIDs and address handles.

use core::{
    mem::{self, ManuallyDrop},
    ptr,
    ptr::NonNull,
};

use kernel::{
    error::{from_err_ptr, to_result},
    new_spinlock_irq,
    prelude::*,
    sync::{Arc, SpinLockIrq},
};

use crate::{
    bindings,
    kclient::pd::{Device, Pd},
};

/// The adapter's port.
pub(crate) const PORT: u32 = 1;

/// A path on Ethernet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path {
    /// The port that it leaves by.
    pub(crate) port: u32,
    /// GID of the destination.
    pub(crate) dgid: [u8; 16],
    /// MAC of the destination.
    pub(crate) dmac: [u8; 6],
    /// The source's index in the GID table.
    pub(crate) sgid_index: u8,
    /// Flow label, 20 bits.
    pub(crate) flow_label: u32,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
}

impl Path {
    /// Returns the core's struct.
    pub(crate) fn to_raw(self) -> bindings::rdma_ah_attr {
        // SAFETY: a plain C struct of numbers and pointers, for which zero is valid.
        let mut raw: bindings::rdma_ah_attr = unsafe { mem::zeroed() };
        raw.type_ = bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE;
        // CAST: the flag is bit 0 of a byte.
        raw.ah_flags = bindings::ib_ah_flags_IB_AH_GRH as u8;
        raw.port_num = self.port;
        raw.grh.dgid.raw = ManuallyDrop::new(self.dgid);
        raw.grh.sgid_index = self.sgid_index;
        raw.grh.flow_label = self.flow_label;
        raw.grh.hop_limit = self.hop_limit;
        raw.grh.traffic_class = self.traffic_class;
        raw.__bindgen_anon_1.roce = ManuallyDrop::new(bindings::roce_ah_attr { dmac: self.dmac });
        raw
    }

    /// Converts the core's struct, if it describes a path on Ethernet.
    fn from_raw(raw: &bindings::rdma_ah_attr) -> Option<Self> {
        if raw.type_ != bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE {
            return None;
        }
        // SAFETY: all views of a GID are bytes.
        let dgid = unsafe { *raw.grh.dgid.raw };
        // SAFETY: the type says that this view of the union is valid.
        let dmac = unsafe { raw.__bindgen_anon_1.roce.dmac };
        Some(Self {
            port: raw.port_num,
            dgid,
            dmac,
            sgid_index: raw.grh.sgid_index,
            flow_label: raw.grh.flow_label,
            hop_limit: raw.grh.hop_limit,
            traffic_class: raw.grh.traffic_class,
        })
    }
}

/// An entry of a port's GID table, kept until this is dropped.
///
/// # Invariants
///
/// This type has a reference to the entry `raw`, which does not change.
pub(crate) struct Gid {
    raw: NonNull<bindings::ib_gid_attr>,
    // Dropped after the entry was let go.
    _device: Arc<dyn Device>,
}

impl Gid {
    /// Returns the entry at an index.
    ///
    /// # Errors
    ///
    /// `ENODATA` or `EINVAL` if there is none.
    pub(crate) fn new(device: &Arc<dyn Device>, index: u8) -> Result<Self> {
        let device = device.clone();
        let raw = device.as_raw().as_ptr();
        // SAFETY: the device is registered, as `device` is alive.
        let raw = unsafe { bindings::rdma_get_gid_attr(raw, PORT, index.into()) };
        let raw = NonNull::new(from_err_ptr(raw.cast_mut())?).ok_or(ENOENT)?;
        // INVARIANT: `rdma_get_gid_attr` has taken a reference for the caller.
        Ok(Self { raw, _device: device })
    }

    /// Returns the GID.
    pub(crate) fn gid(&self) -> [u8; 16] {
        // SAFETY: by the type's invariants the entry is alive and does not change; all views of a
        // GID are bytes.
        unsafe { *self.raw.as_ref().gid.raw }
    }

    /// Returns the index of the GID.
    pub(crate) fn index(&self) -> Result<u8> {
        // SAFETY: by the type's invariants the entry is alive and does not change.
        Ok(unsafe { self.raw.as_ref() }.index.try_into()?)
    }

    /// Returns the MAC of its netdev.
    pub(crate) fn mac(&self) -> Result<[u8; 6]> {
        let (mut mac, vlan) = ([0; 6], ptr::null_mut());
        // SAFETY: by the type's invariants the entry is alive; there is room for a MAC, and no VLAN
        // is asked for.
        let status =
            unsafe { bindings::rdma_read_gid_l2_fields(self.raw.as_ptr(), vlan, mac.as_mut_ptr()) };
        to_result(status)?;
        Ok(mac)
    }
}

impl Drop for Gid {
    fn drop(&mut self) {
        // SAFETY: by the type's invariants this has a reference, which it gives back once.
        unsafe { bindings::rdma_put_gid_attr(self.raw.as_ptr()) };
    }
}

/// An address handle that is made and destroyed where nothing may sleep: under a spin lock, without
/// interrupts.
///
/// # Invariants
///
/// `raw`, if there is one, is an address handle in `pd` that this type owns.
pub(crate) struct Ah {
    raw: Option<NonNull<bindings::ib_ah>>,
    lock: Pin<KBox<SpinLockIrq<()>>>,
    // Dropped after the handle was destroyed.
    pd: Arc<Pd>,
}

impl Ah {
    /// Makes an address handle for the path.
    pub(crate) fn new(pd: &Arc<Pd>, path: Path) -> Result<Self> {
        let lock = KBox::pin_init(new_spinlock_irq!((), "kverbs::Ah"), GFP_KERNEL)?;
        let mut attr = path.to_raw();
        let guard = lock.lock();
        // SAFETY: the domain is alive; the attributes are copied. Without flags it does not sleep.
        let raw = unsafe { bindings::rdma_create_ah(pd.as_raw(), &mut attr, 0) };
        drop(guard);
        let raw = NonNull::new(from_err_ptr(raw)?).ok_or(ENOMEM)?;
        // INVARIANT: the handle was created just now, for this caller.
        Ok(Self { raw: Some(raw), lock, pd: pd.clone() })
    }

    /// Reads it back.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is not of Ethernet.
    pub(crate) fn path(&self) -> Result<Path> {
        let raw = self.raw.ok_or(EINVAL)?;
        let mut attr = Path::default().to_raw();
        // SAFETY: by the type's invariants the handle is alive.
        to_result(unsafe { bindings::rdma_query_ah(raw.as_ptr(), &mut attr) })?;
        Path::from_raw(&attr).ok_or(EINVAL)
    }

    /// Destroys the address handle.
    pub(crate) fn destroy(mut self) -> Result {
        self.end()
    }

    fn end(&mut self) -> Result {
        let Some(raw) = self.raw.take() else { return Ok(()) };
        let guard = self.lock.lock();
        // SAFETY: by the type's invariants the handle is this type's own; `take` has left none, so
        // it is not used afterwards. Without flags it does not sleep.
        let status = unsafe { bindings::rdma_destroy_ah_user(raw.as_ptr(), 0, ptr::null_mut()) };
        drop(guard);
        to_result(status).inspect_err(|_| mem::forget(self.pd.clone()))
    }
}

impl Drop for Ah {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            pr_err!("an address handle could not be destroyed: {error:?}\n");
        }
    }
}
