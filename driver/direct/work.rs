// SPDX-License-Identifier: GPL-2.0
//! The work requests and completions of `direct.h`, for which verbs have no numbers.

use abi::sq::Opcode;

use crate::{
    bindings,
    rdma::{own_wr::OwnWr, requests::wc::WcOpcode},
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
/// The operation that completions of SCSI commands name.
pub(crate) const COMMAND: WcOpcode = WcOpcode::new(bindings::VRNIC_WC_COMMAND);
/// The flag of a receive for which the adapter has executed a PDU.
pub(crate) const EXECUTED: u32 = bindings::VRNIC_WC_EXECUTED;
/// The flag of the receive that has ended a command.
pub(crate) const ENDED: u32 = bindings::VRNIC_WC_ENDED;
