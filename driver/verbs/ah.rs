// SPDX-License-Identifier: GPL-2.0
//! Address handles: address vectors kept until datagrams are posted with them.

use abi::{
    qp::{AddressVector, NO_VLAN},
    uverbs::AhResp, //
};
use kernel::prelude::*;

use super::{Ctx, Verbs};
use crate::pairing::PORT;
use crate::rdma::{
    ah::{AhAttr, AhOperations, AhValues},
    user::ucontext::User,
};

/// An address handle.
pub(crate) struct Ah {
    /// The address vector that goes into the entries of its datagrams.
    pub(super) av: AddressVector,
}

#[vtable]
impl AhOperations for Verbs {
    fn create_ah(_ctx: &Ctx<'_>, attr: &AhAttr, user: Option<&User<'_, Self>>) -> Result<Ah> {
        let av = encode_av(attr)?;
        if let Some(user) = user {
            user.data.no_request()?;
            user.data.respond(&AhResp { av })?;
        }
        Ok(Ah { av })
    }

    fn query_ah(ah: &Ah) -> AhValues {
        decode_av(&ah.av)
    }
}

/// Returns a destination in the adapter's form.
pub(super) fn encode_av(av: &AhAttr) -> Result<AddressVector> {
    let source = av.source().ok_or(EINVAL)?;
    Ok(AddressVector {
        dgid: av.dgid(),
        dmac: av.dmac().ok_or(EINVAL)?,
        vlan: source.l2_source()?.vlan.unwrap_or(NO_VLAN).into(),
        sgid_index: source.index().into(),
        sl: av.sl(),
        hop_limit: av.hop_limit(),
        traffic_class: av.traffic_class(),
        flow_label: av.flow_label().into(),
        ..AddressVector::default()
    })
}

/// Returns the inverse of [`encode_av`].
pub(super) fn decode_av(av: &AddressVector) -> AhValues {
    AhValues {
        dgid: av.dgid,
        dmac: Some(av.dmac),
        port: PORT,
        sgid_index: u8::try_from(av.sgid_index.get()).unwrap_or(u8::MAX),
        sl: av.sl,
        hop_limit: av.hop_limit,
        traffic_class: av.traffic_class,
        flow_label: av.flow_label.get(),
    }
}
