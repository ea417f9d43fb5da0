//! Bytes that the kernel has received before the takeover, and what a takeover refuses.
//!
//! Shows: tcp

use std::mem::offset_of;

use vrnic_abi::admin::{self, CreateQp, QpFlags, QpOptions, TagForm, Transport};
use vrnic_abi::connection::{
    Connection, ConnectionFlags, Ending, RECEIVED_MAX, Received, Role, Stage,
};
use vrnic_abi::cq::Status;
use vrnic_abi::qp::{State, Type};
use vrnic_adapter::limits::CONNECTION_MEMORY;
use vrnic_simlink::Faults;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::qp::{Setup, TO_RTS, attributes};
use vrnic_testdriver::stream;

use super::{END, apart, cable, pass, received, send, sent, setup};
use crate::bus::Endpoint;
use crate::network::streams::ends::{ending, reach, stage};
use crate::network::streams::pattern;

#[test]
fn bytes_of_the_kernel_come_first() {
    for (push, lengths) in [(false, vec![600, 600, 300]), (true, vec![600, 400, 500])] {
        let cable = cable(1, Faults::default());
        let (mut a, mut b) = apart(&cable, push);
        let data = pattern(1500, 9);
        a.fill(0, &data[1000..]);
        stream::open_toe(&a, 0, cable.gb.mac(), &[]).expect("OPEN_CONNECTION");
        stream::open_toe(&b, 1, cable.ga.mac(), &data[..1000]).expect("OPEN_CONNECTION");
        let memory = cable.gb.adapter.connection_memory();
        assert_eq!(memory.free(), CONNECTION_MEMORY - 1000);
        send(&mut a, 0, 500);
        a.set_state(State::Sqd);
        cable.run_until(|| false);
        let mut bytes = Vec::new();
        for (nth, len) in lengths.iter().enumerate() {
            b.post_recv(nth as u64, &[b.sge(0, 600)]);
            if nth == 2 {
                b.post_recv(8, &[b.sge(5000, 600)]);
            }
            assert_eq!(received(&cable, &mut b), *len, "receive {nth}");
            bytes.extend(b.bytes(0, *len));
        }
        assert!(bytes == data);
        assert_eq!(received(&cable, &mut b), END);
    }
}

#[test]
fn many_bytes_of_the_kernel_fill_receives_that_come_late() {
    let cable = cable(2, Faults::default());
    let (mut a, mut b) = apart(&cable, false);
    let data = pattern(RECEIVED_MAX as usize + 50_000, 4);
    let early = RECEIVED_MAX as usize;
    a.fill(0, &data[early..]);
    stream::open_toe(&a, 0, cable.gb.mac(), &[]).expect("OPEN_CONNECTION");
    stream::open_toe(&b, 1, cable.ga.mac(), &data[..early]).expect("OPEN_CONNECTION");
    send(&mut a, 0, 50_000);
    let mut bytes = Vec::new();
    while bytes.len() < data.len() {
        let len = 7000.min(data.len() - bytes.len());
        b.post_recv(1, &[b.sge(0, len as u32)]);
        assert_eq!(received(&cable, &mut b), len);
        bytes.extend(b.bytes(0, len));
    }
    assert!(bytes == data);
}

