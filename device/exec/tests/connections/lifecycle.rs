//! Connections from their request to their end.

use rustix::io::Errno;
use vrnic_exec::rdma_cm::files::EVENTS_MAX;
use vrnic_exec::rdma_cm::wire::{
    ConnParam, MigrateId, PS_TCP, PS_UDP, UdParam, WriteCmEvent, command, event,
};
use vrnic_exec::trap::task::FileId;
use zerocopy::FromBytes;

use crate::world::{ANSWER, World};

const ADDRESS: &str = "127.0.0.1:7471";

/// Shows: network: attributes of both queue pairs, and the end at both sides
#[test]
fn a_connection_begins_and_ends_at_both_sides() {
    let mut world = World::new();
    let (server, client) = (world.open(3), world.open(4));
    let _listener = world.listener(server, PS_TCP, ADDRESS, 1);
    let [passive, active] = world.established([server, client], ADDRESS);
    let [own, peer] = [(client, active), (server, passive)]
        .map(|(file, id)| [2, 3].map(|state| world.attributes(file, id, state).expect("states")));
    assert_eq!([own[0].dest_qp_num, peer[0].dest_qp_num], [6, 5]);
    assert_eq!([own[0].rq_psn, peer[0].rq_psn], [peer[1].sq_psn, own[1].sq_psn]);
    assert_eq!([own[0].ah_attr.sgid_index, own[0].ah_attr.is_global], [1, 1]);
    assert_eq!([own[1].max_rd_atomic, peer[0].max_dest_rd_atomic], [1, 1]);
    world.does(client, command::DISCONNECT, &active).expect("a connection");
    assert_eq!(world.kind(server), Some(event::DISCONNECTED));
    assert_eq!(world.kind(client), None);
    world.does(server, command::DISCONNECT, &passive).expect("a connection");
    assert_eq!(world.kind(client), Some(event::DISCONNECTED));
    // The program has read two events of the passive side, and four of the active one.
    assert_eq!(world.destroy(server, passive), Ok(2));
    assert_eq!(world.destroy(client, active), Ok(4));
    assert_eq!(world.destroy(client, active), Err(Errno::NOENT));
}

#[test]
fn a_request_has_private_data_and_a_listener_may_reject_it() {
    let mut world = World::new();
    let (server, client) = (world.open(3), world.open(4));
    let listener = world.listener(server, PS_TCP, ADDRESS, 1);
    let id = world.resolved(client, PS_TCP, ADDRESS);
    assert_eq!(world.connect(client, id, 5, &[1; 57]), Err(Errno::INVAL));
    world.connect(client, id, 5, b"hello").expect("a way");
    let request = world.event(server).expect("a request");
    let (param, _) = ConnParam::read_from_prefix(&request.param).expect("parameters");
    assert_eq!(
        (param.qp_num, param.private_data_len, &param.private_data[..6]),
        (5, 56, &b"hello\0"[..])
    );
    assert_ne!(request.id, listener);
    world.reject(server, request.id).expect("a request");
    let rejected = world.event(client).expect("an event");
    let (param, _) = ConnParam::read_from_prefix(&rejected.param).expect("parameters");
    assert_eq!((rejected.event, rejected.status), (event::REJECTED, 28));
    assert_eq!((param.private_data_len, &param.private_data[..3]), (148, &b"no\0"[..]));
}

#[test]
fn nobody_who_listens_is_a_reject() {
    let mut world = World::new();
    let client = world.open(4);
    let id = world.resolved(client, PS_TCP, ADDRESS);
    world.connect(client, id, 5, &[]).expect("a way");
    let rejected = world.event(client).expect("an event");
    assert_eq!((rejected.event, rejected.status), (event::REJECTED, 8));
    let id = world.resolved(client, PS_UDP, ADDRESS);
    world.connect(client, id, 5, &[]).expect("a way");
    let unreachable = world.event(client).expect("an event");
    assert_eq!((unreachable.event, unreachable.status), (event::UNREACHABLE, 1));
}

