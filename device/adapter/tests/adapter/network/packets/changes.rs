//! Attributes of QPs whose peers are reached by packets: paths that are refused, and changes in the
//! state SQD.
//!
//! Shows: roce

use std::cell::RefCell;
use std::rc::Rc;

use vrnic_abi::admin::{SetGid, SetPort, Status as AdminStatus, command};
use vrnic_abi::cq::Status;
use vrnic_abi::qp::{Attr, AttrMask, State};
use vrnic_abi::sq::Opcode;
use vrnic_simlink::{Fate, Faults};
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{INIT, RTR, Setup, attributes};
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, Guest};
use crate::cable::Cable;
use crate::world::World;

/// An IPv4 address as a GID.
const IPV4: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 9];

/// Moves a new QP to INIT and to RTR. Returns the status of the second step.
fn to_rtr(guest: &Guest, tune: impl Fn(&mut Attr)) -> Result<(), AdminStatus> {
    let qp = Endpoint::new(guest, Setup::default());
    let mut attr = attributes([2, 2, 2, 2, 2, 2], 77);
    tune(&mut attr);
    attr.state = State::Init as u8;
    guest.modify_qp(qp.qpn, INIT, &attr).expect("INIT");
    attr.state = State::Rtr as u8;
    let result = guest.modify_qp(qp.qpn, RTR, &attr).map_err(|refused| refused.0);
    let expected = if result.is_ok() { State::Rtr } else { State::Init };
    assert_eq!(qp.state(), expected);
    result
}

#[test]
fn a_path_that_no_packet_can_take_is_refused_on_every_path() {
    let cable = Cable::new(51, Faults::default());
    let separate = World::copying().guest(1);
    for guest in [&cable.ga, &separate] {
        assert_eq!(to_rtr(guest, |_| {}), Ok(()));
        let no_source = to_rtr(guest, |attr| attr.av.sgid_index = 3.into());
        assert_eq!(no_source, Err(AdminStatus::BadParam), "no address at this index");
        let families = to_rtr(guest, |attr| attr.av.dgid = IPV4);
        assert_eq!(families, Err(AdminStatus::BadParam), "from IPv6 to IPv4");
        guest.command::<command::SetGid>(&SetGid::clear(0)).expect("SET_GID");
        assert_eq!(to_rtr(guest, |_| {}), Err(AdminStatus::BadParam), "a deleted address");
    }
}

/// Moves A to SQD and changes these attributes there.
fn change_in_sqd(cable: &Cable, a: &mut Endpoint, mask: AttrMask, attr: &Attr) {
    a.set_state(State::Sqd);
    cable.settle();
    cable.ga.modify_qp(a.qpn, mask, attr).expect("a change in SQD");
    a.set_state(State::Rts);
}

#[test]
fn packets_take_the_path_that_was_set_in_sqd() {
    let cable = Cable::new(52, Faults::default());
    let (mut a, b) = cable.connected(Setup::default(), |_| {});
    let write = Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key);
    assert_eq!(status(&cable.complete(&mut a, &write)), Status::Success);
    let mut attr = attributes(cable.gb.mac(), b.qpn);
    attr.av.dmac = [6, 7, 8, 9, 10, 11];
    attr.av.hop_limit = 17;
    change_in_sqd(&cable, &mut a, AttrMask::AV, &attr);
    let frames = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&frames);
    cable.links[0].borrow_mut().rule(move |frame| {
        seen.borrow_mut().push((frame[..6].to_vec(), frame[14 + 7]));
        Fate::Pass
    });
    a.post_send(&write);
    cable.run_until(|| !frames.borrow().is_empty());
    let first = frames.borrow().first().cloned();
    assert_eq!(first, Some((vec![6, 7, 8, 9, 10, 11], 17)), "destination and hop limit");
}

#[test]
fn limits_that_were_set_in_sqd_reach_the_connection() {
    let cable = Cable::new(53, Faults::default());
    let tune = |attr: &mut Attr| (attr.timeout, attr.retry_cnt) = (20, 7);
    let (mut a, b) = cable.connected(Setup::default(), tune);
    let attr = Attr { timeout: 8, retry_cnt: 1, max_rd_atomic: 1, ..Attr::default() };
    let mask = AttrMask::TIMEOUT | AttrMask::RETRY_CNT | AttrMask::MAX_QP_RD_ATOMIC;
    change_in_sqd(&cable, &mut a, mask, &attr);
    // At most one READ is outstanding: the second request leaves after the answer to the first.
    let sent = Rc::new(RefCell::new(0));
    let count = Rc::clone(&sent);
    cable.links[0].borrow_mut().rule(move |_| {
        *count.borrow_mut() += 1;
        Fate::Drop
    });
    let start = cable.now();
    for _ in 0..3 {
        a.store_send(&Wr::new(Opcode::Read, &[a.sge(0, 8)]).to(b.buffer, b.key));
    }
    a.ring();
    let _polled = cable.ga.adapter.poll(0);
    cable.run_until(|| *sent.borrow() > 0);
    assert_eq!(*sent.borrow(), 1, "outstanding READs");
    let mut done = None;
    cable.run_until(|| {
        done = done.or_else(|| a.send_cq.poll());
        done.is_some()
    });
    assert_eq!(done.as_ref().map(status), Some(Status::RetryExcErr));
    let took = cable.now() - start;
    assert!(took < 100_000_000, "{took} ns for two time-outs of 1 ms");
}

