//! Regions with a one-touch key.
//!
//! Shows: memory

use vrnic_abi::admin::{MrFlags, MwType, Pages, RegMr, command};
use vrnic_abi::cq::{self, Status};
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{State, Type};
use vrnic_abi::sq::{BindMwSeg, MemFlags, Opcode, RegMrSeg};
use vrnic_adapter::memory::tpt::Denied;
use vrnic_simlink::{Fate, Faults};
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{ALL, Setup};
use vrnic_testdriver::wr::Wr;
use zerocopy::IntoBytes;

use crate::bus::Endpoint;
use crate::cable::Cable;
use crate::host::Bar;
use crate::memory::keys::{
    BINDABLE, PAGE, REMOTE, alloc_mr, alloc_mw, kernel_pair, ok, on_b, reg, reg_seg,
};
use crate::world::{Pair, told_by_peer};

/// Part 5: a one-touch key is valid for one message of any length, and invalid after it.
#[test]
fn one_touch() {
    const LEN: u32 = 3 << 20;
    let register = |p: &mut Pair| {
        let params = RegMr {
            flags: MrFlags::ONE_TOUCH.bits().into(),
            ..RegMr::new(p.b.pdn, ALL, p.b.buffer, 4 << 20, Pages::new(p.b.buffer, 12, 0))
        };
        p.gb.command::<command::RegMr>(&params).expect("MR").get()
    };
    let window = |p: &mut Pair| {
        let region = p.gb.reg_flat(p.b.pdn, BINDABLE, p.b.buffer, 4 << 20).expect("MR");
        let key = alloc_mw(&p.gb, p.b.pdn, MwType::Type2);
        let seg = BindMwSeg {
            length: (4 << 20).into(),
            lkey: region.into(),
            access: REMOTE.into(),
            flags: MemFlags::ONE_TOUCH.bits(),
            ..BindMwSeg::default()
        };
        let wr = Wr::new(Opcode::BindMw, &[]).body(seg.as_bytes());
        ok(&on_b(p, &wr.to(p.b.buffer, key)), cq::Opcode::BindMw);
        key
    };
    let fast = |p: &mut Pair| {
        let key = alloc_mr(&p.gb, p.b.pdn, 512);
        let seg = RegMrSeg {
            page_shift: 21,
            flags: MemFlags::ONE_TOUCH.bits(),
            ..reg_seg(
                &p.gb,
                &[
                    p.b.buffer & !0x1f_ffff,
                    (p.b.buffer & !0x1f_ffff) + (2 << 20),
                    (p.b.buffer & !0x1f_ffff) + (4 << 20),
                ],
                4 << 20,
                ALL,
            )
        };
        ok(&on_b(p, &reg(key, p.b.buffer, &seg)), cq::Opcode::RegMr);
        key
    };
    let makers: [&dyn Fn(&mut Pair) -> u32; 3] = [&register, &window, &fast];
    for make in makers {
        for opcode in [Opcode::Write, Opcode::Read] {
            let mut p = kernel_pair();
            let key = make(&mut p);
            let message = |p: &Pair, len| Wr::new(opcode, &[p.a.sge(0, len)]).to(p.b.buffer, key);
            let (long, short) = (message(&p, LEN), message(&p, 1));
            assert_eq!(status(&p.complete(&long)), Status::Success);
            let cqe = p.complete(&short);
            let got = (status(&cqe), cqe.vendor_err.get());
            assert_eq!(got, (Status::RemAccessErr, told_by_peer(Denied::Invalid)));
            assert_eq!(p.gb.drain_events(), [(Kind::QpAccessError, p.b.qpn)]);
        }
    }
}