#[test]
fn the_end_of_a_file_ends_its_connections() {
    let mut world = World::new();
    let (server, client) = (world.open(3), world.open(4));
    let _listener = world.listener(server, PS_TCP, ADDRESS, 1);
    let _ends = world.established([server, client], ADDRESS);
    world.close(server);
    assert_eq!(world.kind(client), Some(event::DISCONNECTED));
    // The address is free again, and nobody listens.
    let again = world.open(5);
    let _listener = world.listener(again, PS_TCP, ADDRESS, 1);
    // A process that ends before it has read the request.
    let id = world.resolved(client, PS_TCP, ADDRESS);
    world.connect(client, id, 5, &[]).expect("a way");
    world.close(again);
    let rejected = world.event(client).expect("an event");
    assert_eq!((rejected.event, rejected.status), (event::REJECTED, 28));
}

#[test]
fn an_identifier_may_end_inside_of_its_event() {
    let mut world = World::new();
    let (server, client) = (world.open(3), world.open(4));
    let listener = world.listener(server, PS_TCP, ADDRESS, 4);
    let id = world.resolved(client, PS_TCP, ADDRESS);
    world.connect(client, id, 5, &[]).expect("a way");
    let request = world.event(server).expect("a request");
    assert_eq!(world.destroy(server, request.id), Ok(0));
    assert_eq!(world.kind(client), Some(event::REJECTED));
    assert_eq!(world.destroy(client, id), Ok(3));
    // A listener ends with requests that nobody has read.
    let id = world.resolved(client, PS_TCP, ADDRESS);
    world.connect(client, id, 5, &[]).expect("a way");
    assert_eq!(world.destroy(server, listener), Ok(1));
    assert_eq!((world.kind(server), world.kind(client)), (None, Some(event::REJECTED)));
}

#[test]
fn requests_wait_up_to_the_backlog() {
    let mut world = World::new();
    let (server, client) = (world.open(3), world.open(4));
    let _listener = world.listener(server, PS_TCP, ADDRESS, 2);
    for qpn in 1..=3 {
        let id = world.resolved(client, PS_TCP, ADDRESS);
        world.connect(client, id, qpn, &[]).expect("a way");
    }
    // The third one is not rejected: its manager asks again.
    assert_eq!(world.kind(client), None);
    assert_eq!(
        [world.kind(server), world.kind(server), world.kind(server)],
        [Some(4), Some(4), None]
    );
}

/// Adds events of an identifier until its file has room for no more.
fn fill(world: &mut World, file: FileId, id: u32) {
    let write = WriteCmEvent { id, event: event::USER, ..WriteCmEvent::default() };
    let mut results = (0..=EVENTS_MAX).map(|_| world.does(file, command::WRITE_CM_EVENT, &write));
    assert_eq!(results.find(Result::is_err), Some(Err(Errno::NOMEM)));
}

#[test]
fn a_request_without_room_for_its_event_takes_no_place_of_the_backlog() {
    let mut world = World::new();
    let (server, client) = (world.open(3), world.open(4));
    let listener = world.listener(server, PS_TCP, ADDRESS, 2);
    fill(&mut world, server, listener);
    let request = |world: &mut World, qpn| {
        let id = world.resolved(client, PS_TCP, ADDRESS);
        world.connect(client, id, qpn, &[]).expect("a way");
    };
    (1..=3).for_each(|qpn| request(&mut world, qpn));
    (0..EVENTS_MAX).for_each(|_| assert_eq!(world.kind(server), Some(event::USER)));
    assert_eq!(world.kind(server), None);
    (4..=5).for_each(|qpn| request(&mut world, qpn));
    assert_eq!([world.kind(server), world.kind(server)], [Some(event::CONNECT_REQUEST); 2]);
}

