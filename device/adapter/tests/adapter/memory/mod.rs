//! Regions, keys, windows, and the pages that they lead to.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `regions` | regions: parameters, keys, page tables |
//! | `rereg` | REREG_MR |
//! | `revoked` | REVOKE_MR |
//! | `one_touch` | keys that are valid for one message |
//! | `commands` | regions that end with their command |
//! | `keys` | work requests about keys |
//! | `windows` | memory windows |
//! | `tpt` | the table of keys, with random operations and with threads |
//! | `paging` | regions whose pages come and go |

pub(crate) mod commands;
pub(crate) mod keys;
pub(crate) mod one_touch;
pub(crate) mod paging;
pub(crate) mod regions;
pub(crate) mod rereg;
pub(crate) mod revoked;
pub(crate) mod tpt;
pub(crate) mod windows;
