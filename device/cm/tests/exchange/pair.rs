//! Connections of two adapters.

use std::time::Duration;

use vrnic_cm::state::{Error, Event, State, reason};

use crate::world::{Faults, MOST, SERVICE, World, qp};

fn world() -> World {
    World::new(Faults::default(), 0)
}

/// Shows: network: both ends agree on all parameters
#[test]
fn both_ends_know_each_other() {
    let mut world = world();
    world.managers[1].listen(SERVICE);
    let client = world.connect(0, 100, b"hello");
    world.carry();
    let Some((server, Event::ReqReceived(requested))) = world.event(1) else {
        panic!("no request");
    };
    assert_eq!((requested.service, requested.qp), (SERVICE, qp(100)));
    assert_eq!(requested.private[..6], *b"hello\0");
    let own = vrnic_cm::parameters::Qp { initiator_depth: 2, ..qp(200) };
    world.managers[1].accept(world.now, server, &own, b"welcome").expect("a request");
    world.carry();
    let Some((id, Event::RepReceived { qp: peer, private })) = world.event(0) else {
        panic!("no reply");
    };
    assert_eq!((id, peer.qpn, peer.ece), (client, 200, own.ece));
    assert_eq!(private[..8], *b"welcome\0");
    world.managers[0].ready(client).expect("a reply");
    world.carry();
    assert_eq!(world.event(1), Some((server, Event::RtuReceived)));
    let [a, b] = [(0, client), (1, server)]
        .map(|(side, id)| world.managers[side].get(id).expect("a connection").clone());
    assert_eq!([a.state(), b.state()], [State::Established; 2]);
    assert_eq!([a.peer().qpn, b.peer().qpn], [200, 100]);
    assert_eq!([a.peer().psn, b.peer().psn], [b.own().psn, a.own().psn]);
    // What one side serves is what the other one has outstanding.
    assert_eq!([a.initiator_depth(), b.responder_resources()], [3, 3]);
    assert_eq!([a.responder_resources(), b.initiator_depth()], [2, 2]);
    assert_eq!([a.rnr_retry_count(), b.rnr_retry_count(), b.retry_count()], [6, 6, 7]);
}

#[test]
fn an_end_waits_for_late_packets() {
    let mut world = world();
    let [client, server] = world.established([1, 2]);
    world.managers[0].disconnect(world.now, client).expect("a connection");
    world.carry();
    assert_eq!(world.event(1), Some((server, Event::DreqReceived)));
    world.managers[1].disconnect(world.now, server).expect("a request");
    world.carry();
    assert_eq!(world.event(0), Some((client, Event::DrepReceived)));
    world.pass(Duration::from_secs(2));
    for (side, id) in [(0, client), (1, server)] {
        assert_eq!(world.event(side), Some((id, Event::TimeWaitExit)));
        assert_eq!(world.managers[side].get(id).map(|own| own.state()), Some(State::Idle));
    }
}

#[test]
fn a_service_that_nobody_offers_is_refused() {
    let mut world = world();
    let client = world.connect(0, 1, &[]);
    world.carry();
    let event = world.event(0);
    assert!(matches!(
        event,
        Some((id, Event::RejReceived { reason: reason::INVALID_SERVICE_ID, .. })) if id == client
    ));
    assert_eq!(world.managers[1].count(), 0);
}

#[test]
fn a_reject_says_why() {
    let mut world = world();
    world.managers[1].listen(SERVICE);
    let client = world.connect(0, 1, &[]);
    world.carry();
    let (server, _) = world.event(1).expect("a request");
    let rejected = world.managers[1].reject(world.now, server, reason::CONSUMER, b"no");
    assert_eq!(rejected, Ok(()));
    world.carry();
    let Some((id, Event::RejReceived { reason, private })) = world.event(0) else {
        panic!("no reject");
    };
    assert_eq!((id, reason), (client, reason::CONSUMER));
    assert_eq!(private[..3], *b"no\0");
    assert_eq!(world.managers[1].disconnect(world.now, server), Err(Error::WrongState));
}

