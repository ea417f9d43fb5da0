//! Regions whose pages come and go: messages wait for absent pages at either end, by copy and as
//! packets.
//!
//! Shows: paging

mod scene;

use std::mem::offset_of;

use vrnic_abi::admin::{
    MAP_PAGES_MAX, MapFlags, MapPages, MrFlags, Opcode as Admin, PAGED_MAX, Pages, RegMr, Rereg,
    ReregMr, Status as Refusal, UnmapPages, command,
};
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{State, Type};
use vrnic_abi::sq::{Opcode, Sge};
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::memory::BASE;
use vrnic_testdriver::qp::{ALL, Setup};
use vrnic_testdriver::wr::Wr;
use zerocopy::IntoBytes;

use self::scene::{IOVA, PAGE, PAGES, Region, Scene, WHOLE, pattern};
use crate::host::RAM_LEN;
use crate::messages::datagrams::datagram;
use crate::world::{Pair, by_packets};

#[test]
fn a_write_waits_for_absent_pages_at_both_ends() {
    let mut s = Scene::new();
    s.a.fill(0, &pattern(WHOLE));
    let wr = Wr::new(Opcode::Write, &[s.a.sge(0, WHOLE as u32)]).to(IOVA, s.b.key);
    let (status, of_a, of_b) = s.run(&wr);
    assert_eq!(status, Status::Success);
    assert!(of_a >= PAGES && of_b >= PAGES, "{of_a} {of_b}");
    assert_eq!(s.b.bytes(0, WHOLE), pattern(WHOLE));
    // Nothing is absent any more.
    let (again, of_a, of_b) = s.run(&wr);
    assert_eq!((again, of_a, of_b), (Status::Success, 0, 0));
}

/// A rule for faults changes the order of the bytes, whose pages are absent.
#[test]
fn a_read_in_another_order_waits_for_absent_pages() {
    let len = 30 * PAGE;
    let mut s = Scene::new();
    s.p.world.rule("disorder opcode=read seed=3");
    s.b.fill(0, &pattern(len));
    let wr = Wr::new(Opcode::Read, &[s.a.sge(0, len as u32)]).to(IOVA, s.b.key);
    assert_eq!(s.run(&wr).0, Status::Success);
    assert_eq!(s.a.bytes(0, len), pattern(len));
}

#[test]
fn a_read_waits_for_absent_pages_at_both_ends() {
    let mut s = Scene::new();
    s.b.fill(0, &pattern(WHOLE));
    let wr = Wr::new(Opcode::Read, &[s.a.sge(0, WHOLE as u32)]).to(IOVA, s.b.key);
    assert_eq!(s.run(&wr).0, Status::Success);
    assert_eq!(s.a.bytes(0, WHOLE), pattern(WHOLE));
    // Reads that are executed one behind the other, of pages that have gone.
    s.b.unmap(0, u64::MAX);
    s.a.unmap(300, 10);
    s.a.fill(0, &vec![0; WHOLE as usize]);
    for id in 2..5 {
        s.p.a.post_send(&wr.clone().id(id));
    }
    assert_eq!(s.run(&wr.clone().id(5)).0, Status::Success);
    for _ in 0..3 {
        s.p.a.send_cq.poll_success();
    }
    assert_eq!(s.a.bytes(0, WHOLE), pattern(WHOLE));
}

/// The READ has begun when it comes to pages that are absent for longer than all time-outs.
#[test]
fn a_read_waits_for_later_pages_longer_than_its_retries() {
    let mut s = Scene::new();
    s.b.fill(0, &pattern(WHOLE));
    for first in [0, 300] {
        s.a.map(first, 300, MapFlags::empty());
    }
    s.b.map(0, 260, MapFlags::empty());
    let wr = Wr::new(Opcode::Read, &[s.a.sge(0, WHOLE as u32)]).to(IOVA, s.b.key);
    s.p.a.post_send(&wr);
    for _ in 0..1000 {
        s.wait();
        assert!(s.p.sent().is_none());
    }
    assert!(s.b.is_reported());
    let done = (0..1000).find_map(|_| {
        s.b.serve(MapFlags::empty());
        s.wait();
        s.p.sent()
    });
    assert_eq!(status(&done.expect("done")), Status::Success);
    assert_eq!(s.a.bytes(0, WHOLE), pattern(WHOLE));
}

