// SPDX-License-Identifier: GPL-2.0
//! Address handles: made where nothing may sleep, and read back.

use kernel::prelude::*;

use crate::{
    check::expect,
    path::{Ah, Gid, PORT, Path},
    sides::Test,
};

/// A destination MAC that no station has.
const DMAC: [u8; 6] = [0x52, 0x54, 0x00, 0x01, 0x02, 0x03];

/// Runs the test.
pub(crate) fn run(test: &Test) -> Result {
    let gid = Gid::new(test.pd.device(), 0)?;
    let want = Path {
        port: PORT,
        dgid: gid.gid(),
        dmac: DMAC,
        sgid_index: gid.index()?,
        flow_label: 0x12345,
        hop_limit: 17,
        traffic_class: 0x28,
    };
    let ah = Ah::new(&test.pd, want)?;
    drop(gid);
    same(ah.path(), &want)?;
    ah.destroy()
}

fn same(got: Result<Path>, want: &Path) -> Result {
    expect(got.is_ok(), "query of an address handle")?;
    let got = got?;
    expect(got.port == want.port, "port of an address handle")?;
    expect(got.dgid == want.dgid, "GID of an address handle")?;
    expect(got.sgid_index == want.sgid_index, "source of an address handle")?;
    expect(got.flow_label == want.flow_label, "flow label of an address handle")?;
    expect(got.hop_limit == want.hop_limit, "hop limit of an address handle")?;
    expect(got.traffic_class == want.traffic_class, "traffic class of an address handle")?;
    expect(got.dmac == want.dmac, "MAC of an address handle")
}
