//! Queue pairs of raw packets, and flows.

use std::io;
use std::mem;
use std::ptr::NonNull;

use super::context::PORT;
use super::qp::{InitAttr, Qp};
use super::{check, extended, ffi, missing, object};
use crate::context::Context;
use crate::model::{FlowAttr, QpCap, RawCaps, Spec};

/// A flow.
pub struct Flow {
    raw: NonNull<ffi::ibv_flow>,
}

impl Qp {
    /// Creates a QP of raw packets for large TCP segments with this number of bytes of headers.
    /// Work requests are posted call by call if `by_calls`. Also returns the granted sizes.
    pub fn raw_packets(
        init: &InitAttr<'_>,
        max_headers: u16,
        by_calls: bool,
    ) -> io::Result<(Self, QpCap)> {
        let (qp, cap) = init.create(|pd, raw| {
            // SAFETY: the PD and what the struct names are live.
            unsafe { extended::create_raw_qp(pd, raw, max_headers, by_calls) }
        })?;
        Ok((Self { extended: by_calls, ..qp }, cap))
    }

    /// Creates a flow for this QP.
    pub fn create_flow(&self, attr: &FlowAttr) -> io::Result<Flow> {
        let mut bytes = encode(attr);
        // SAFETY: the handle is live, and so is its context; the attributes outlive the call.
        let raw = unsafe {
            let context = (*self.raw()).context;
            let create = ffi::extended(context).ibv_create_flow.ok_or_else(missing)?;
            create(self.raw(), bytes.as_mut_ptr().cast())
        };
        Ok(Flow { raw: object(raw)? })
    }
}

impl Flow {
    /// Ends the flow, or returns it with the error.
    pub fn destroy(self) -> Result<(), (Self, io::Error)> {
        // SAFETY: the handle is live, and so is its context; on success no reference to it is left.
        let destroyed = unsafe {
            let context = (*self.raw.as_ptr()).context;
            match ffi::extended(context).ibv_destroy_flow {
                Some(destroy) => check(destroy(self.raw.as_ptr())),
                None => Err(missing()),
            }
        };
        destroyed.map_err(|error| (self, error))
    }
}

impl Context {
    /// Queries what the device can do for raw packets.
    pub fn raw_caps(&self) -> io::Result<RawCaps> {
        // SAFETY: all-zero is valid for this struct of integers.
        let mut attr: ffi::ibv_device_attr_ex = unsafe { mem::zeroed() };
        let size = size_of_val(&attr);
        // SAFETY: the context is open, and the struct is the one that the call fills.
        check(unsafe {
            let query = ffi::extended(self.raw()).query_device_ex.ok_or_else(missing)?;
            query(self.raw(), std::ptr::null(), &raw mut attr, size)
        })?;
        let flags = attr.orig_attr.device_cap_flags;
        Ok(RawCaps {
            checksums: attr.raw_packet_caps & ffi::IBV_RAW_PACKET_CAP_IP_CSUM != 0,
            flows: flags & ffi::IBV_DEVICE_MANAGED_FLOW_STEERING != 0,
            max_tso: attr.tso_caps.max_tso,
            tso_types: attr.tso_caps.supported_qpts,
            rss_types: attr.rss_caps.supported_qpts,
            rss_entries: attr.rss_caps.max_rwq_indirection_table_size,
            rss_functions: attr.rss_caps.rx_hash_function,
            rss_fields: attr.rss_caps.rx_hash_fields_mask,
            max_wq: attr.max_wq_type_rq,
        })
    }
}

/// Returns the attributes as libibverbs reads them, in words that are aligned for its struct.
fn encode(attr: &FlowAttr) -> Vec<u64> {
    let size = size_of::<ffi::ibv_flow_attr>();
    let mut bytes = vec![0; size];
    let specs: Vec<u8> = attr.specs.iter().flat_map(Spec::bytes).collect();
    let mut put = |offset: usize, value: &[u8]| {
        bytes[offset..offset + value.len()].copy_from_slice(value);
    };
    put(mem::offset_of!(ffi::ibv_flow_attr, type_), &attr.kind.to_ne_bytes());
    let length = u16::try_from(size + specs.len()).unwrap_or(u16::MAX);
    put(mem::offset_of!(ffi::ibv_flow_attr, size), &length.to_ne_bytes());
    put(mem::offset_of!(ffi::ibv_flow_attr, priority), &attr.priority.to_ne_bytes());
    let count = u8::try_from(attr.specs.len()).unwrap_or(u8::MAX);
    put(mem::offset_of!(ffi::ibv_flow_attr, num_of_specs), &[count]);
    put(mem::offset_of!(ffi::ibv_flow_attr, port), &[attr.port.unwrap_or(PORT)]);
    put(mem::offset_of!(ffi::ibv_flow_attr, flags), &attr.flags.to_ne_bytes());
    bytes.extend(specs);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}
