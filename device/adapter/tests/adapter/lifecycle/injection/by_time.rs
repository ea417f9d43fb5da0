//! Workers that pause, and states of ports and devices that come and go.
//!
//! Shows: faults

use vrnic_abi::admin::Status as Refusal;
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::Type;
use vrnic_abi::regs::{self, Status as DeviceStatus};
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{Setup, TO_RTS, attributes};

use super::{MILLI, pairs, pass, worlds, write};
use crate::messages::datagrams::datagram;
use crate::world::Pair;

#[test]
fn a_worker_pauses_for_the_function_alone() {
    for mut p in pairs(|attr| attr.timeout = 0) {
        p.world.rule("pause-worker by=5ms function=f1 nth=1");
        p.a.fill(0, &[7; 8]);
        p.run(&write(&p, 8));
        assert!(!p.ga.adapter.has_work(0), "it may sleep meanwhile");
        let deadline = p.ga.adapter.poll(0).deadline.expect("the end of the pause");
        assert_eq!(deadline.0, p.world.time().0 + 5 * MILLI);
        pass(&p, 4 * MILLI);
        assert!(p.sent().is_none() && p.b.bytes(0, 8) == [0; 8]);
        pass(&p, 2 * MILLI);
        assert_eq!(p.sent().map(|cqe| status(&cqe)), Some(Status::Success));
        assert_eq!(p.world.counts().1, 1);
    }
}

#[test]
fn a_port_flaps_by_a_pattern_and_what_waits_goes_on() {
    for mut p in pairs(|attr| (attr.timeout, attr.retry_cnt) = (12, 7)) {
        p.world.rule("port-down function=f1 lasts=2ms pause=18ms after=1ms times=2");
        for round in 1..=2 {
            pass(&p, 2 * MILLI);
            assert_eq!(p.ga.drain_events(), [(Kind::PortDown, 1)], "round {round}");
            assert!(!p.ga.status().contains(DeviceStatus::LINK_UP));
            p.run(&write(&p, 8));
            assert!(p.sent().is_none());
            pass(&p, 18 * MILLI);
            assert_eq!(p.ga.drain_events(), [(Kind::PortUp, 1)], "round {round}");
            assert!(p.ga.status().contains(DeviceStatus::LINK_UP));
            pass(&p, MILLI / 10);
            assert_eq!(p.sent().map(|cqe| status(&cqe)), Some(Status::Success), "round {round}");
        }
        pass(&p, 40 * MILLI);
        assert_eq!(p.ga.drain_events(), []);
        assert_eq!((p.world.counts().1, p.ga.stats().link_downed.get()), (2, 2));
        assert_eq!(p.gb.drain_events(), [], "the other port");
    }
}

#[test]
fn a_port_comes_back_when_its_rule_is_cleared() {
    let p = Pair::new();
    p.world.rule("port-down function=f1");
    assert!(p.ga.adapter.run_faults().again);
    assert_eq!(p.ga.drain_events(), [(Kind::PortDown, 1)]);
    p.world.fabric.faults.clear();
    p.ga.adapter.run_faults();
    assert_eq!(p.ga.drain_events(), [(Kind::PortUp, 1)]);
    assert!(!p.ga.adapter.run_faults().again, "there is nothing to do any more");
}

#[test]
fn a_lower_mtu_refuses_connections_with_a_larger_one() {
    let world = worlds().into_iter().next().expect("a world");
    let p = Pair::apart(world, Setup::default());
    let mtu = p.ga.adapter.mtu();
    p.world.rule("lower-mtu bytes=1024 function=f1 for=5ms");
    p.ga.adapter.run_faults();
    assert_eq!((p.ga.adapter.mtu(), p.gb.adapter.mtu()), (3, mtu));
    let mut attr = attributes(p.gb.mac(), p.b.qpn);
    attr.path_mtu = 4;
    assert!(!p.a.accepts(attr), "a path MTU of 2048");
    pass(&p, 6 * MILLI);
    assert_eq!(p.ga.adapter.mtu(), mtu);
    p.ga.take_through(p.a.qpn, attr, &TO_RTS);
}

#[test]
fn a_removed_gid_sends_nothing_until_it_is_back() {
    for world in worlds() {
        let setup = Setup { kind: Type::Ud, ..Setup::default() };
        let mut p = Pair::datagrams(world, setup);
        let index = p.there().av.sgid_index.get();
        p.world.rule(&format!("remove-gid index={index} function=f1 for=5ms"));
        p.ga.adapter.run_faults();
        p.expect(8);
        let wr = datagram(&[p.a.sge(0, 8)], p.there());
        assert_eq!(p.send(&wr), Status::Success);
        assert!(p.received().is_none());
        pass(&p, 6 * MILLI);
        assert_eq!(p.send(&wr), Status::Success);
        assert!(p.received().is_some());
        assert_eq!(p.world.counts(), (1, 1));
    }
}

#[test]
fn a_device_fails_once_and_works_after_its_reset() {
    for p in pairs(|_| {}) {
        p.world.rule("fail-device function=f1 after=1ms");
        p.ga.adapter.run_faults();
        assert!(!p.ga.status().contains(DeviceStatus::FATAL), "too early");
        pass(&p, 2 * MILLI);
        assert!(p.ga.status().contains(DeviceStatus::FATAL));
        assert!(!p.gb.status().contains(DeviceStatus::FATAL));
        let code = p.ga.register(regs::FATAL_CODE);
        assert_eq!(p.ga.drain_events(), [(Kind::DeviceFatal, code)]);
        p.ga.bring_up();
        pass(&p, 2 * MILLI);
        assert!(!p.ga.status().contains(DeviceStatus::FATAL));
        assert_eq!(
            p.ga.on_object(vrnic_abi::admin::Opcode::DestroyQp, p.a.qpn),
            Err(Refused(Refusal::NotFound, 0))
        );
        assert_eq!(p.world.counts(), (1, 1));
    }
}
