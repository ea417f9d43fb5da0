// SPDX-License-Identifier: GPL-2.0
//! The counters of the port: their names, and their values.

use abi::admin::{QueryParams, STAT_NAMES, Stats, command};
use kernel::{
    dma::Coherent,
    io::{Io, io_project},
    prelude::*,
    str::CStr,
};

use super::Ctx;
use crate::rdma::stats::StatDesc;

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

/// Reads the counters.
pub(super) fn read(ctx: &Ctx<'_>, values: &mut [u64]) -> Result {
    let buffer = Coherent::<u64>::zeroed_slice(ctx.dma(), STATS, GFP_KERNEL)?;
    let length = u32::try_from(size_of::<Stats>())?;
    ctx.execute::<command::QueryStats>(&QueryParams::new(buffer.dma_address(), length))?;
    for (i, value) in values.iter_mut().enumerate() {
        *value = u64::from_le(io_project!(buffer, [try: i]).read_val());
    }
    Ok(())
}