#[test]
fn an_identifier_stays_if_there_is_no_room_for_its_events() {
    let mut world = World::new();
    let (server, client, other) = (world.open(3), world.open(4), world.open(5));
    let listener = world.listener(server, PS_TCP, ADDRESS, 2);
    let id = world.resolved(client, PS_TCP, ADDRESS);
    world.connect(client, id, 1, &[]).expect("a way");
    let filler = world.create(other, PS_TCP);
    fill(&mut world, other, filler);
    let migrate = MigrateId { response: ANSWER, id: listener, fd: 3 };
    assert_eq!(world.run(other, command::MIGRATE_ID, &migrate, 4), Err(Errno::NOMEM));
    assert_eq!(world.kind(server), Some(event::CONNECT_REQUEST));
}

#[test]
fn an_identifier_moves_to_another_file_with_its_events() {
    let mut world = World::new();
    let (server, client, other) = (world.open(3), world.open(4), world.open(5));
    let listener = world.listener(server, PS_TCP, ADDRESS, 2);
    let id = world.resolved(client, PS_TCP, ADDRESS);
    world.connect(client, id, 1, &[]).expect("a way");
    let migrate = MigrateId { response: ANSWER, id: listener, fd: 3 };
    world.run(other, command::MIGRATE_ID, &migrate, 4).expect("an identifier");
    assert_eq!(world.answer::<u32>(), 0);
    assert_eq!((world.kind(server), world.kind(other)), (None, Some(event::CONNECT_REQUEST)));
    assert_eq!(world.destroy(server, listener), Err(Errno::INVAL));
    assert_eq!(world.destroy(other, listener), Ok(1));
    let migrate = MigrateId { fd: 99, ..migrate };
    assert_eq!(world.run(other, command::MIGRATE_ID, &migrate, 4), Err(Errno::NOENT));
}

#[test]
fn datagrams_have_a_queue_pair_and_a_key() {
    let mut world = World::new();
    let (server, client) = (world.open(3), world.open(4));
    let _listener = world.listener(server, PS_UDP, "0.0.0.0:7471", 1);
    let id = world.resolved(client, PS_UDP, ADDRESS);
    assert_eq!(world.attributes(client, id, 1).map(|attrs| attrs.qkey), Ok(0x0123_4567));
    world.connect(client, id, 5, b"who").expect("a way");
    let request = world.event(server).expect("a request");
    let (param, _) = UdParam::read_from_prefix(&request.param).expect("parameters");
    assert_eq!((param.private_data_len, &param.private_data[..4]), (180, &b"who\0"[..]));
    world.accept(server, request.id, Some(9)).expect("a request");
    let established = world.event(client).expect("an event");
    let (param, _) = UdParam::read_from_prefix(&established.param).expect("parameters");
    assert_eq!(established.event, event::ESTABLISHED);
    assert_eq!((param.qp_num, param.qkey, param.ah_attr.sgid_index), (9, 0x0123_4567, 1));
}

#[test]
fn a_group_has_an_address_and_a_key() {
    let mut world = World::new();
    let file = world.open(3);
    let id = world.create(file, PS_UDP);
    assert_eq!(world.join(file, id, "239.1.1.1:0"), Err(Errno::INVAL));
    world.bind(file, id, "127.0.0.1:0").expect("a free address");
    let group = world.join(file, id, "239.1.1.1:0").expect("an address");
    let joined = world.event(file).expect("an event");
    let (param, _) = UdParam::read_from_prefix(&joined.param).expect("parameters");
    assert_eq!((joined.event, joined.uid, joined.id), (event::MULTICAST_JOIN, 7, group));
    assert_eq!((param.qp_num, param.ah_attr.dgid[12..].to_vec()), (0xff_ffff, vec![239, 1, 1, 1]));
    let leave = vrnic_exec::rdma_cm::wire::DestroyId { response: ANSWER, id: group, reserved: 0 };
    world.run(file, command::LEAVE_MCAST, &leave, 4).expect("a member");
    assert_eq!(world.answer::<u32>(), 1);
    assert_eq!(world.run(file, command::LEAVE_MCAST, &leave, 4), Err(Errno::NOENT));
}
