//! Receive side scaling: work queues, tables of them, and QPs that spread frames over them.

use std::io;
use std::mem;
use std::ptr::{self, NonNull};

use super::cq::Cq;
use super::memory::Pd;
use super::qp::Qp;
use super::wr::{self, Refused};
use super::{check, ffi, missing, object};
use crate::context::Context;
use crate::model::{Hash, RecvWr, WqAttr, WqChange};

/// A work queue.
pub struct Wq {
    pub(crate) raw: NonNull<ffi::ibv_wq>,
}

/// A table of work queues.
pub struct WqTable {
    pub(crate) raw: NonNull<ffi::ibv_rwq_ind_table>,
}

impl Wq {
    /// Creates a work queue. Also returns the number of work requests that it has room for.
    pub fn new(pd: &Pd, cq: &Cq, attr: &WqAttr) -> io::Result<(Self, u32)> {
        // SAFETY: all-zero is valid for this struct of integers and null pointers.
        let mut init: ffi::ibv_wq_init_attr = unsafe { mem::zeroed() };
        (init.pd, init.cq) = (pd.raw(), cq.raw());
        (init.wq_type, init.max_wr, init.max_sge) = (attr.kind, attr.max_wr, attr.max_sge);
        if attr.flags != 0 {
            (init.comp_mask, init.create_flags) = (ffi::IBV_WQ_INIT_ATTR_FLAGS, attr.flags);
        }
        // SAFETY: the PD is live, and so is its context; `init` is complete.
        let raw = object(unsafe {
            let context = (*pd.raw()).context;
            let create = ffi::extended(context).create_wq.ok_or_else(missing)?;
            create(context, &raw mut init)
        })?;
        Ok((Self { raw }, init.max_wr))
    }

    /// Returns the number of the work queue.
    pub fn number(&self) -> u32 {
        // SAFETY: the handle is live, and the number is constant.
        unsafe { (*self.raw()).wq_num }
    }

    /// Changes the state of the work queue.
    pub fn modify(&self, change: &WqChange) -> io::Result<()> {
        let bit = |given, bit| if given { bit } else { 0 };
        let mut attr = ffi::ibv_wq_attr {
            attr_mask: bit(change.state.is_some(), ffi::IBV_WQ_ATTR_STATE)
                | bit(change.current.is_some(), ffi::IBV_WQ_ATTR_CURR_STATE)
                | bit(change.flags.is_some(), ffi::IBV_WQ_ATTR_FLAGS),
            wq_state: change.state.unwrap_or_default(),
            curr_wq_state: change.current.unwrap_or_default(),
            flags: change.flags.unwrap_or_default(),
            flags_mask: change.flags.unwrap_or_default(),
        };
        // SAFETY: the handle is live, and so is its context; the struct is complete.
        check(unsafe {
            let modify = ffi::extended((*self.raw()).context).modify_wq;
            modify.ok_or_else(missing)?(self.raw(), &raw mut attr)
        })
    }

    /// Posts a list of receive work requests.
    pub fn post_recv(&self, requests: &[RecvWr]) -> Result<(), Refused> {
        wr::post_recv(requests, |first, bad| {
            // SAFETY: the handle is live; list and segments are valid during the call. The provider
            // has set the function.
            unsafe { (*self.raw()).post_recv.map_or(-1, |post| post(self.raw(), first, bad)) }
        })
    }
}

impl WqTable {
    /// Creates a table with this log2 of its number of entries, in which the work queues take
    /// turns.
    pub fn new(context: &Context, log_entries: u32, queues: &[&Wq]) -> io::Result<Self> {
        let count = 1 << log_entries.min(16);
        let mut entries: Vec<_> = queues.iter().cycle().take(count).map(|wq| wq.raw()).collect();
        let mut init = ffi::ibv_rwq_ind_table_init_attr {
            log_ind_tbl_size: log_entries,
            ind_tbl: if queues.is_empty() { ptr::null_mut() } else { entries.as_mut_ptr() },
            comp_mask: 0,
        };
        // SAFETY: the context is open, and the list has as many live work queues as it says.
        let raw = object(unsafe {
            let create = ffi::extended(context.raw()).create_rwq_ind_table.ok_or_else(missing)?;
            create(context.raw(), &raw mut init)
        })?;
        Ok(Self { raw })
    }
}

impl Qp {
    /// Creates a QP of this type that spreads frames over the work queues of a table.
    pub fn spreading(pd: &Pd, table: &WqTable, qp_type: u32, hash: &Hash) -> io::Result<Self> {
        // SAFETY: all-zero is valid for this struct of integers and null pointers.
        let mut attr: ffi::ibv_qp_init_attr_ex = unsafe { mem::zeroed() };
        attr.qp_type = qp_type;
        attr.comp_mask = ffi::IBV_QP_INIT_ATTR_PD
            | ffi::IBV_QP_INIT_ATTR_IND_TABLE
            | ffi::IBV_QP_INIT_ATTR_RX_HASH;
        attr.pd = pd.raw();
        attr.rwq_ind_tbl = table.raw();
        let mut key = hash.key.clone();
        attr.rx_hash_conf = ffi::ibv_rx_hash_conf {
            rx_hash_function: hash.function,
            rx_hash_key_len: u8::try_from(key.len()).unwrap_or(u8::MAX),
            rx_hash_key: key.as_mut_ptr(),
            rx_hash_fields_mask: hash.fields,
        };
        // SAFETY: PD and table are live, and so is their context; the key lives during the call.
        let raw = unsafe {
            let context = (*pd.raw()).context;
            let create = ffi::extended(context).create_qp_ex.ok_or_else(missing)?;
            create(context, &raw mut attr)
        };
        Ok(Self { raw: object(raw)?, extended: false })
    }
}
