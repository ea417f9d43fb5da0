//! Queries of an adapter, and contexts (drivers/infiniband/core/uverbs_std_types_device.c).

use rustix::io::Errno;
use vrnic_abi::ABI_VERSION;
use vrnic_abi::admin::DeviceFeatures;
use vrnic_abi::uverbs::{ContextResp, Features};

use super::device::PORT;
use super::file::{KICK_OFFSET, OpenFile};
use super::request::Request;
use super::ring::RINGS;
use super::wire::{UHW_OUT, device};
use crate::memory::PAGE_SHIFT;

/// `IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS` and `IB_UVERBS_CORE_SUPPORT_ROBUST_UDATA`.
const OPTIONAL_ACCESS: u64 = 1 << 0;
const ROBUST_UDATA: u64 = 1 << 1;

/// Answers QUERY_PORT (`UVERBS_METHOD_QUERY_PORT`).
///
/// # Errors
/// `EINVAL` for a port that does not exist.
pub fn query_port(file: &OpenFile, request: &Request<'_>) -> Result<(), Errno> {
    let port: u64 = request.value(device::PORT_NUMBER);
    if port != u64::from(PORT) {
        return Err(Errno::INVAL);
    }
    request.respond_or_zero(device::PORT_RESPONSE, &file.device().port())
}

/// Answers QUERY_GID_ENTRY.
///
/// # Errors
/// `EINVAL` for a port that does not exist, `ENODATA` for an entry that is not set.
pub fn query_gid_entry(file: &OpenFile, request: &Request<'_>) -> Result<(), Errno> {
    let [port, index]: [u64; 2] =
        [request.value(device::ENTRY_PORT), request.value(device::ENTRY_INDEX)];
    let flags: u64 = request.value(device::ENTRY_FLAGS);
    if port != u64::from(PORT) || flags != 0 || index >= file.device().caps().max_gid.get().into() {
        return Err(Errno::INVAL);
    }
    let index = usize::try_from(index).map_err(|_| Errno::INVAL)?;
    let entry = file.device().entry(index).ok_or(Errno::NODATA)?;
    request.respond_or_zero(device::ENTRY, &entry)
}

/// Answers QUERY_GID_TABLE.
///
/// # Errors
/// `EINVAL` if the room is not one for whole entries, or not for all of them.
pub fn query_gid_table(file: &OpenFile, request: &Request<'_>) -> Result<(), Errno> {
    let size: u64 = request.value(device::ENTRY_SIZE);
    let size = usize::try_from(size).map_err(|_| Errno::INVAL)?;
    let flags: u64 = request.value(device::TABLE_FLAGS);
    let room = usize::from(request.room(device::ENTRIES));
    if size == 0 || flags != 0 || room == 0 || !room.is_multiple_of(size) {
        return Err(Errno::INVAL);
    }
    let mut table = Vec::new();
    let mut count = 0u64;
    let entries = (0..).map_while(|index| file.device().entry(index));
    for entry in entries {
        let end = table.len() + size;
        if end > room {
            return Err(Errno::INVAL);
        }
        let bytes = zerocopy::IntoBytes::as_bytes(&entry);
        table.extend_from_slice(bytes.get(..size).unwrap_or(bytes));
        table.resize(end, 0);
        count += 1;
    }
    request.respond(device::ENTRIES, table.as_slice())?;
    request.respond(device::ENTRY_COUNT, &count)
}

/// Creates a context (`UVERBS_METHOD_GET_CONTEXT`).
///
/// # Errors
/// `EINVAL` if the file has one, and the adapter's refusal.
pub fn get_context(file: &mut OpenFile, request: &Request<'_>) -> Result<(), Errno> {
    let uar = file.create_context()?;
    request.respond(device::COMPLETION_VECTORS, &1u32)?;
    let optional = file.device().driver().profile().optional_access;
    let support = ROBUST_UDATA | if optional { OPTIONAL_ACCESS } else { 0 };
    request.respond(device::CORE_SUPPORT, &support)?;
    let caps = file.device().caps();
    let mut features =
        Features::ANY_VECTOR | Features::REGION_FLAGS | Features::RATE_LIMIT | Features::COMMANDS;
    features |= Features::SYSTEM_CLOCK;
    for (feature, of_device) in [
        (Features::AWAIT, DeviceFeatures::AWAIT),
        (Features::HOLDING_CQ, DeviceFeatures::HOLDING_CQ),
        (Features::KEY_OPTIONS, DeviceFeatures::KEY_OPTIONS),
        (Features::FLUSH, DeviceFeatures::FLUSH),
        (Features::NULL_KEY, DeviceFeatures::NULL_KEY),
        (Features::BLOCK_LOOPBACK, DeviceFeatures::BLOCK_LOOPBACK),
    ] {
        features.set(feature, caps.has(of_device));
    }
    let first_ring = u32::try_from(RINGS.start >> PAGE_SHIFT).map_err(|_| Errno::IO)?;
    request.respond_or_zero(
        UHW_OUT,
        &ContextResp {
            abi_version: ABI_VERSION.into(),
            uar,
            uar_mmap: uar.offset().into(),
            kick_mmap: KICK_OFFSET.into(),
            max_wr: caps.max_wr,
            max_sge: caps.max_sge,
            max_inline: caps.max_inline,
            max_cqe: caps.max_cqe,
            features: features.bits().into(),
            rings: first_ring.into(),
        },
    )
}
