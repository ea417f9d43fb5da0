// SPDX-License-Identifier: GPL-2.0
//! Contexts of processes: payloads, mappings, descriptors.
//!
//! | module | what it wraps |
//! | --- | --- |
//! | [`ucontext`], [`mmap`], [`udata`] | a user's context, its mmap keys, private payloads |
//! | [`eventfd`] | eventfds of processes |

pub(crate) mod eventfd;
pub(crate) mod mmap;
pub(crate) mod ucontext;
pub(crate) mod udata;