#[test]
fn a_send_waits_for_absent_pages_at_both_ends_and_keeps_its_receive() {
    let mut s = Scene::new();
    s.a.fill(0, &pattern(3 * PAGE));
    s.p.b.post_recv(8, &[s.b.sge(0, 100), s.b.sge(PAGE, 3 * PAGE as u32)]);
    s.p.b.post_recv(9, &[]);
    let wr = Wr::new(Opcode::Send, &[s.a.sge(0, 3 * PAGE as u32)]);
    assert_eq!(s.run(&wr).0, Status::Success);
    let cqe = s.p.received().expect("a receive");
    assert_eq!((cqe.wr_id.get(), cqe.byte_len.get()), (8, 3 * PAGE as u32));
    let got = [s.b.bytes(0, 100), s.b.bytes(PAGE, 3 * PAGE - 100)].concat();
    assert_eq!(got, pattern(3 * PAGE));
    assert!(s.p.received().is_none());
}

#[test]
fn an_atomic_is_executed_once_when_all_pages_are_there() {
    let mut s = Scene::new();
    // The word begins page 1 of B. The place of the result is in page 2 of A.
    let (word, place) = (PAGE - 0x678, 2 * PAGE - 0x678);
    s.b.fill(word, &40u64.to_le_bytes());
    let add = Wr::new(Opcode::FetchAdd, &[s.a.sge(place, 8)]).to(IOVA + word, s.b.key).atomic(2, 0);
    assert_eq!(s.run(&add).0, Status::Success);
    assert_eq!(s.b.bytes(word, 8), 42u64.to_le_bytes());
    assert_eq!(s.a.bytes(place, 8), 40u64.to_le_bytes());
    s.a.unmap(2, 1);
    assert_eq!(s.run(&add).0, Status::Success);
    s.b.unmap(1, 1);
    assert_eq!(s.run(&add).0, Status::Success);
    assert_eq!(s.b.bytes(word, 8), 46u64.to_le_bytes());
    assert_eq!(s.a.bytes(place, 8), 44u64.to_le_bytes());
    s.b.unmap(1, 1);
    let store = Wr::new(Opcode::AtomicWrite, &[s.a.sge(place, 8)]).to(IOVA + word, s.b.key);
    assert_eq!(s.run(&store).0, Status::Success);
    assert_eq!(s.b.bytes(word, 8), 44u64.to_le_bytes());
}

#[test]
fn a_request_waits_as_long_as_its_pages_are_absent() {
    let mut s = Scene::new();
    s.a.fill(0, b"late");
    s.p.a.post_send(&Wr::new(Opcode::Write, &[s.a.sge(0, 4)]).to(IOVA, s.b.key));
    // Longer than all retries of the QP take.
    for _ in 0..1000 {
        s.wait();
        assert!(s.p.sent().is_none());
    }
    assert!(s.a.is_reported());
    assert_eq!(s.a.serve(MapFlags::empty()), 1);
    s.wait();
    assert!(s.b.is_reported());
    assert_eq!(s.b.serve(MapFlags::empty()), 1);
    s.wait();
    assert_eq!(status(&s.p.sent().expect("done")), Status::Success);
    assert_eq!(s.b.bytes(0, 4), b"late");
}

#[test]
fn pages_that_cannot_be_had_end_the_request() {
    for own in [true, false] {
        let mut s = Scene::new();
        let wr = Wr::new(Opcode::Write, &[s.a.sge(0, 4)]).to(IOVA, s.b.key);
        s.p.a.post_send(&wr);
        s.wait();
        if own {
            assert_eq!(s.a.serve(MapFlags::FAILED), 1);
        } else {
            assert_eq!(s.a.serve(MapFlags::empty()), 1);
            s.wait();
            assert_eq!(s.b.serve(MapFlags::FAILED), 1);
        }
        s.wait();
        let expected = if own { Status::LocProtErr } else { Status::RemOpErr };
        assert_eq!(status(&s.p.sent().expect("an error")), expected);
        assert_eq!(s.p.a.state(), State::Err);
        // The next access asks again.
        let region = if own { &s.a } else { &s.b };
        region.map(0, 1, MapFlags::empty());
        assert_eq!(region.map(0, 0, MapFlags::NEXT).count.get(), 0);
    }
}