/// The number of a half's READs changes only while none is outstanding.
#[test]
fn limits_of_reads_do_not_change_while_reads_are_outstanding() {
    let cable = Cable::new(55, Faults::default());
    let (mut a, mut b) = cable.connected(Setup::default(), |_| {});
    let attr = Attr { max_rd_atomic: 1, max_dest_rd_atomic: 2, ..Attr::default() };
    let change = |end: &Endpoint, mask| {
        end.guest.modify_qp(end.qpn, mask, &attr).map_err(|refused| refused.0)
    };
    // A's frames do not leave: neither its request, nor its answer to B's request.
    cable.set_full(true);
    let start = cable.now();
    let wait = || cable.run_until(|| cable.now() > start + 1_000_000);
    b.post_send(&Wr::new(Opcode::Read, &[b.sge(0, 4096)]).to(a.buffer, a.key));
    a.post_send(&Wr::new(Opcode::Read, &[a.sge(0, 8)]).to(b.buffer, b.key));
    wait();
    for end in [&mut a, &mut b] {
        end.set_state(State::Sqd);
        assert_eq!(change(end, AttrMask::MAX_QP_RD_ATOMIC), Err(AdminStatus::BadState));
        assert_eq!(change(end, AttrMask::TIMEOUT), Ok(()));
    }
    assert_eq!(change(&a, AttrMask::MAX_DEST_RD_ATOMIC), Err(AdminStatus::BadState));
    cable.set_full(false);
    for end in [&mut a, &mut b] {
        let mut done = None;
        cable.run_until(|| {
            done = done.or_else(|| end.send_cq.poll().map(|cqe| status(&cqe)));
            done.is_some()
        });
        assert_eq!(done, Some(Status::Success));
        assert_eq!(change(end, AttrMask::MAX_QP_RD_ATOMIC), Ok(()));
        assert_eq!(change(end, AttrMask::MAX_DEST_RD_ATOMIC), Ok(()));
    }
}

#[test]
fn packets_before_one_that_has_become_too_long_are_sent() {
    let cable = Cable::new(54, Faults::default());
    let (mut a, b) = cable.connected(Setup::default(), |_| {});
    cable.ga.command::<command::SetPort>(&SetPort::new(1, true)).expect("SET_PORT");
    a.fill(0, &[7; 8]);
    for len in [8, 4096] {
        a.store_send(&Wr::new(Opcode::Write, &[a.sge(0, len)]).to(b.buffer, b.key));
    }
    a.ring();
    let start = cable.now();
    cable.run_until(|| b.bytes(0, 8) == [7; 8] || cable.now() - start > 1_000_000);
    // The time-out, after which it would be sent again, is longer.
    assert_eq!(b.bytes(0, 8), [7; 8]);
}

/// A program chooses the UDP source port of a connection by the flow label of its path.
#[test]
fn the_flow_label_is_the_source_port() {
    for (flow_label, expected) in [(1, 0xc001), (0x3abc, 0xfabc), (0xf_0001, 0xc03d)] {
        let cable = Cable::new(1, Faults::default());
        let tune = |attr: &mut Attr| attr.av.flow_label = flow_label.into();
        let (mut a, b) = cable.connected(Setup::default(), tune);
        let ports = Rc::new(RefCell::new(Vec::new()));
        let seen = Rc::clone(&ports);
        cable.links[0].borrow_mut().rule(move |frame| {
            // Behind the headers of Ethernet and IPv6.
            seen.borrow_mut().push(u16::from_be_bytes([frame[54], frame[55]]));
            Fate::Pass
        });
        let wr = Wr::new(Opcode::Write, &[a.sge(0, 9000)]).to(b.buffer, b.key);
        assert_eq!(status(&cable.complete(&mut a, &wr)), Status::Success);
        let ports = ports.borrow();
        assert!(ports.len() > 2 && ports.iter().all(|port| *port == expected), "{ports:x?}");
    }
}
