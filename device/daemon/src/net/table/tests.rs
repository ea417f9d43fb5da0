//! Tests of the address table.
//!
//! Shows: network

use super::*;

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const BROADCAST: MacAddr = MacAddr([0xff; 6]);

const fn untagged(mac: MacAddr) -> VlanMac {
    VlanMac { mac, vlan: None }
}

const fn guest(port: PortId) -> Origin {
    Origin { port, uplink: false, adapter: false }
}

const fn uplink(port: PortId) -> Origin {
    Origin { port, uplink: true, adapter: false }
}

impl MacTable {
    /// Records a frame of a station whose adapter, if there is one, has not named the address.
    fn learn(&mut self, at: VlanMac, from: Origin, now: Instant) -> Verdict {
        self.hear(at, from, now, |_| None)
    }
}

/// An adapter whose messages are copied sends no frames.
///
/// Shows: network: an address that only RDMA uses
#[test]
fn an_address_that_an_adapter_uses_does_not_move() {
    let mut table = MacTable::default();
    let start = Instant::now();
    table.learn(untagged(A), guest(0), start);
    let mut want = |steps: u32, messages: Option<u64>| {
        table.hear(untagged(A), guest(1), start + steps * SILENCE, |port| {
            assert_eq!(port, 0, "the port of the address");
            messages
        })
    };
    // The other guest may try seldom, or often.
    for (steps, messages) in [(1, 5), (2, 6), (100, 7), (200, 8)] {
        assert_eq!(want(steps, Some(messages)), Verdict::Forged, "after {messages} messages");
        assert_eq!(want(steps, Some(messages)), Verdict::Forged, "at the same time");
    }
    // No message has moved since the last time.
    assert_eq!(want(201, Some(8)), Verdict::Accept);
    // The adapter has not named the address.
    let mut table = MacTable::default();
    table.learn(untagged(A), guest(0), start);
    assert_eq!(table.learn(untagged(A), guest(1), start + SILENCE), Verdict::Accept);
}

#[test]
fn addresses_are_learnt_moved_and_forgotten() {
    let mut table = MacTable::default();
    let start = Instant::now();
    assert_eq!(table.route(untagged(A), 1), Route::Unknown);
    assert_eq!(table.learn(untagged(A), guest(0), start), Verdict::Accept);
    assert_eq!(table.route(untagged(A), 1), Route::Port(0));
    assert_eq!(table.route(untagged(A), 0), Route::Filter);
    table.learn(untagged(A), guest(2), start + AGEING);
    table.age(start + AGEING, |_, _| false);
    assert_eq!(table.route(untagged(A), 1), Route::Port(2));
    table.age(start + AGEING * 2, |_, _| false);
    assert_eq!(table.route(untagged(A), 1), Route::Unknown);
    table.learn(untagged(A), guest(0), start);
    table.flush(0);
    assert_eq!(table.route(untagged(A), 1), Route::Unknown);
}

#[test]
fn places_are_those_of_the_stations_that_were_heard() {
    let places = Arc::default();
    let (mut table, start) = (MacTable::new(&places), Instant::now());
    let place = |mac| places.port_of(untagged(mac));
    table.learn(untagged(A), guest(0), start);
    table.learn(untagged(B), guest(1), start + AGEING / 2);
    assert_eq!((place(A), place(B)), (Some(0), Some(1)));
    // One moves, and becomes too old there.
    table.learn(untagged(A), guest(2), start + SILENCE);
    assert_eq!(place(A), Some(2));
    table.age(start + SILENCE + AGEING, |_, _| false);
    assert_eq!((place(A), place(B)), (None, Some(1)));
    table.flush(1);
    assert_eq!(place(B), None);
    // The address of a function has its place, even if it was heard elsewhere before.
    table.learn(untagged(A), guest(0), start);
    table.bind(A, 3);
    table.learn(untagged(A), guest(3), start);
    assert_eq!(place(A), Some(3));
    table.unbind(A, 3);
    assert_eq!(place(A), None);
}

