//! Paths to peers, and address handles.

use rustix::io::Errno;
use vrnic_abi::qp::{AddressVector, NO_VLAN};
use vrnic_abi::uverbs::AhResp;

use super::device::{Device, PORT};
use super::file::OpenFile;
use super::objects::Object;
use super::request::Request;
use super::wire::{UHW_OUT, device::CORE_OUT};
use super::write::{AhAttr, CreateAh, QpDest};
use crate::join::neighbors::Found;

/// The error of a request that waits for an answer of the network, for a second at most. The
/// request is executed again, so programs do not see this error.
pub const ASKED: Errno = Errno::INPROGRESS;
/// Largest flow label: 20 bits.
const FLOW_LABEL_MAX: u32 = (1 << 20) - 1;

/// Returns a path in the adapter's form (`rdma_check_ah_attr` and `ib_resolve_eth_dmac` in
/// drivers/infiniband/core/verbs.c).
///
/// # Errors
/// `EINVAL` if it has no global route, a port or a source GID that does not exist; `ENETUNREACH` if
/// no station has the destination GID, and [`ASKED`] if that is not known yet.
pub fn encode(device: &Device, path: &QpDest) -> Result<AddressVector, Errno> {
    let source = device.gids().get(usize::from(path.sgid_index)).ok_or(Errno::INVAL)?;
    if path.is_global == 0 || path.port_num != PORT {
        return Err(Errno::INVAL);
    }
    Ok(AddressVector {
        dgid: path.dgid,
        dmac: match find(device, source, &path.dgid) {
            Found::Known(mac) => mac,
            Found::Asked => return Err(ASKED),
            Found::Nowhere => return Err(Errno::NETUNREACH),
        },
        vlan: NO_VLAN.into(),
        sgid_index: u16::from(path.sgid_index).into(),
        sl: path.sl,
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        flow_label: (path.flow_label & FLOW_LABEL_MAX).into(),
        ..AddressVector::default()
    })
}

/// Returns the inverse of [`encode`].
#[must_use]
pub fn decode(av: &AddressVector) -> QpDest {
    QpDest {
        dgid: av.dgid,
        flow_label: av.flow_label.get(),
        sgid_index: u8::try_from(av.sgid_index.get()).unwrap_or(u8::MAX),
        hop_limit: av.hop_limit,
        traffic_class: av.traffic_class,
        sl: av.sl,
        is_global: 1,
        port_num: PORT,
        ..QpDest::default()
    }
}

/// Returns the MAC for a GID: that of a group (RFC 1112, RFC 2464), the one in a link-local
/// address, or that of the station that has the GID, which may have to be asked with an own one.
fn find(device: &Device, own: &[u8; 16], gid: &[u8; 16]) -> Found {
    contained(gid).map_or_else(|| device.neighbors().find(own, gid), Found::Known)
}

/// Returns the MAC that follows from a GID, if one does.
#[must_use]
pub fn contained(gid: &[u8; 16]) -> Option<[u8; 6]> {
    match *gid {
        [0xff, .., a, b, c, d] => Some([0x33, 0x33, a, b, c, d]),
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] if a & 0xf0 == 0xe0 => {
            Some([1, 0, 0x5e, b & 0x7f, c, d])
        }
        [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a, b, c, _, _, d, e, f] => Some([a ^ 2, b, c, d, e, f]),
        _ => None,
    }
}

/// Creates an address handle (`ib_uverbs_create_ah`).
///
/// # Errors
/// Those of [`encode`].
pub fn create(file: &mut OpenFile, request: &Request<'_>, command: &CreateAh) -> Result<(), Errno> {
    let _exists = file.objects.pd(command.pd_handle)?;
    file.objects.check_room()?;
    let AhAttr { dgid, flow_label, sgid_index, hop_limit, traffic_class, sl, .. } = command.attr;
    let AhAttr { is_global, port_num, .. } = command.attr;
    let path = QpDest {
        dgid,
        flow_label,
        sgid_index,
        hop_limit,
        traffic_class,
        sl,
        is_global,
        port_num,
        ..QpDest::default()
    };
    let av = encode(file.device(), &path)?;
    request.respond_or_zero(UHW_OUT, &AhResp { av })?;
    let handle = file.objects.insert(Object::Ah(command.pd_handle));
    request.respond_or_zero(CORE_OUT, &handle).inspect_err(|_| file.objects.remove(handle))
}
