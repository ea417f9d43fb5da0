// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The libibverbs that has loaded the plugin, and settings of the process.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`environment`] | settings by variables of the environment, and warnings |
//! | [`library`] | the libibverbs that has loaded the plugin |
//! | [`functions`] | the functions and the layout of that library |

pub(crate) mod environment;
pub(crate) mod functions;
pub(crate) mod library;
