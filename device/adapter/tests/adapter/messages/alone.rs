//! A single adapter: its QPs reach only each other and themselves.
//!
//! Shows: data

use vrnic_abi::cq::Status;
use vrnic_abi::qp::{State, Type};
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, Guest};
use crate::messages::datagrams::{datagram, ipv4, path, ready, set_gids};
use crate::world::{World, by_packets};

const DATA: &[u8] = b"to myself";

/// Sends from one endpoint to another, or to itself if `to` is `None`. The receiver then has the
/// data.
fn sends(
    world: &World,
    guest: &Guest,
    from: &mut Endpoint,
    to: Option<&mut Endpoint>,
    wr: &dyn Fn(&Endpoint) -> Wr,
    header: u64,
) {
    let len = DATA.len() as u32;
    from.fill(0, DATA);
    let wr = wr(from);
    let arrived = match to {
        Some(to) => {
            to.post_recv(7, &[to.sge(4096, len + header as u32)]);
            from.post_send(&wr);
            world.settle(&[guest]);
            (to.recv_cq.poll(), to.bytes(4096 + header, DATA.len()))
        }
        None => {
            from.post_recv(7, &[from.sge(4096, len + header as u32)]);
            from.post_send(&wr);
            world.settle(&[guest]);
            (from.recv_cq.poll(), from.bytes(4096 + header, DATA.len()))
        }
    };
    assert_eq!(status(&from.send_cq.poll().expect("sent")), Status::Success);
    assert_eq!(status(&arrived.0.expect("received")), Status::Success);
    assert_eq!(arrived.1, DATA);
}

#[test]
fn connections() {
    for kind in [Type::Rc, Type::Uc] {
        let world = World::default();
        let guest = world.guest(1);
        let setup = Setup { kind, ..Setup::default() };
        let message = |from: &Endpoint| Wr::new(Opcode::Send, &[from.sge(0, DATA.len() as u32)]);
        let connect = |endpoint: &Endpoint, qpn| {
            endpoint.connect(guest.mac(), qpn, |_| {});
        };
        let (mut a, mut b) = (Endpoint::new(&guest, setup), Endpoint::new(&guest, setup));
        connect(&a, b.qpn);
        connect(&b, a.qpn);
        sends(&world, &guest, &mut a, Some(&mut b), &message, 0);
        sends(&world, &guest, &mut b, Some(&mut a), &message, 0);
        let mut one = Endpoint::new(&guest, setup);
        connect(&one, one.qpn);
        sends(&world, &guest, &mut one, None, &message, 0);
    }
}

#[test]
fn datagrams() {
    let world = World::default();
    let guest = world.guest(1);
    set_gids(&guest, 1);
    let setup = Setup { kind: Type::Ud, ..Setup::default() };
    let (mut a, mut b) = (Endpoint::new(&guest, setup), Endpoint::new(&guest, setup));
    ready(&a);
    ready(&b);
    let (to_a, to_b) = (path(&guest, a.qpn, ipv4(1)), path(&guest, b.qpn, ipv4(1)));
    let len = DATA.len() as u32;
    sends(&world, &guest, &mut a, Some(&mut b), &|from| datagram(&[from.sge(0, len)], to_b), 40);
    sends(&world, &guest, &mut a, None, &|from| datagram(&[from.sge(0, len)], to_a), 40);
}

/// A connection to a station that does not exist ends as a connection to a station that does not
/// answer.
#[test]
fn nobody_else() {
    let world = World::default();
    let guest = world.guest(1);
    let mut a = Endpoint::new(&guest, Setup::default());
    a.connect([2, 0, 0, 0, 0, 99], 5, |_| {});
    a.post_send(&Wr::new(Opcode::Send, &[a.sge(0, 8)]));
    let mut tries = 0;
    let done = loop {
        world.settle(&[&guest]);
        if let Some(cqe) = a.send_cq.poll() {
            break cqe;
        }
        tries += 1;
        assert!(tries < 10, "it never gives up");
        world.advance(100_000_000);
    };
    // The number of tries is `retry_cnt` of the test's attributes. Over packets, the last try has a
    // time-out, too.
    assert_eq!((status(&done), tries), (Status::RetryExcErr, 3 + u32::from(by_packets())));
    assert_eq!(a.state(), State::Err);
}