#[test]
fn another_port_of_the_guest_uses_a_function_s_address_for_a_time() {
    let places = Arc::default();
    let (mut table, now) = (MacTable::new(&places), Instant::now());
    table.bind(A, 0);
    table.lend(A, 1);
    assert_eq!(
        (table.route(untagged(A), 2), places.port_of(untagged(A))),
        (Route::Port(1), Some(1))
    );
    assert!(table.is_at(untagged(A), 1) && table.lends());
    // The caller decides whether the other port may still use it.
    assert_eq!(table.learn(untagged(A), guest(1), now), Verdict::Forged);
    assert_eq!(table.learn(untagged(A), guest(2), now), Verdict::Forged);
    // A late packet of the owner's adapter changes nothing.
    assert_eq!(
        table.learn(untagged(A), Origin { adapter: true, ..guest(0) }, now),
        Verdict::Accept
    );
    assert_eq!(table.route(untagged(A), 2), Route::Port(1));
    assert_eq!(table.learn(untagged(A), guest(0), now), Verdict::Accept);
    assert_eq!(
        (table.route(untagged(A), 2), places.port_of(untagged(A))),
        (Route::Port(0), Some(0))
    );
    assert_eq!(table.learn(untagged(A), guest(1), now), Verdict::Forged);
    // The address also returns when the other port loses its link.
    table.lend(A, 1);
    table.flush(1);
    assert_eq!(
        (table.route(untagged(A), 2), places.port_of(untagged(A))),
        (Route::Port(0), Some(0))
    );
    // Or when the ports are not of one guest any more.
    table.lend(A, 1);
    table.keep_lent(|owner, port| (owner, port) == (0, 1));
    assert!(table.is_at(untagged(A), 1) && table.lends());
    table.keep_lent(|_, _| false);
    assert!(table.is_at(untagged(A), 0) && !table.lends());
    // Only an address that is bound can be lent.
    table.lend(B, 1);
    assert_eq!(table.route(untagged(B), 2), Route::Unknown);
}

#[test]
fn a_function_s_address_cannot_be_forged() {
    let mut table = MacTable::default();
    table.bind(A, 0);
    assert_eq!(table.learn(untagged(A), guest(1), Instant::now()), Verdict::Forged);
    assert_eq!(table.learn(untagged(BROADCAST), guest(1), Instant::now()), Verdict::Forged);
    assert_eq!(table.learn(untagged(B), guest(1), Instant::now()), Verdict::Accept);
    assert_eq!(table.route(untagged(A), 1), Route::Port(0));
    table.flush(0);
    assert_eq!(table.route(untagged(A), 1), Route::Port(0));
    assert_eq!(table.route(untagged(BROADCAST), 0), Route::Group);
    table.unbind(A, 1);
    assert_eq!(table.route(untagged(A), 1), Route::Port(0), "it is not bound to this port");
    table.unbind(A, 0);
    assert_eq!(table.learn(untagged(A), guest(1), Instant::now()), Verdict::Accept);
    // One that was learnt becomes a function's.
    table.bind(A, 2);
    assert_eq!(table.route(untagged(A), 1), Route::Port(2));
    table.flush(1);
    assert_eq!(table.route(untagged(A), 1), Route::Port(2));
}

fn made_up(n: usize) -> MacAddr {
    let [a, b, c, d] = u32::try_from(n).expect("small").to_be_bytes();
    MacAddr([2, 1, a, b, c, d])
}

/// Shows: hostile: made-up Ethernet addresses take no room of other ports
#[test]
fn made_up_addresses_take_no_room_of_other_ports() {
    let mut table = MacTable::default();
    let now = Instant::now();
    table.learn(untagged(A), guest(1), now);
    for n in 0..100 * GUEST_CAPACITY {
        table.learn(untagged(made_up(n)), guest(0), now);
    }
    assert_eq!(table.learnt.len(), GUEST_CAPACITY + 1);
    assert_eq!(table.route(untagged(A), 0), Route::Port(1), "another port's address is known");
    assert!(!table.is_crowded(now), "this is no matter of uplinks");
    // A station that moves to the full port takes the place of another one there.
    assert_eq!(table.learn(untagged(A), guest(0), now + SILENCE), Verdict::Accept);
    assert_eq!(table.route(untagged(A), 1), Route::Port(0));
    assert_eq!(table.learnt.len(), GUEST_CAPACITY);
    table.flush(0);
    assert!(table.learnt.is_empty() && table.shares.ports().is_empty());
}

