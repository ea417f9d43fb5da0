//! Regions: parameters, keys, page tables.
//!
//! Shows: memory

use std::mem::offset_of;

use vrnic_abi::admin::{MrFlags, Opcode, Pages, RegMr, Status, command};
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::memory::BASE;
use vrnic_testdriver::qp::{ALL, Setup};
use vrnic_testdriver::wr::Wr;
use zerocopy::IntoBytes;

use crate::bus::Endpoint;
use crate::host::RAM_LEN;
use crate::world::{Pair, World, guest};

#[test]
fn region_parameters_out_of_range() {
    let guest = guest();
    let pdn = guest.on_object(Opcode::AllocPd, 0).expect("PD");
    let at = guest.ram().alloc(1 << 16);
    let reg = |params: RegMr| guest.command::<command::RegMr>(&params).map(|key| key.get());
    let good = RegMr::new(pdn, 0, at, 4096, Pages::new(at, 12, 0));
    let bad = |offset: usize| Err(Refused(Status::BadParam, offset as u32));
    assert!(reg(good).is_ok());
    for access in [2, 8, 10] {
        let offset = offset_of!(RegMr, access);
        assert_eq!(reg(RegMr { access: access.into(), ..good }), bad(offset));
    }
    // Bits that are hints are accepted.
    assert!(reg(RegMr { access: (1 << 20 | 1).into(), ..good }).is_ok());
    assert_eq!(reg(RegMr { flags: 32.into(), ..good }), bad(offset_of!(RegMr, flags)));
    assert_eq!(reg(RegMr { pdn: 999.into(), ..good }), Err(Refused(Status::NotFound, 0)));
    for length in [u64::MAX, (1 << 40) + 1] {
        let offset = offset_of!(RegMr, length);
        assert_eq!(reg(RegMr { length: length.into(), ..good }), bad(offset));
    }
    let wraps = RegMr { iova: (u64::MAX - 10).into(), ..good };
    assert_eq!(reg(wraps), bad(offset_of!(RegMr, length)));
    let unaligned = guest.ram().alloc(4096);
    guest.ram().write(unaligned, &(at + 8).to_le_bytes());
    let list = |table| RegMr { pages: Pages::new(table, 12, 1), ..good };
    assert_eq!(reg(list(unaligned)), bad(0));
    assert_eq!(reg(list(BASE + RAM_LEN)), Err(Refused(Status::BadAddress, 0)));
    let all = RegMr { flags: MrFlags::ALL_MEMORY.bits().into(), ..good };
    assert_eq!(reg(all), bad(offset_of!(RegMr, pages)));
}

#[test]
fn keys_change_with_each_use_of_an_index() {
    let guest = guest();
    let pdn = guest.on_object(Opcode::AllocPd, 0).expect("PD");
    let mut seen = std::collections::HashSet::new();
    for _ in 0..1000 {
        let key = guest.reg_flat(pdn, 0, BASE, 4096).expect("MR");
        assert!(seen.insert(key), "key {key:#x} was given before");
        assert!(guest.on_object(Opcode::DeregMr, key ^ 1).is_err());
        assert!(guest.on_object(Opcode::DeregMr, key).is_ok());
        assert_eq!(guest.on_object(Opcode::DeregMr, key), Err(Refused(Status::NotFound, 0)));
    }
}

#[test]
fn page_tables_of_all_levels_reach_the_same_memory() {
    let mut p = Pair::new();
    let (len, base) = (3 << 20, p.a.buffer);
    // Pages in reverse order, in a list and in a list of lists.
    let pages: Vec<u64> = (0..len / 4096).rev().map(|page| base + page * 4096).collect();
    let list = p.ga.ram().alloc(pages.len() as u64 * 8);
    p.ga.ram().write(list, pages.as_bytes());
    let chunks = p.ga.ram().alloc(4096);
    for (at, part) in pages.chunks(512).enumerate() {
        let chunk = p.ga.ram().alloc(4096);
        p.ga.ram().write(chunk, part.as_bytes());
        p.ga.ram().write(chunks + at as u64 * 8, &chunk.to_le_bytes());
    }
    for page in 0..len / 4096 {
        p.a.fill(page * 4096, &vec![page as u8; 4096]);
    }
    for (table, levels) in [(list, 1), (chunks, 2)] {
        let iova = 0x7000_0123;
        let length = len - 0x123;
        let params = RegMr::new(p.a.pdn, ALL, iova, length, Pages::new(table, 12, levels));
        let key = p.ga.command::<command::RegMr>(&params).expect("REG_MR").get();
        // The adapter has copied the table.
        p.ga.ram().write(table, &[0xff; 8]);
        let sge = vrnic_abi::sq::Sge {
            addr: iova.into(),
            length: (length as u32).into(),
            lkey: key.into(),
        };
        let wr = Wr::new(vrnic_abi::sq::Opcode::Write, &[sge]).to(p.b.buffer, p.b.key);
        let cqe = p.complete(&wr);
        assert_eq!(status(&cqe), vrnic_abi::cq::Status::Success);
        let got = p.b.bytes(0, length as usize);
        for (at, byte) in got.iter().enumerate() {
            let page = len / 4096 - 1 - (at as u64 + 0x123) / 4096;
            assert_eq!(*byte, page as u8, "byte {at} with {levels} levels");
        }
        p.b.fill(0, &vec![0; length as usize]);
    }
}

#[test]
fn deregistered_memory_is_out_of_reach() {
    let mut p = Pair::new();
    let wr = Wr::new(vrnic_abi::sq::Opcode::Write, &[p.a.sge(0, 8)]).to(p.b.buffer, p.b.key);
    assert_eq!(status(&p.complete(&wr)), vrnic_abi::cq::Status::Success);
    assert!(p.gb.on_object(Opcode::DeregMr, p.b.key).is_ok());
    assert_eq!(status(&p.complete(&wr)), vrnic_abi::cq::Status::RemAccessErr);
}

#[test]
fn all_memory_is_addressed_by_guest_address() {
    let world = World::default();
    let guest = world.guest(1);
    let mut e = Endpoint::new(&guest, Setup { kernel: true, ..Setup::default() });
    e.connect(guest.mac(), e.qpn, |_| {});
    let all = RegMr::all_memory(e.pdn, ALL);
    let key = guest.command::<command::RegMr>(&all).expect("REG_MR").get();
    let (from, to) = (guest.ram().alloc(4096), guest.ram().alloc(4096));
    guest.ram().write(from, b"somewhere");
    let sge = vrnic_abi::sq::Sge { addr: from.into(), length: 9.into(), lkey: key.into() };
    e.post_send(&Wr::new(vrnic_abi::sq::Opcode::Write, &[sge]).to(to, key));
    world.settle(&[&guest]);
    assert_eq!(guest.ram().read(to, 9), b"somewhere");
    // Addresses beyond guest memory fail as other addresses without memory do.
    let sge = vrnic_abi::sq::Sge { addr: (u64::MAX - 9).into(), ..sge };
    e.post_send(&Wr::new(vrnic_abi::sq::Opcode::Write, &[sge]).to(to, key));
    world.settle(&[&guest]);
    assert!(e.send_cq.poll().is_some());
    let cqe = e.send_cq.poll().expect("completion");
    assert_eq!(status(&cqe), vrnic_abi::cq::Status::LocProtErr);
}
