//! Bytes that the kernel has received before the takeover, and what a takeover refuses.

use std::mem::offset_of;

use vrnic_abi::admin::{self, CreateQp, QpFlags, TagForm, Transport};
use vrnic_abi::connection::{Connection, RECEIVED_MAX, Received, Role};
use vrnic_abi::qp::{State, Type};
use vrnic_adapter::limits::CONNECTION_MEMORY;
use vrnic_simlink::Faults;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::qp::{Setup, TO_RTS, attributes};
use vrnic_testdriver::stream;

use super::{END, apart, cable, received, send, setup};
use crate::bus::Endpoint;
use crate::streams::pattern;

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
    let pushed = |params: &mut CreateQp| {
        (params.qp_type, params.flags) = (Type::Rc as u8, QpFlags::PUSH.bits());
    };
    assert_eq!(create(&pushed), bad(offset_of!(CreateQp, flags)));
    cable.gb.adapter.set_transport(Transport::Roce);
    assert_eq!(create(&|_| {}), Err(Refused(admin::Status::Unsupported, 0)));
}