/// The peer had closed its direction before the takeover: what the kernel has received comes first,
/// then the end, and the other direction goes on.
#[test]
fn a_closed_direction_of_the_peer_is_taken_over() {
    for (early, unposted) in [(&b"goodbye"[..], false), (b"", false), (b"goodbye", true)] {
        let cable = cable(5, Faults::all(10_000));
        let (mut a, mut b) = apart(&cable, false);
        stream::open_toe(&a, 0, cable.gb.mac(), &[]).expect("OPEN_CONNECTION");
        a.set_state(State::Sqd);
        let end = initialized_of(&cable, &b);
        let closed = Connection {
            flags: end.flags | ConnectionFlags::PEER_CLOSED.bits(),
            receive_next: end.receive_next.get().wrapping_add(1).into(),
            ..end
        };
        if !unposted {
            (1..4).for_each(|nth| b.post_recv(nth, &[b.sge(nth * 100, 100)]));
        }
        b.guest.open_toe(b.qpn, &closed, early).expect("OPEN_CONNECTION");
        if unposted {
            pass(&cable, 10_000_000);
            (1..4).for_each(|nth| b.post_recv(nth, &[b.sge(nth * 100, 100)]));
        }
        if !early.is_empty() {
            assert_eq!((received(&cable, &mut b), b.bytes(100, 7)), (7, early.to_vec()));
        }
        assert_eq!(received(&cable, &mut b), END);
        assert_eq!((stage(&b), b.state()), (Stage::Closing, State::Rts));
        let data = pattern(50_000, 5);
        b.fill(100_000, &data);
        a.post_recv(1, &[a.sge(0, 50_000)]);
        a.post_recv(2, &[a.sge(0, 8)]);
        send(&mut b, 100_000, 50_000);
        b.set_state(State::Sqd);
        assert_eq!((received(&cable, &mut a), received(&cable, &mut a)), (50_000, END));
        assert!(a.bytes(0, 50_000) == data);
        assert_eq!(sent(&cable, &mut b), Status::Success);
        for end in [&a, &b] {
            reach(&cable, end, Stage::Gone);
            assert_eq!(ending(end), Ending::Graceful);
        }
    }
}

/// Moves a TOE endpoint of guest B to INIT. Returns the state of its end.
fn initialized_of(cable: &crate::cable::Cable, end: &Endpoint) -> Connection {
    end.guest.take_through(end.qpn, attributes(cable.ga.mac(), 0), &TO_RTS[..1]);
    stream::bare_connection(1, [cable.gb.mac(), cable.ga.mac()], stream::MSS)
}

/// Returns a TOE endpoint in INIT.
fn initialized(cable: &crate::cable::Cable) -> Endpoint {
    let end = Endpoint::new(&cable.gb, setup(false));
    end.guest.take_through(end.qpn, attributes(cable.ga.mac(), 0), &TO_RTS[..1]);
    end
}

