// SPDX-License-Identifier: GPL-2.0
//! Address handles: address vectors kept until datagrams are posted with them.

use abi::{qp::AddressVector, uverbs::AhResp};
use kernel::prelude::*;

use super::{
    Verbs,
    modify::{decode_av, encode_av},
};
use crate::rdma::{
    ah::{AhAttr, AhValues},
    udata::User,
};

/// An address handle.
pub(crate) struct Ah {
    /// The address vector that goes into the entries of its datagrams.
    pub(super) av: AddressVector,
}

impl Ah {
    /// Returns the address vector that it was created with.
    pub(super) fn query(&self) -> AhValues {
        decode_av(&self.av)
    }
}

pub(super) fn create(attr: &AhAttr, user: Option<&User<'_, Verbs>>) -> Result<Ah> {
    let av = encode_av(attr)?;
    if let Some(user) = user {
        user.data.no_request()?;
        user.data.respond(&AhResp { av })?;
    }
    Ok(Ah { av })
}
