//! Resolution of service IDs.

use vrnic_cm::state::{Event, sidr};

use crate::world::{Faults, SERVICE, World, path};

#[test]
fn a_service_has_a_queue_pair() {
    let mut world = World::new(Faults::default(), 0);
    world.managers[1].listen(SERVICE);
    let client = world.managers[0].resolve(world.now, SERVICE, path(0), b"who").expect("room");
    world.carry();
    let Some((server, Event::SidrReqReceived { service, private, .. })) = world.event(1) else {
        panic!("no request");
    };
    assert_eq!((service, &private[..4]), (SERVICE, &b"who\0"[..]));
    world.managers[1].resolved(server, sidr::SUCCESS, 77, 0x1234, b"me").expect("a request");
    world.carry();
    let Some((id, Event::SidrRepReceived { status, qpn, qkey, private })) = world.event(0) else {
        panic!("no answer");
    };
    assert_eq!((id, status, qpn, qkey), (client, sidr::SUCCESS, 77, 0x1234));
    assert_eq!(private[..3], *b"me\0");
}

#[test]
fn a_service_that_nobody_offers_has_none() {
    let mut world = World::new(Faults::default(), 0);
    let client = world.managers[0].resolve(world.now, SERVICE, path(0), &[]).expect("room");
    world.carry();
    assert!(matches!(
        world.event(0),
        Some((id, Event::SidrRepReceived { status: sidr::UNSUPPORTED, .. })) if id == client
    ));
    assert_eq!(world.managers[1].count(), 0);
}

#[test]
fn a_user_that_ends_refuses_and_one_that_hangs_is_given_up() {
    let mut world = World::new(Faults::default(), 0);
    world.managers[1].listen(SERVICE);
    let _client = world.managers[0].resolve(world.now, SERVICE, path(0), &[]).expect("room");
    world.carry();
    let (server, _) = world.event(1).expect("a request");
    world.managers[1].destroy(world.now, server);
    world.carry();
    let event = world.event(0);
    assert!(matches!(event, Some((_, Event::SidrRepReceived { status: sidr::REJECT, .. }))));

    let second = world.managers[0].resolve(world.now, SERVICE, path(0), &[]).expect("room");
    while world.step() {}
    assert_eq!(world.event(0), Some((second, Event::SidrReqError)));
    // The request was sent sixteen times, and was one event.
    assert!(world.event(1).is_some() && world.event(1).is_none());
}
