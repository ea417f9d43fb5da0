// SPDX-License-Identifier: GPL-2.0
//! The work requests and completions of `direct.h`, for which verbs have no numbers.

use abi::sq::Opcode;

use crate::{
    bindings,
    rdma::{own_wr::OwnWr, wc::WcOpcode},
};

const _: () =
    assert!(matches!(Opcode::Transfer.info().wr_opcode, Some(bindings::VRNIC_WR_TRANSFER)));
const _: () = assert!(matches!(Opcode::Await.info().wr_opcode, Some(bindings::VRNIC_WR_AWAIT)));

/// The work requests: TRANSFER with the number of a range, AWAIT with a mark and a time limit.
pub(crate) const REQUESTS: &[OwnWr] = &[
    OwnWr::with_key(bindings::VRNIC_WR_TRANSFER),
    // SAFETY: `direct.h` demands that an AWAIT is a `struct ib_rdma_wr`.
    unsafe { OwnWr::with_remote(bindings::VRNIC_WR_AWAIT) },
];

/// The operation that completions of both name.
pub(crate) const COMPLETION: WcOpcode = WcOpcode::new(bindings::VRNIC_WC_TRANSFER);