/// A key that a message has begun to use stays bound to that message, also when the QPs are reset
/// and their message numbers start again. Uses memory copies: over packets, no part of a message
/// whose first bytes cannot be read reaches the peer.
#[test]
fn one_touch_outlives_a_reset() {
    let mut p = Pair::local(Setup::default(), |_| {});
    let params = RegMr {
        flags: MrFlags::ONE_TOUCH.bits().into(),
        ..RegMr::new(p.b.pdn, ALL, p.b.buffer, PAGE, Pages::new(p.b.buffer, 12, 0))
    };
    let key = p.gb.command::<command::RegMr>(&params).expect("MR").get();
    let wr = Wr::new(Opcode::Write, &[p.a.sge(0, 8)]).to(p.b.buffer, key);
    p.ga.host.restrict(p.a.buffer, 8, Bar::Unmapped);
    assert_eq!(status(&p.complete(&wr)), Status::LocProtErr);
    p.ga.host.unrestrict();
    let (a, b) = (p.ga.mac(), p.gb.mac());
    p.a.set_state(State::Reset);
    p.b.set_state(State::Reset);
    p.a.connect(b, p.b.qpn, |attr| attr.rq_psn = attr.sq_psn);
    p.b.connect(a, p.a.qpn, |attr| attr.rq_psn = attr.sq_psn);
    let cqe = p.complete(&wr);
    let got = (status(&cqe), cqe.vendor_err.get());
    assert_eq!(got, (Status::RemAccessErr, Denied::Touched as u32));
    // The second access has ended the key.
    p.a.set_state(State::Reset);
    p.b.set_state(State::Reset);
    p.a.connect(b, p.b.qpn, |attr| attr.rq_psn = attr.sq_psn);
    p.b.connect(a, p.a.qpn, |attr| attr.rq_psn = attr.sq_psn);
    let cqe = p.complete(&wr);
    let got = (status(&cqe), cqe.vendor_err.get());
    assert_eq!(got, (Status::RemAccessErr, Denied::Invalid as u32));
}

/// Over RoCE packets all segments are placed in order. A message of another QP meanwhile ends the
/// key, so that the first message cannot go on either.
///
/// Shows: memory
#[test]
fn a_second_message_over_packets_ends_the_key() {
    let cable = Cable::new(3, Faults::default());
    let (mut a, b) = cable.connected(Setup::default(), |_| {});
    let (mut c, d) = {
        let far = b.sibling(Type::Rc, 0);
        let near = Endpoint::new(&cable.ga, Setup::default());
        near.connect(cable.gb.mac(), far.qpn, |_| {});
        far.connect(cable.ga.mac(), near.qpn, |_| {});
        (near, far)
    };
    let params = RegMr {
        flags: MrFlags::ONE_TOUCH.bits().into(),
        ..RegMr::new(b.pdn, ALL, b.buffer, 1 << 20, Pages::new(b.buffer, 12, 0))
    };
    let key = b.guest.command::<command::RegMr>(&params).expect("MR").get();
    // Only the first packet of the first message arrives.
    let mut count = 0;
    cable.links[0].borrow_mut().rule(move |_| {
        count += 1;
        if (2..=4).contains(&count) { Fate::Drop } else { Fate::Pass }
    });
    a.fill(0, &[7; 14_000]);
    a.post_send(&Wr::new(Opcode::Write, &[a.sge(0, 14_000)]).to(b.buffer, key));
    let start = cable.now();
    cable.run_until(|| b.bytes(0, 1) == [7] || cable.now() > start + 1_000_000);
    assert!(b.bytes(13_999, 1) != [7], "the message has arrived in part");
    let write = Wr::new(Opcode::Write, &[c.sge(0, 8)]).to(b.buffer, key);
    assert_eq!(status(&cable.complete(&mut c, &write)), Status::RemAccessErr);
    assert_eq!((c.state(), d.state()), (State::Err, State::Err));
    let mut first = None;
    cable.run_until(|| {
        first = first.or_else(|| a.send_cq.poll().map(|cqe| status(&cqe)));
        first.is_some()
    });
    assert_eq!(first, Some(Status::RemAccessErr));
    assert!(b.bytes(13_999, 1) != [7]);
}