#[test]
fn a_failure_does_not_concern_pages_that_are_present() {
    let mut s = Scene::new();
    s.a.map(0, 2, MapFlags::empty());
    s.a.command(0, 3, MapFlags::FAILED).expect("MAP_PAGES");
    s.b.map(0, 2, MapFlags::empty());
    let wr = Wr::new(Opcode::Write, &[s.a.sge(0, 5000)]).to(IOVA, s.b.key);
    assert_eq!(s.run(&wr).0, Status::Success);
}

#[test]
fn pages_that_come_and_go_under_traffic_lose_no_byte() {
    let mut s = Scene::new();
    let len = 40 * PAGE;
    s.a.fill(0, &pattern(len));
    for round in 0..30 {
        let opcode = [Opcode::Write, Opcode::Read][round % 2];
        let wr = Wr::new(opcode, &[s.a.sge(0, len as u32)]).to(IOVA, s.b.key);
        s.p.a.post_send(&wr);
        let mut done = None;
        for step in 0u64.. {
            s.wait();
            done = done.or_else(|| s.p.sent());
            if done.is_some() {
                break;
            }
            assert!(step < 1000, "the request does not end");
            s.a.serve(MapFlags::empty());
            if step % 3 == 0 {
                s.b.unmap(step % 40, 7);
            }
            s.b.serve(MapFlags::empty());
            if step % 5 == 0 {
                s.a.unmap(step * 7 % 40, 3);
            }
        }
        assert_eq!(status(&done.expect("done")), Status::Success);
        assert_eq!(s.b.bytes(0, len), pattern(len));
        assert_eq!(s.a.bytes(0, len), pattern(len));
    }
}

/// The beginning of a region at address zero that has all addresses of a process.
#[test]
fn a_region_may_have_all_addresses_of_a_process() {
    let mut p = Pair::new();
    let length = PAGED_MAX * PAGE;
    let mut params = RegMr::new(p.a.pdn, ALL, 0, length, Pages::new(0, 12, 0));
    params.flags = MrFlags::PAGED.bits().into();
    let key = p.ga.command::<command::RegMr>(&params).expect("REG_MR").get();
    let sge = Sge { addr: 0x7fff_1234_5ff0.into(), length: 32.into(), lkey: key.into() };
    p.a.post_send(&Wr::new(Opcode::Write, &[sge]).to(p.b.buffer, p.b.key));
    p.settle();
    assert_eq!(p.ga.event(), Some((Kind::PageFault, key)));
    let next =
        MapPages { key: key.into(), flags: MapFlags::NEXT.bits().into(), ..MapPages::default() };
    let next = p.ga.command::<command::MapPages>(&next).expect("a request");
    assert_eq!((next.first.get(), next.count.get()), (0x7_fff1_2345, 2));
    let list = p.ga.ram().alloc(PAGE);
    p.ga.ram().write(list, [p.a.buffer + PAGE, p.a.buffer].as_bytes());
    p.a.fill(PAGE + 0xff0, b"the end of one p");
    p.a.fill(0, b"age and the next");
    let map = MapPages {
        key: key.into(),
        first: next.first,
        count: next.count,
        list: list.into(),
        flags: 0.into(),
    };
    p.ga.command::<command::MapPages>(&map).expect("MAP_PAGES");
    p.world.advance(2_000_000);
    p.settle();
    assert_eq!(status(&p.sent().expect("done")), Status::Success);
    assert_eq!(p.b.bytes(0, 32), b"the end of one page and the next");
    assert!(p.ga.on_object(Admin::DeregMr, key).is_ok());
}

