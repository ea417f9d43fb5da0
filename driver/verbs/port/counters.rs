// SPDX-License-Identifier: GPL-2.0
//! The counters of the port: their names, and their values.
//!
//! Optional counters follow the others. The adapter counts them for the function as a whole, and
//! only while they are on, so only the RDMA device of the network card switches them.

use abi::{
    CountersId,
    admin::{
        BindCounters, DeviceFeatures, OPTIONAL_NAMES, QueryCounters, QueryParams, STAT_NAMES,
        SwitchCounter, command,
    },
};
use kernel::{
    dma::Coherent,
    io::{Io, io_project},
    prelude::*,
    str::CStr,
    sync::atomic::Relaxed,
};

use crate::rdma::{self, counter::CounterOperations, port::stats::StatDesc};
use crate::verbs::{Ctx, Verbs};

/// Number of counters that are not optional.
pub(in crate::verbs) const STATS: usize = STAT_NAMES.len();
/// Number of optional counters.
const OPTIONAL: usize = OPTIONAL_NAMES.len();
/// Room for a counter's name and its terminator.
const NAME_LEN: usize = 32;

/// The counters' names as C strings.
static NAMES: [[u8; NAME_LEN]; STATS + OPTIONAL] = {
    let mut names = [[0; NAME_LEN]; STATS + OPTIONAL];
    let mut i = 0;
    while i < names.len() {
        let name = if i < STATS { STAT_NAMES[i] } else { OPTIONAL_NAMES[i - STATS] };
        let name = name.as_bytes();
        assert!(name.len() < NAME_LEN, "a counter's name is too long");
        let mut j = 0;
        while j < name.len() {
            names[i][j] = name[j];
            j += 1;
        }
        i += 1;
    }
    names
};

/// The counters, for the core.
pub(in crate::verbs) static STAT_DESCS: [StatDesc; STATS + OPTIONAL] = {
    let mut descs = [const { StatDesc::new(c"") }; STATS + OPTIONAL];
    let mut i = 0;
    while i < descs.len() {
        let Ok(name) = CStr::from_bytes_until_nul(&NAMES[i]) else {
            panic!("a counter's name has no terminator")
        };
        descs[i] = if i < STATS { StatDesc::new(name) } else { StatDesc::optional(name) };
        i += 1;
    }
    descs
};

/// Reads the counters of the port, and the optional ones if there is room for them. Only the
/// optional ones contain the work that sets have counted.
pub(in crate::verbs) fn read(ctx: &Ctx<'_>, values: &mut [u64]) -> Result {
    let (stats, optional) = values.split_at_mut(values.len().min(STATS));
    fill(ctx, stats, |addr, length| {
        ctx.execute::<command::QueryStats>(&QueryParams::new(addr, length))
    })?;
    if ctx.optional.load(Relaxed) == 0 {
        optional.fill(0);
        return Ok(());
    }
    fill(ctx, optional, |addr, length| {
        ctx.execute::<command::QueryOptional>(&QueryParams::new(addr, length))
    })
}

/// Switches the optional counter at this place of [`STAT_DESCS`] on or off. The core makes one such
/// call at a time.
pub(in crate::verbs) fn switch(ctx: &Ctx<'_>, index: usize, on: bool) -> Result {
    if !ctx.is_of_card || !ctx.adapter.caps().has(DeviceFeatures::OPTIONAL_COUNTERS) {
        return Err(EOPNOTSUPP);
    }
    let index = u32::try_from(index.checked_sub(STATS).ok_or(EINVAL)?)?;
    let bit = 1u32.checked_shl(index).ok_or(EINVAL)?;
    ctx.execute::<command::SwitchCounter>(&SwitchCounter::new(index, on))?;
    let now = ctx.optional.load(Relaxed);
    ctx.optional.store(if on { now | bit } else { now & !bit }, Relaxed);
    Ok(())
}

/// Reads the counters of the port with the work that sets have counted.
pub(in crate::verbs) fn read_all(ctx: &Ctx<'_>, values: &mut [u64]) -> Result {
    if !ctx.adapter.caps().has(DeviceFeatures::COUNTER_SETS) {
        return read(ctx, values);
    }
    fill(ctx, values, |addr, length| {
        ctx.execute::<command::QueryCounters>(&QueryCounters::new(addr, length, 0))
    })
}

/// Reads counters that `query` stores at a bus address.
fn fill(ctx: &Ctx<'_>, values: &mut [u64], query: impl FnOnce(u64, u32) -> Result) -> Result {
    if values.is_empty() {
        return Ok(());
    }
    let buffer = Coherent::<u64>::zeroed_slice(ctx.dma(), values.len(), GFP_KERNEL)?;
    query(buffer.dma_address(), u32::try_from(size_of_val(values))?)?;
    for (i, value) in values.iter_mut().enumerate() {
        *value = u64::from_le(io_project!(buffer, [try: i]).read_val());
    }
    Ok(())
}

#[vtable]
impl CounterOperations for Verbs {
    fn create_counters(ctx: &Ctx<'_>) -> Result<u32> {
        if !ctx.adapter.caps().has(DeviceFeatures::COUNTER_SETS) {
            return Err(EOPNOTSUPP);
        }
        Ok(ctx.execute::<command::CreateCounters>(&())?.get())
    }

    fn destroy_counters(ctx: &Ctx<'_>, set: u32) -> Result {
        ctx.destroy::<command::DestroyCounters>(&CountersId::new(set))
    }

    fn bind_counters(ctx: &Ctx<'_>, qp: &rdma::queues::qp::Qp<Self>, set: Option<u32>) -> Result {
        match set {
            Some(set) => ctx.execute::<command::BindCounters>(&BindCounters::new(qp.qpn, set)),
            // A set of an adapter that has died counts nothing.
            None => ctx.destroy::<command::BindCounters>(&BindCounters::new(qp.qpn, 0)),
        }
    }

    fn read_counters(ctx: &Ctx<'_>, set: u32, values: &mut [u64]) -> Result {
        let (stats, optional) = values.split_at_mut(values.len().min(STATS));
        optional.fill(0);
        fill(ctx, stats, |addr, length| {
            ctx.execute::<command::QueryCounters>(&QueryCounters::new(addr, length, set))
        })
    }
}
