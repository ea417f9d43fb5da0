//! Addresses, ports and options.

use std::net::SocketAddr;

use rustix::io::Errno;
use vrnic_exec::rdma_cm::sockaddr::decode;
use vrnic_exec::rdma_cm::wire::{
    BindAny, PS_IB, PS_TCP, Query, ResolveIp, RouteResp, SetOption, command, event,
};

use crate::world::{ANSWER, World};

/// Returns what QUERY_ROUTE says of an identifier.
fn route(world: &mut World, file: vrnic_exec::trap::task::FileId, id: u32) -> RouteResp {
    let query = Query { response: ANSWER, id, option: 0 };
    world.run(file, command::QUERY_ROUTE, &query, size_of::<RouteResp>()).expect("an identifier");
    world.answer()
}

#[test]
fn an_address_is_one_of_an_adapter_and_in_use_once() {
    let mut world = World::new();
    let file = world.open(3);
    let [first, second, third] = [(); 3].map(|()| world.create(file, PS_TCP));
    assert_eq!(world.bind(file, first, "127.0.0.2:7471"), Ok(()));
    assert_eq!(world.bind(file, first, "127.0.0.2:7472"), Err(Errno::INVAL));
    assert_eq!(world.bind(file, second, "127.0.0.2:7471"), Err(Errno::ADDRINUSE));
    assert_eq!(world.bind(file, second, "192.0.2.1:7471"), Err(Errno::NODEV));
    assert_eq!(world.bind(file, second, "127.0.0.1:7471"), Ok(()));
    assert_eq!(world.bind(file, third, "127.0.0.1:80"), Err(Errno::ACCESS));
    let resp = route(&mut world, file, first);
    assert_eq!((resp.ibdev_index, resp.port_num, resp.num_paths), (1, 1, 0));
    assert_eq!(resp.node_guid, [0, 0, 0, 0xff, 0xfe, 0, 0, 2]);
    assert_eq!(decode(&resp.src_addr), Ok(([127, 0, 0, 2], 7471).into()));
    world.destroy(file, first).expect("an identifier");
    assert_eq!(world.bind(file, third, "127.0.0.2:7471"), Ok(()));
}

#[test]
fn a_way_begins_at_the_first_adapter() {
    let mut world = World::new();
    let file = world.open(3);
    let id = world.resolved(file, PS_TCP, "127.0.0.2:7471");
    let resp = route(&mut world, file, id);
    let source = decode(&resp.src_addr).expect("an address");
    assert_eq!(source.ip(), std::net::IpAddr::from([127, 0, 0, 1]));
    assert!((40000..=40099).contains(&source.port()));
    assert_eq!((resp.ibdev_index, resp.num_paths), (0, 1));
    assert_eq!(resp.ib_route[0].dgid[12..], [127, 0, 0, 2]);
    // Other loopback addresses are those of the first adapter.
    for address in ["[::1]:7471", "127.0.1.1:7471"] {
        let id = world.resolved(file, PS_TCP, address);
        assert_eq!(route(&mut world, file, id).ibdev_index, 0);
    }
}

#[test]
fn a_way_to_ipv4_in_the_form_of_ipv6_begins_at_such_an_address() {
    let mut world = World::new();
    let file = world.open(3);
    for address in ["[::ffff:127.0.0.1]:7471", "[::ffff:127.0.0.9]:7471"] {
        let id = world.resolved(file, PS_TCP, address);
        let resp = route(&mut world, file, id);
        let source = decode(&resp.src_addr).expect("an address");
        let own: std::net::IpAddr = "::ffff:127.0.0.1".parse().expect("an address");
        assert_eq!((source.ip(), resp.ibdev_index), (own, 0), "{address}");
        assert_eq!(resp.ib_route[0].sgid[10..], [0xff, 0xff, 127, 0, 0, 1]);
    }
}

#[test]
fn the_address_that_a_way_gives_is_the_one_in_use() {
    let mut world = World::new();
    let file = world.open(3);
    let [first, second] = [(); 2].map(|()| world.create(file, PS_TCP));
    assert_eq!(world.bind(file, first, "0.0.0.0:7471"), Ok(()));
    assert_eq!(world.bind(file, second, "127.0.0.2:7471"), Err(Errno::ADDRNOTAVAIL));
    world.resolve(file, first, "127.0.0.1:7472");
    assert_eq!(world.bind(file, second, "127.0.0.2:7471"), Ok(()));
}

#[test]
fn services_of_infiniband_are_refused() {
    let mut world = World::new();
    let file = world.open(3);
    let id = world.create(file, PS_TCP);
    let ask = |world: &mut World| world.does(file, command::RESOLVE_IB_SERVICE, &[id; 26]);
    assert_eq!(ask(&mut world), Err(Errno::INVAL));
    assert_eq!(world.bind(file, id, "127.0.0.1:7471"), Ok(()));
    assert_eq!(ask(&mut world), Err(Errno::OPNOTSUPP));
}

#[test]
fn an_address_without_an_adapter_is_an_event() {
    let mut world = World::new();
    let file = world.open(3);
    let id = world.create(file, PS_TCP);
    let dest: SocketAddr = "192.0.2.1:7471".parse().expect("an address");
    let dst_addr = vrnic_exec::rdma_cm::sockaddr::encode(Some(&dest));
    let resolve = ResolveIp { dst_addr, id, timeout_ms: 100, ..ResolveIp::default() };
    world.does(file, command::RESOLVE_IP, &resolve).expect("an identifier");
    let resp = world.event(file).expect("an event");
    assert_eq!((resp.event, resp.status), (event::ADDR_ERROR, -19));
    // The identifier can be used again.
    world.does(file, command::RESOLVE_IP, &resolve).expect("an identifier");
}

#[test]
fn addresses_of_infiniband_are_refused() {
    let mut world = World::new();
    let file = world.open(3);
    let id = world.create(file, PS_IB);
    let mut bind = BindAny { id, addr_size: 48, ..BindAny::default() };
    bind.addr[0] = 27;
    assert_eq!(world.does(file, command::BIND, &bind), Err(Errno::NODEV));
}

#[test]
fn options_have_their_lengths_and_times() {
    let mut world = World::new();
    let file = world.open(3);
    let id = world.create(file, PS_TCP);
    let mut set = |level, optname, optlen| {
        let set = SetOption { optval: ANSWER, id, level, optname, optlen };
        world.does(file, command::SET_OPTION, &set)
    };
    assert_eq!([set(0, 0, 1), set(0, 1, 4), set(0, 2, 4), set(0, 3, 1)], [Ok(()); 4]);
    assert_eq!([set(0, 0, 4), set(0, 1, 1)], [Err(Errno::INVAL); 2]);
    assert_eq!([set(0, 9, 1), set(7, 0, 1)], [Err(Errno::NOSYS); 2]);
    assert_eq!(set(1, 1, 72), Err(Errno::OPNOTSUPP));
}
