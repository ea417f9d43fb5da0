//! Fast registration, invalidation and windows, by a daemon whose two workers share the QPs.

mod common;

use common::{pair, pattern, start_with};
use vrnic_abi::admin::{AllocMr, AllocMw, MwType, Opcode as Admin, command};
use vrnic_abi::cq::{Flags, Status};
use vrnic_abi::qp::Access;
use vrnic_abi::sq::{BindMwSeg, Opcode, RegMrSeg};
use vrnic_testdriver::endpoint::{ALL_ACCESS, Endpoint, EndpointSetup};
use vrnic_testdriver::qp::Send;
use zerocopy::IntoBytes;

const PAGE: u64 = 4096;
const ROUNDS: u32 = 300;

/// Works as a storage driver does: it registers, lets the peer write, and gets a response that
/// invalidates; each round by a key of its own, on send queues in guest and in device memory.
#[test]
fn register_write_respond() {
    let mut daemon = start_with(2, &["--workers", "2"]);
    let guests = pair(&daemon);
    for in_device in [false, true] {
        let setup = EndpointSetup { in_device, kernel: true, ..EndpointSetup::default() };
        let [mut a, mut b] =
            guests.each_ref().map(|guest| Endpoint::new(guest, &setup).expect("endpoint"));
        Endpoint::connect(&a, &b).expect("connect");
        let fast = a.guest.command::<command::AllocMr>(&AllocMr::new(a.pdn, 4)).expect("ALLOC_MR");
        let fast = fast.get();
        let list = a.guest.ram.alloc(4 * 8).expect("memory");
        // Two pages, the later one first.
        let pages = [a.buffer + PAGE, a.buffer];
        a.guest.ram.write(list, pages.as_bytes()).expect("list");
        let seg = RegMrSeg {
            length: (2 * PAGE).into(),
            table: list.into(),
            access: ALL_ACCESS.into(),
            page_count: 2.into(),
            page_shift: 12,
            ..RegMrSeg::default()
        };
        for round in 0..ROUNDS {
            let key = fast & !0xff | round & 0xff;
            let register = Send::new(Opcode::RegMr, 1).remote(0, key).body(seg.as_bytes());
            a.run_expecting(&register, 1, Status::Success).expect("REG_MR");
            let data = pattern(2 * PAGE as usize, round as usize);
            b.fill(0, &data).expect("fill");
            a.qp.post_recv(a.guest, 7, &[a.sge(8 * PAGE, 64)]).expect("receive");
            let write = Send::new(Opcode::Write, 2).sges(&[b.sge(0, 2 * PAGE as u32)]);
            b.run_expecting(&write.remote(0, key), 2, Status::Success).expect("WRITE");
            let respond = Send::new(Opcode::SendInv, 3).remote(0, key);
            b.run_expecting(&respond, 3, Status::Success).expect("SEND_INV");
            let cqe = a.recv_cq.wait(a.guest).expect("response");
            assert_eq!((cqe.flags.get(), cqe.key.get()), (Flags::INVALIDATED.bits(), key));
            let (first, second) = data.split_at(PAGE as usize);
            assert!(a.bytes(PAGE, PAGE as usize).expect("bytes") == first, "round {round}");
            assert!(a.bytes(0, PAGE as usize).expect("bytes") == second, "round {round}");
        }
    }
    daemon.check().expect("healthy");
}

/// A window opens a part of a region to the peer, until it is bound elsewhere.
#[test]
fn a_window_moves() {
    let mut daemon = start_with(2, &["--workers", "2"]);
    let guests = pair(&daemon);
    let setup = EndpointSetup::default();
    let [mut a, mut b] =
        guests.each_ref().map(|guest| Endpoint::new(guest, &setup).expect("endpoint"));
    Endpoint::connect(&a, &b).expect("connect");
    let access = ALL_ACCESS | Access::MW_BIND.bits();
    let region = a.guest.reg_flat(a.pdn, access, a.buffer, 1 << 20).expect("REG_MR");
    let window = AllocMw::new(a.pdn, MwType::Type1);
    let window = a.guest.command::<command::AllocMw>(&window).expect("ALLOC_MW").get();
    for round in 0..ROUNDS {
        let key = window & !0xff | round & 0xff;
        let at = a.buffer + u64::from(round) * 8;
        let seg = BindMwSeg {
            length: 8.into(),
            lkey: region.into(),
            access: Access::REMOTE_WRITE.bits().into(),
            ..BindMwSeg::default()
        };
        let bind = Send::new(Opcode::BindMw, 1).remote(at, key).body(seg.as_bytes());
        a.run_expecting(&bind, 1, Status::Success).expect("BIND_MW");
        b.fill(0, &u64::from(round).to_le_bytes()).expect("fill");
        let write = Send::new(Opcode::Write, 2).sges(&[b.sge(0, 8)]).remote(at, key);
        b.run_expecting(&write, 2, Status::Success).expect("WRITE");
        let got = a.bytes(u64::from(round) * 8, 8).expect("bytes");
        assert_eq!(got, u64::from(round).to_le_bytes());
    }
    assert!(a.guest.destroy(Admin::DeregMr, region).is_err(), "a region with a bound window");
    a.guest.destroy(Admin::DeallocMw, window).expect("DEALLOC_MW");
    a.guest.destroy(Admin::DeregMr, region).expect("DEREG_MR");
    daemon.check().expect("healthy");
}