#[test]
fn parameters_out_of_range() {
    let s = Scene::new();
    let (guest, a) = (&s.p.ga, &s.a);
    let bad = |offset: usize| Err(Refused(Refusal::BadParam, offset as u32));
    let good = MapPages {
        key: a.key.into(),
        count: 1.into(),
        first: 0.into(),
        list: a.list.into(),
        flags: 0.into(),
    };
    let map = |params: MapPages| guest.command::<command::MapPages>(&params).map(|_| ());
    guest.ram().write(a.list, &vec![0xff; PAGE as usize]);
    assert_eq!(map(good), bad(offset_of!(MapPages, list)));
    guest.ram().write(a.list, &(BASE + RAM_LEN).to_le_bytes());
    assert_eq!(map(good), Err(Refused(Refusal::BadAddress, 0)));
    assert_eq!(
        map(MapPages { list: (BASE + RAM_LEN).into(), ..good }),
        Err(Refused(Refusal::BadAddress, 0))
    );
    guest.ram().write(a.list, &a.pages[0].to_le_bytes());
    assert_eq!(map(good), Ok(()));
    for first in [PAGES, u64::MAX, 1 << 40] {
        assert_eq!(map(MapPages { first: first.into(), ..good }), bad(offset_of!(MapPages, first)));
    }
    let many = MapPages { count: (MAP_PAGES_MAX + 1).into(), ..good };
    assert_eq!(map(many), bad(offset_of!(MapPages, count)));
    assert_eq!(map(MapPages { flags: 4.into(), ..good }), bad(offset_of!(MapPages, flags)));
    let failed = MapFlags::FAILED.bits().into();
    assert_eq!(map(MapPages { flags: failed, ..good }), bad(offset_of!(MapPages, list)));
    assert_eq!(map(MapPages { count: 0.into(), ..good }), bad(offset_of!(MapPages, list)));
    let not_found = Err(Refused(Refusal::NotFound, 0));
    for key in [s.p.a.key, a.key ^ 1, 0, u32::MAX] {
        assert_eq!(map(MapPages { key: key.into(), ..good }), not_found);
        let unmap = UnmapPages { key: key.into(), count: 1.into(), ..UnmapPages::default() };
        assert_eq!(guest.command::<command::UnmapPages>(&unmap), not_found);
    }
    // All of them, however many a guest names.
    a.unmap(u64::MAX, u64::MAX);
    a.unmap(0, u64::MAX);
    let reg = |params: RegMr| guest.command::<command::RegMr>(&params).map(|_| ());
    let flags = |flags: MrFlags| (MrFlags::PAGED | flags).bits().into();
    let paged = RegMr::new(s.p.a.pdn, ALL, IOVA, PAGE, Pages::new(0, 12, 0));
    let paged = RegMr { flags: flags(MrFlags::empty()), ..paged };
    for other in [MrFlags::ONE_TOUCH, MrFlags::PRESENT] {
        assert_eq!(reg(RegMr { flags: flags(other), ..paged }), bad(offset_of!(RegMr, flags)));
    }
    for pages in [Pages::new(PAGE, 12, 0), Pages::new(0, 12, 1)] {
        assert_eq!(reg(RegMr { pages, ..paged }), bad(offset_of!(RegMr, pages)));
    }
    for length in [u64::MAX, PAGED_MAX * PAGE] {
        assert_eq!(reg(RegMr { length: length.into(), ..paged }), bad(offset_of!(RegMr, length)));
    }
    let mut again = ReregMr::new(a.key, Rereg::TRANSLATION);
    again.pages = Pages::new(s.p.a.buffer, 12, 0);
    again.length = PAGE.into();
    let refused = guest.command::<command::ReregMr>(&again).map(|_| ());
    assert_eq!(refused, Err(Refused(Refusal::BadState, 0)));
}

#[test]
fn a_region_ends_while_a_message_waits_for_its_pages() {
    let mut s = Scene::new();
    s.p.a.post_send(&Wr::new(Opcode::Write, &[s.a.sge(0, 4)]).to(IOVA, s.b.key));
    s.wait();
    assert!(s.a.is_reported());
    assert!(s.p.ga.on_object(Admin::DeregMr, s.a.key).is_ok());
    s.wait();
    assert_eq!(status(&s.p.sent().expect("an error")), Status::LocProtErr);
}