#[test]
fn a_peer_that_does_not_answer_is_given_up() {
    let mut world = World::new(Faults { lost: 100, ..Faults::default() }, 0);
    let client = world.connect(0, 1, &[]);
    while world.step() {}
    assert_eq!(world.event(0), Some((client, Event::ReqError)));
    assert_eq!(world.managers[0].counters().repeated, 15);
    assert!(world.now.since(vrnic_packet::Nanos(0)) < Duration::from_secs(100));
}

#[test]
fn a_peer_that_vanishes_in_a_connection_is_given_up() {
    let mut world = world();
    let [client, server] = world.established([1, 2]);
    // The other adapter knows nothing any more.
    world.managers[1].forget(server);
    world.managers[0].disconnect(world.now, client).expect("a connection");
    world.carry();
    // A manager that does not know the connection agrees to its end.
    assert_eq!(world.event(0), Some((client, Event::DrepReceived)));
}

#[test]
fn a_slow_user_gets_more_time() {
    let mut world = world();
    world.managers[1].listen(SERVICE);
    let client = world.connect(0, 1, &[]);
    world.carry();
    let (server, _) = world.event(1).expect("a request");
    // The request is sent again, and its receipt is acknowledged.
    world.pass(Duration::from_secs(6));
    assert_eq!(world.managers[1].counters().duplicates, 1);
    let state = world.managers[0].get(client).map(|own| own.state());
    assert_eq!(state, Some(State::MraReqRcvd));
    world.managers[1].accept(world.now, server, &qp(2), &[]).expect("a request");
    world.carry();
    assert!(matches!(world.event(0), Some((_, Event::RepReceived { .. }))));
    // The same for the reply.
    world.pass(Duration::from_secs(6));
    let state = world.managers[1].get(server).map(|own| own.state());
    assert_eq!(state, Some(State::MraRepRcvd));
    world.managers[0].ready(client).expect("a reply");
    world.carry();
    assert_eq!(world.event(1), Some((server, Event::RtuReceived)));
}

#[test]
fn a_peer_that_begins_again_ends_the_old_connection() {
    let mut world = world();
    let [client, server] = world.established([1, 2]);
    world.managers[0].forget(client);
    world.managers[1].listen(SERVICE);
    let again = world.connect(0, 1, &[]);
    world.carry();
    assert!(matches!(
        world.event(0),
        Some((id, Event::RejReceived { reason: reason::STALE_CONNECTION, .. })) if id == again
    ));
    assert_eq!(world.event(1), Some((server, Event::DrepReceived)));
    world.managers[0].destroy(world.now, again);
    let third = world.connect(0, 1, &[]);
    world.carry();
    assert!(matches!(world.event(1), Some((_, Event::ReqReceived(_)))));
    assert_eq!(world.managers[0].get(third).map(|own| own.state()), Some(State::ReqSent));
}

#[test]
fn the_end_of_a_user_is_told_in_each_state() {
    // Before the reply: the client, then the server.
    for side in 0..2 {
        let mut world = world();
        world.managers[1].listen(SERVICE);
        let client = world.connect(0, 1, &[]);
        world.carry();
        let (server, _) = world.event(1).expect("a request");
        world.managers[side].destroy(world.now, [client, server][side]);
        world.carry();
        let wanted = [reason::TIMEOUT, reason::CONSUMER][side];
        let event = world.event(1 - side);
        assert!(
            matches!(event, Some((_, Event::RejReceived { reason, .. })) if reason == wanted),
            "{side}"
        );
    }
    // After it.
    for side in 0..2 {
        let mut world = world();
        world.managers[1].listen(SERVICE);
        let client = world.connect(0, 1, &[]);
        world.carry();
        let (server, _) = world.event(1).expect("a request");
        world.managers[1].accept(world.now, server, &qp(2), &[]).expect("a request");
        world.carry();
        let _replied = world.event(0);
        world.managers[side].destroy(world.now, [client, server][side]);
        world.carry();
        let event = world.event(1 - side);
        assert!(matches!(event, Some((_, Event::RejReceived { .. }))), "{side}");
    }
    // When it is established.
    for side in 0..2 {
        let mut world = world();
        let ends = world.established([1, 2]);
        world.managers[side].destroy(world.now, ends[side]);
        world.carry();
        assert_eq!(world.event(1 - side), Some((ends[1 - side], Event::DreqReceived)));
        assert_eq!(world.managers[side].count(), 0);
    }
}

