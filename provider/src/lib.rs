// SPDX-License-Identifier: GPL-2.0 OR MIT
//! libvrnic: the plugin through which a libibverbs drives a vrnic adapter.
//!
//! libibverbs finds `vrnic.driver` in /etc/libibverbs.d and loads `libvrnic-rdmav34.so`, or a file
//! with another number, which is this library under the name that its private ABI asks for. The
//! constructor in `ffi::driver` registers it with the libibverbs that has loaded it. All that
//! touches C is in `ffi`; the data path itself (rings, doorbells, completions) is the crate
//! `vrnic-queues`, which knows nothing of C.
//!
//! post_send, post_recv, poll_cq and req_notify_cq enter the kernel in no case; a sleeping
//! adapter is woken by a store to a mapped page.
//!
//! The environment variable `VRNIC_SQ` says where send queues are put: `guest` (in the process),
//! `device` (in the adapter's memory), or `auto`, the default: in the adapter for QPs
//! that ask for inline data. `VRNIC_COMP_VECTOR=any` lets the driver choose the completion vector,
//! and with it the processor, of completion queues whose program names vector 0; programs may ask
//! for that themselves (`vrnicdv_create_cq`).
//!
//! `unsafe` is confined to `ffi`.

mod ffi;