/// Two stations send each second, and others are invented at the same uplink.
#[test]
fn the_address_that_was_heard_longest_ago_makes_room() {
    let mut table = MacTable::default();
    let start = Instant::now();
    for n in 0..UPLINK_CAPACITY - 2 {
        table.learn(untagged(made_up(n)), uplink(0), start);
    }
    let mut invented = (UPLINK_CAPACITY..).map(made_up);
    for second in 0..9 {
        let now = start + Duration::from_secs(second);
        for mac in [A, B] {
            table.learn(untagged(mac), uplink(0), now);
        }
        for mac in invented.by_ref().take(UPLINK_CAPACITY / 2) {
            table.learn(untagged(mac), uplink(0), now);
        }
        assert_eq!(
            [A, B].map(|mac| table.route(untagged(mac), 1)),
            [Route::Port(0); 2],
            "{second} s"
        );
        assert_eq!(table.learnt.len(), UPLINK_CAPACITY);
    }
    // The guests' frames to unknown addresses may be for one that has made room.
    let end = start + Duration::from_secs(8);
    assert!(table.is_crowded(end) && !table.is_crowded(end + AGEING));
    assert_eq!(table.route(untagged(made_up(0)), 1), Route::Unknown);
}

#[test]
fn many_old_addresses_are_removed_in_steps() {
    let mut table = MacTable::default();
    let start = Instant::now();
    for n in 0..10 * AGED_MAX {
        table.learn(untagged(made_up(n)), uplink(0), start);
    }
    table.learn(untagged(A), uplink(0), start + AGEING);
    let mut steps = 0;
    while !table.age(start + AGEING, |_, _| false) {
        steps += 1;
        assert_eq!(table.learnt.len(), (10 - steps) * AGED_MAX + 1);
    }
    assert_eq!((steps, table.learnt.len()), (9, 1));
}

/// The cards of a bond may alternate with each frame.
#[test]
fn an_address_is_lent_once_however_often_it_moves() {
    let mut table = MacTable::default();
    table.bind(A, 0);
    for _ in 0..100 {
        table.lend(A, 1);
        table.learn(untagged(A), guest(0), Instant::now());
    }
    assert_eq!(table.lent.len(), 1);
    table.keep_lent(|_, _| true);
    assert!(!table.lends(), "its owner has it");
}

#[test]
fn a_guest_cannot_take_an_address_that_is_in_use() {
    for owner in [guest(0), uplink(0)] {
        let mut table = MacTable::default();
        let start = Instant::now();
        table.learn(untagged(A), owner, start);
        let mut now = start;
        // The owner sends once in a second, the other guest all the time.
        for tick in 0..5000 {
            now = start + Duration::from_millis(tick);
            if tick % 1000 == 0 {
                table.learn(untagged(A), owner, now);
            }
            assert_eq!(table.learn(untagged(A), guest(1), now), Verdict::Forged);
            assert_eq!(table.route(untagged(A), 2), Route::Port(0));
        }
        // The station with this address may have moved.
        now += SILENCE;
        assert_eq!(table.learn(untagged(A), guest(1), now), Verdict::Accept);
        assert_eq!(table.route(untagged(A), 2), Route::Port(1));
        // The function with this address gets it back at once, also from a third port.
        assert_eq!(table.learn(untagged(A), guest(2), now + SILENCE), Verdict::Accept);
        assert_eq!(table.learn(untagged(A), owner, now + SILENCE), Verdict::Accept);
        assert_eq!(table.route(untagged(A), 2), Route::Port(0));
        assert_eq!(table.learn(untagged(A), guest(1), now + SILENCE), Verdict::Forged);
    }
}

#[test]
fn a_guest_that_claims_an_address_first_cannot_keep_it_from_an_uplink() {
    let mut table = MacTable::default();
    let now = Instant::now();
    table.learn(untagged(A), guest(1), now);
    assert_eq!(table.learn(untagged(A), uplink(0), now), Verdict::Accept);
    assert_eq!(table.route(untagged(A), 2), Route::Port(0));
    assert_eq!(table.learn(untagged(A), guest(1), now), Verdict::Forged);
    assert_eq!(table.learn(untagged(A), uplink(3), now), Verdict::Accept, "networks change");
    assert_eq!(table.route(untagged(A), 2), Route::Port(3));
}
