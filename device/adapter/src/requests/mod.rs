//! Work requests in the form in which a guest writes them.
//!
//! | module | contents |
//! | --- | --- |
//! | [`wqe`] | parsing and checking of a copied entry |
//! | [`command_tag`] | the position of command keys in messages |

pub mod command_tag;
pub mod wqe;
