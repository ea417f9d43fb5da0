//! An iWARP adapter reports its transport, and refuses what only RoCE has.
//!
//! Shows: iwarp

use vrnic_abi::admin::{CreateQp, DeviceFeatures, Mcast, Status, Transport, command};
use vrnic_abi::qp::{Attr, AttrMask, State, Type};
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::qp::Setup;

use crate::bus::{Endpoint, Guest};
use crate::world;

const UNSUPPORTED: Refused = Refused(Status::Unsupported, 0);

fn guest(transport: Transport) -> Guest {
    let guest = world::guest();
    guest.adapter.set_transport(transport);
    guest
}

#[test]
fn the_capabilities_name_the_transport() {
    let caps = guest(Transport::Roce).caps();
    assert_eq!((caps.transport.get(), caps.max_connections.get()), (Transport::Roce as u32, 0));
    assert!(caps.has(DeviceFeatures::FLUSH));
    let counts = [caps.max_gid, caps.max_xrcd, caps.max_mcast_groups, caps.max_mcast_qps];
    assert!(counts.iter().all(|count| count.get() > 0), "{counts:?}");

    let caps = guest(Transport::Iwarp).caps();
    assert_eq!(
        (caps.transport.get(), caps.max_connections.get()),
        (Transport::Iwarp as u32, 1 << 14)
    );
    assert!(!caps.has(DeviceFeatures::FLUSH));
    let counts = [caps.max_xrcd, caps.max_mcast_groups, caps.max_mcast_qps];
    assert!(counts.iter().all(|count| count.get() == 0), "{counts:?}");
    assert_eq!(caps.max_gid.get(), 256);
}

#[test]
fn iwarp_has_reliable_connections_alone() {
    let guest = guest(Transport::Iwarp);
    for kind in [Type::Uc, Type::Ud, Type::Gsi, Type::XrcIni, Type::XrcTgt] {
        let params = CreateQp { qp_type: kind as u8, ..CreateQp::default() };
        assert_eq!(guest.create_qp(&params), Err(UNSUPPORTED), "{kind:?}");
    }
    let endpoint = Endpoint::new(&guest, Setup::default());
    let attr = Attr { state: State::Rtr as u8, ..Attr::default() };
    let connected = guest.modify_qp(endpoint.qpn, AttrMask::STATE, &attr);
    assert_eq!(connected, Err(UNSUPPORTED));
}

#[test]
fn iwarp_has_no_groups_and_domains() {
    let guest = guest(Transport::Iwarp);
    let group = Mcast::new(2u32, [0xff; 16]);
    assert_eq!(guest.command::<command::AttachMcast>(&group), Err(UNSUPPORTED));
    assert_eq!(guest.command::<command::DetachMcast>(&group), Err(UNSUPPORTED));
    assert!(guest.command::<command::AllocXrcd>(&()).is_err_and(|why| why == UNSUPPORTED));
}