#[test]
fn a_malformed_takeover_changes_nothing() {
    let cable = cable(3, Faults::default());
    let end = initialized(&cable);
    let good = stream::bare_connection(1, [cable.gb.mac(), cable.ga.mac()], stream::MSS);
    let mut bad = [(good, 0); 7];
    (bad[0].0.role, bad[0].1) = (Role::Initiator as u8, offset_of!(Connection, role));
    (bad[1].0.role, bad[1].1) = (9, offset_of!(Connection, role));
    (bad[2].0.ird, bad[2].1) = (1.into(), offset_of!(Connection, ird));
    (bad[3].0.ord, bad[3].1) = (1.into(), offset_of!(Connection, ord));
    (bad[4].0.private_len, bad[4].1) = (1.into(), offset_of!(Connection, private_len));
    (bad[5].0.request_len, bad[5].1) = (1.into(), offset_of!(Connection, request_len));
    (bad[6].0.mss, bad[6].1) = (10.into(), offset_of!(Connection, mss));
    for (nth, (bad, offset)) in bad.iter().enumerate() {
        let refused = end.guest.open_toe(end.qpn, bad, &[]).expect_err("it is malformed");
        assert_eq!(refused, Refused(admin::Status::BadParam, *offset as u32), "{nth}");
    }
    let behind = size_of::<Connection>();
    let few = Received { addr: end.buffer.into(), len: 8.into(), reserved: 0.into() };
    let long = Received { len: (RECEIVED_MAX + 1).into(), ..few };
    let reserved = Received { reserved: 1.into(), ..few };
    let nowhere = Received { addr: u64::MAX.into(), ..few };
    let at = |offset| Refused(admin::Status::BadParam, (behind + offset) as u32);
    for (received, refusal) in [
        (long, at(offset_of!(Received, len))),
        (reserved, at(offset_of!(Received, reserved))),
        (nowhere, Refused(admin::Status::BadAddress, 0)),
    ] {
        let refused = end.guest.open_toe_raw(end.qpn, &good, &received);
        assert_eq!(refused.expect_err("it is malformed"), refusal);
    }
    assert_eq!(end.state(), State::Init);
    assert_eq!(cable.gb.adapter.connection_memory().free(), CONNECTION_MEMORY);
    end.guest.open_toe_raw(end.qpn, &good, &few).expect("OPEN_CONNECTION");
    // A connection has one QP, and a QP one connection.
    let refused = end.guest.open_toe(end.qpn, &good, &[]).expect_err("it has one");
    assert_eq!(refused.0, admin::Status::BadState);
    let other = initialized(&cable);
    let refused = other.guest.open_toe(other.qpn, &good, &[]).expect_err("it is taken");
    assert_eq!((refused.0, other.state()), (admin::Status::Busy, State::Init));
    // No connection with messages is for this type, and no bytes are for others.
    let rc = Endpoint::new(&cable.gb, Setup::default());
    rc.guest.take_through(rc.qpn, attributes(cable.ga.mac(), 0), &TO_RTS[..1]);
    let refused = rc.guest.open_toe(rc.qpn, &good, &[]).expect_err("it has messages");
    assert_eq!(refused, Refused(admin::Status::BadParam, 0));
    // Nor are there messages after the end.
    let mut closed = stream::connection(0, [cable.gb.mac(), cable.ga.mac()], stream::MSS);
    closed.flags |= ConnectionFlags::PEER_CLOSED.bits();
    let refused = rc.guest.open_connection(rc.qpn, &closed).expect_err("it is closed");
    let flags = offset_of!(Connection, flags) as u32;
    assert_eq!(refused, Refused(admin::Status::BadParam, flags));
}

#[test]
fn qps_that_carry_bytes_are_of_iwarp_and_plain() {
    let cable = cable(4, Faults::default());
    let end = Endpoint::new(&cable.gb, setup(false));
    let create = |tune: &dyn Fn(&mut CreateQp)| {
        let mut params = CreateQp { qp_type: Type::Toe as u8, ..end.params() };
        tune(&mut params);
        end.guest.create_qp(&params).map(drop)
    };
    assert!(create(&|_| {}).is_ok());
    let bad = |offset: usize| Err(Refused(admin::Status::BadParam, offset as u32));
    let reactive = |params: &mut CreateQp| params.flags = QpFlags::REACTIVE.bits();
    assert_eq!(create(&reactive), bad(offset_of!(CreateQp, flags)));
    let tagged = |params: &mut CreateQp| params.tag_form = TagForm::General as u8;
    assert_eq!(create(&tagged), bad(offset_of!(CreateQp, tag_form)));
    let shared = |params: &mut CreateQp| params.srqn = 1.into();
    assert_eq!(create(&shared), bad(offset_of!(CreateQp, srqn)));
    let acknowledged = |params: &mut CreateQp| params.options = QpOptions::ACKNOWLEDGED.bits();
    assert_eq!(create(&acknowledged), bad(offset_of!(CreateQp, options)));
    let messages = |params: &mut CreateQp| params.qp_type = Type::Rc as u8;
    let pushed = |params: &mut CreateQp| {
        messages(params);
        params.flags = QpFlags::PUSH.bits();
    };
    assert_eq!(create(&pushed), bad(offset_of!(CreateQp, flags)));
    let by_length = |params: &mut CreateQp| {
        messages(params);
        params.flags = QpFlags::QUEUE_LENGTH.bits();
    };
    assert!(create(&by_length).is_ok());
    cable.gb.adapter.set_transport(Transport::Roce);
    assert_eq!(create(&by_length), bad(offset_of!(CreateQp, flags)));
    assert_eq!(create(&|_| {}), Err(Refused(admin::Status::Unsupported, 0)));
}