#[test]
fn connections_and_private_data_are_limited() {
    let mut world = world();
    world.managers[1].listen(SERVICE);
    for qpn in 0..MOST as u32 {
        let _id = world.connect(0, qpn, &[1; 92]);
    }
    world.carry();
    assert_eq!([world.managers[0].count(), world.managers[1].count()], [MOST; 2]);
    let (service, transport) = (SERVICE, vrnic_cm::parameters::Transport::Rc);
    let connect = |private| vrnic_cm::manager::calls::Connect {
        service,
        path: crate::world::path(1),
        transport,
        qp: qp(1),
        private,
    };
    assert_eq!(world.managers[1].connect(world.now, &connect(&[])), Err(Error::NoRoom));
    let (first, _) = world.event(1).expect("a request");
    let accepted = world.managers[1].accept(world.now, first, &qp(1), &[0; 197]);
    assert_eq!(accepted, Err(Error::PrivateData));
    world.managers[1].destroy(world.now, first);
    assert_eq!(world.managers[1].connect(world.now, &connect(&[0; 93])), Err(Error::PrivateData));
    assert_eq!(world.managers[1].count(), MOST - 1);
}

/// Makes a connection and ends it, with users that react to events at once.
fn live(faults: Faults, seed: u64) {
    let mut world = World::new(faults, seed);
    world.managers[1].listen(SERVICE);
    let client = world.connect(0, 1, &[]);
    let (mut established, mut ended) = ([false; 2], [false; 2]);
    while world.step() {
        while let Some((id, event)) = world.event(1) {
            match event {
                Event::ReqReceived(_) => {
                    world.managers[1].accept(world.now, id, &qp(2), &[]).expect("a request");
                }
                Event::RtuReceived => established[1] = true,
                Event::DreqReceived => {
                    world.managers[1].disconnect(world.now, id).expect("a request");
                }
                Event::TimeWaitExit => {
                    world.managers[1].destroy(world.now, id);
                    ended[1] = true;
                }
                // A late copy of the request has come after the end.
                Event::RepError => world.managers[1].destroy(world.now, id),
                other => panic!("{seed}: {other:?}"),
            }
        }
        while let Some((id, event)) = world.event(0) {
            assert_eq!(id, client);
            match event {
                Event::RepReceived { .. } => {
                    world.managers[0].ready(id).expect("a reply");
                    established[0] = true;
                }
                Event::DrepReceived => {}
                Event::TimeWaitExit => {
                    world.managers[0].destroy(world.now, id);
                    ended[0] = true;
                }
                other => panic!("{seed}: {other:?}"),
            }
        }
        if established == [true; 2] {
            // Only the first one does something.
            let _ended = world.managers[0].disconnect(world.now, client);
        }
    }
    assert_eq!((established, ended), ([true; 2], [true; 2]), "{seed}");
    assert_eq!([world.managers[0].count(), world.managers[1].count()], [0, 0], "{seed}");
}

/// Shows: network: lost, repeated and reordered messages
#[test]
fn lost_repeated_and_late_messages_change_nothing() {
    vrnic_cases::seeds(200, |seed| {
        let delay = Duration::from_millis(1 << (seed % 12));
        live(Faults { lost: 20, doubled: 20, delay }, seed);
        1
    });
}
