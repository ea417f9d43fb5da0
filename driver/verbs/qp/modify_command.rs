// SPDX-License-Identifier: GPL-2.0
//! The command MODIFY_QP.

use abi::{
    Qpn,
    admin::{ModifyQp, command},
    qp::{Access, Attr, AttrMask, State},
};
use kernel::{dma::Coherent, io::Io, prelude::*};
use zerocopy::IntoBytes;

use crate::verbs::Ctx;

/// Has the adapter change attributes of a queue pair.
pub(in crate::verbs) fn execute(ctx: &Ctx<'_>, qpn: Qpn, attr: &Attr, mask: AttrMask) -> Result {
    let buffer = Coherent::<u8>::zeroed_slice(ctx.dma(), size_of::<Attr>(), GFP_KERNEL)?;
    (&buffer).copy_from_slice(attr.as_bytes());
    ctx.execute::<command::ModifyQp>(&ModifyQp::new(qpn, mask.bits(), buffer.dma_address()))?;
    Ok(())
}

/// Has the adapter take a new queue pair of iWARP to INIT. The connection manager gives the peer of
/// an initiator no rights. As with other RNICs, only the rights of regions matter.
pub(super) fn initialize(ctx: &Ctx<'_>, qpn: Qpn) -> Result {
    let access = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let access = access.bits().into();
    let attr = Attr { state: State::Init as u8, port: 1, access, ..Attr::default() };
    let mask = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
    execute(ctx, qpn, &attr, mask)
}
