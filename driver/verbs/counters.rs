// SPDX-License-Identifier: GPL-2.0
//! The counters of the port: their names, and their values.

use abi::{
    CountersId,
    admin::{BindCounters, DeviceFeatures, QueryCounters, QueryParams, STAT_NAMES, Stats, command},
};
use kernel::{
    dma::Coherent,
    io::{Io, io_project},
    prelude::*,
    str::CStr,
};

use super::{Ctx, Verbs};
use crate::rdma::{self, counter::CounterOperations, stats::StatDesc};

/// Number of counters.
pub(super) const STATS: usize = STAT_NAMES.len();
/// Room for a counter's name and its terminator.
const NAME_LEN: usize = 32;

/// The counters' names as C strings.
static NAMES: [[u8; NAME_LEN]; STATS] = {
    let mut names = [[0; NAME_LEN]; STATS];
    let mut i = 0;
    while i < STATS {
        let name = STAT_NAMES[i].as_bytes();
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
pub(super) static STAT_DESCS: [StatDesc; STATS] = {
    let mut descs = [const { StatDesc::new(c"") }; STATS];
    let mut i = 0;
    while i < STATS {
        let Ok(name) = CStr::from_bytes_until_nul(&NAMES[i]) else {
            panic!("a counter's name has no terminator")
        };
        descs[i] = StatDesc::new(name);
        i += 1;
    }
    descs
};

/// Reads the counters of the port. They do not contain the work that sets have counted.
pub(super) fn read(ctx: &Ctx<'_>, values: &mut [u64]) -> Result {
    fill(ctx, values, |addr, length| {
        ctx.execute::<command::QueryStats>(&QueryParams::new(addr, length))
    })
}

/// Reads the counters of the port with the work that sets have counted.
pub(super) fn read_all(ctx: &Ctx<'_>, values: &mut [u64]) -> Result {
    if !ctx.adapter.caps().has(DeviceFeatures::COUNTER_SETS) {
        return read(ctx, values);
    }
    fill(ctx, values, |addr, length| {
        ctx.execute::<command::QueryCounters>(&QueryCounters::new(addr, length, 0))
    })
}

/// Reads counters that `query` stores at a bus address.
fn fill(ctx: &Ctx<'_>, values: &mut [u64], query: impl FnOnce(u64, u32) -> Result) -> Result {
    let buffer = Coherent::<u64>::zeroed_slice(ctx.dma(), STATS, GFP_KERNEL)?;
    query(buffer.dma_address(), u32::try_from(size_of::<Stats>())?)?;
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

    fn bind_counters(ctx: &Ctx<'_>, qp: &rdma::qp::Qp<Self>, set: Option<u32>) -> Result {
        match set {
            Some(set) => ctx.execute::<command::BindCounters>(&BindCounters::new(qp.qpn, set)),
            // A set of an adapter that has died counts nothing.
            None => ctx.destroy::<command::BindCounters>(&BindCounters::new(qp.qpn, 0)),
        }
    }

    fn read_counters(ctx: &Ctx<'_>, set: u32, values: &mut [u64]) -> Result {
        fill(ctx, values, |addr, length| {
            ctx.execute::<command::QueryCounters>(&QueryCounters::new(addr, length, set))
        })
    }
}