#[test]
fn a_datagram_waits_for_its_source_and_is_dropped_at_an_absent_receive() {
    let mut p = Pair::ud();
    let (from, to) = (Region::new(&p.ga, &p.a, 2), Region::new(&p.gb, &p.b, 2));
    from.fill(0, b"datagram");
    p.b.post_recv(3, &[to.sge(0, 100)]);
    let pass = |p: &Pair| {
        for _ in 0..20 {
            p.settle();
            p.world.advance(100_000);
        }
    };
    to.map(0, 2, MapFlags::empty());
    let wr = datagram(&[from.sge(0, 8)], p.there());
    p.a.post_send(&wr);
    pass(&p);
    assert!(p.sent().is_none() && p.received().is_none());
    assert!(from.is_reported() && from.serve(MapFlags::empty()) == 1);
    pass(&p);
    assert_eq!(status(&p.sent().expect("sent")), Status::Success);
    assert_eq!(status(&p.received().expect("received")), Status::Success);
    assert_eq!(to.bytes(40, 8), b"datagram");
    to.unmap(0, 2);
    p.b.post_recv(4, &[to.sge(100, 100)]);
    p.a.post_send(&wr);
    pass(&p);
    assert_eq!(status(&p.sent().expect("sent")), Status::Success);
    assert!(p.received().is_none());
    assert!(to.is_reported() && to.serve(MapFlags::empty()) == 1);
    p.a.post_send(&wr);
    pass(&p);
    assert_eq!(status(&p.sent().expect("sent")), Status::Success);
    assert_eq!(p.received().expect("received").wr_id.get(), 4);
    assert_eq!(to.bytes(140, 8), b"datagram");
}

#[test]
fn a_message_of_an_unreliable_connection_waits_for_its_source() {
    let mut s = Scene::with(Setup { kind: Type::Uc, ..Setup::default() });
    s.a.fill(0, &pattern(2 * PAGE));
    s.b.map(0, 3, MapFlags::empty());
    let wr = Wr::new(Opcode::Write, &[s.a.sge(0, 2 * PAGE as u32)]).to(IOVA, s.b.key);
    s.p.a.post_send(&wr);
    s.wait();
    assert!(s.p.sent().is_none());
    assert_eq!(s.run(&wr.clone().id(2)), (Status::Success, 3, 0));
    s.wait();
    s.p.a.send_cq.poll_success();
    assert_eq!(s.b.bytes(0, 2 * PAGE), pattern(2 * PAGE));
    s.b.unmap(0, 3);
    s.b.fill(0, &vec![0; 2 * PAGE as usize]);
    let (status, ..) = s.run(&wr);
    assert_eq!(status, Status::Success);
    // A packet does not wait for the pages of the receiver, but asks for them.
    s.wait();
    assert_eq!(s.b.is_reported() && s.b.serve(MapFlags::empty()) > 0, by_packets());
    assert_eq!(s.run(&wr).0, Status::Success);
    assert_eq!(s.b.bytes(0, 2 * PAGE), pattern(2 * PAGE));
}

/// With the shortest pause that the protocol has, whatever the QP asks of senders without receive.
#[test]
fn absent_pages_do_not_wait_for_the_timer_of_receives() {
    let mut s = Scene::new();
    s.a.map(0, 1, MapFlags::empty());
    s.p.a.post_send(&Wr::new(Opcode::Write, &[s.a.sge(0, 4)]).to(IOVA, s.b.key));
    s.p.settle();
    assert!(s.b.is_reported());
    s.b.serve(MapFlags::empty());
    s.p.world.advance(50_000);
    s.p.settle();
    assert_eq!(status(&s.p.sent().expect("done")), Status::Success);
}

/// Each segment of the sink crosses a border of pages that are not contiguous, and all of them are
/// in one packet.
#[test]
fn an_answer_has_room_for_two_pages_in_each_segment() {
    let mut s = Scene::new();
    s.b.fill(0, &pattern(1600));
    s.b.map(0, 2, MapFlags::empty());
    let border = |nth: u64| (nth + 1) * PAGE - IOVA % PAGE - 50;
    let sink: Vec<_> = (0..16).map(|nth| s.a.sge(border(2 * nth), 100)).collect();
    assert_eq!(s.run(&Wr::new(Opcode::Read, &sink).to(IOVA, s.b.key)).0, Status::Success);
    let got: Vec<u8> = (0..16).flat_map(|nth| s.a.bytes(border(2 * nth), 100)).collect();
    assert!(got == pattern(1600));
}

/// Inline data is never absent, whatever regions the guest has.
#[test]
fn inline_data_of_an_unreliable_connection_leaves() {
    let mut s = Scene::with(Setup { kind: Type::Uc, ..Setup::default() });
    s.b.map(0, 1, MapFlags::empty());
    let wr = Wr::new(Opcode::Write, &[]).inline(b"inline").to(IOVA, s.b.key);
    assert_eq!(s.run(&wr), (Status::Success, 0, 0));
    s.wait();
    assert_eq!(s.b.bytes(0, 6), b"inline");
}
