//! Messages that arrive: every operation, segments, sizes, send queues in guest memory and in the
//! device.
//!
//! Shows: data

use vrnic_abi::Key;
use vrnic_abi::admin::QpFlags;
use vrnic_abi::cq::{self, Status};
use vrnic_abi::sq::{Flags, Opcode};
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{REGION, Setup};
use vrnic_testdriver::wr::{Wr, sge};

use crate::bus::Endpoint;
use crate::world::{Pair, World};

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed).collect()
}

#[test]
fn send_fills_the_receive() {
    for in_device in [false, true] {
        let mut p = Pair::with(Setup { in_device, ..Setup::default() }, |_| {});
        let data = pattern(5000, 1);
        p.a.fill(3, &data);
        p.b.post_recv(77, &[p.b.sge(100, 4000), p.b.sge(9001, 3000)]);
        let mut wr = Wr::new(Opcode::SendImm, &[p.a.sge(3, 1500), p.a.sge(1503, 3500)]).id(5);
        wr.imm = *b"imm!";
        let sent = p.complete(&wr);
        assert_eq!(
            (status(&sent), sent.wr_id.get(), sent.qpn.get()),
            (Status::Success, 5, p.a.qpn)
        );
        assert_eq!((sent.opcode, sent.wqe_index.get()), (cq::Opcode::Send as u8, 0));
        let got = p.received().expect("receive completion");
        assert_eq!((status(&got), got.wr_id.get(), got.qpn.get()), (Status::Success, 77, p.b.qpn));
        assert_eq!((got.byte_len.get(), got.imm, got.flags.get()), (5000, *b"imm!", 1));
        assert_eq!((got.opcode, got.src_qpn.get()), (cq::Opcode::Recv as u8, p.a.qpn));
        assert_eq!(p.b.bytes(100, 4000), data[..4000]);
        assert_eq!(p.b.bytes(9001, 1000), data[4000..]);
        assert!(p.sent().is_none() && p.received().is_none());
    }
}

#[test]
fn many_wqes_wrap_the_rings() {
    for in_device in [false, true] {
        let mut p = Pair::with(Setup { in_device, ..Setup::default() }, |_| {});
        for round in 0..100u64 {
            for n in 0..5 {
                p.b.post_recv(round * 10 + n, &[p.b.sge(n * 64, 64)]);
                p.a.fill(n * 64, &pattern(64, (round + n) as u8));
                let wr = Wr::new(Opcode::Send, &[p.a.sge(n * 64, 64)]).id(round * 10 + n);
                p.a.store_send(&wr);
            }
            p.a.ring();
            p.settle();
            for n in 0..5 {
                let cqe = p.sent().expect("sent");
                assert_eq!((status(&cqe), cqe.wr_id.get()), (Status::Success, round * 10 + n));
                assert_eq!(u64::from(cqe.wqe_index.get()), round * 5 + n);
                assert_eq!(p.received().expect("received").wr_id.get(), round * 10 + n);
                assert_eq!(p.b.bytes(n * 64, 64), pattern(64, (round + n) as u8));
            }
        }
    }
}

#[test]
fn write_and_read_move_every_size() {
    let mut p = Pair::new();
    for len in [0usize, 1, 7, 8, 63, 64, 65, 4095, 4096, 4097, 100_001, 3 << 20] {
        for (from, to) in [(0, 0), (1, 5), (4090, 3)] {
            let data = pattern(len, len as u8 ^ from as u8);
            p.a.fill(from, &data);
            p.b.fill(to, &vec![0xee; len + 8]);
            let wr = Wr::new(Opcode::Write, &[p.a.sge(from, len as u32)]);
            let cqe = p.complete(&wr.to(p.b.buffer + to, p.b.key));
            assert_eq!(status(&cqe), Status::Success, "WRITE of {len}");
            assert_eq!(cqe.opcode, cq::Opcode::Write as u8);
            assert!(p.b.bytes(to, len) == data, "WRITE of {len} from {from} to {to}");
            assert_eq!(p.b.bytes(to + len as u64, 8), [0xee; 8], "bytes after a WRITE");

            p.a.fill(from, &vec![0; len + 1]);
            let wr = Wr::new(Opcode::Read, &[p.a.sge(from, len as u32)]);
            let cqe = p.complete(&wr.to(p.b.buffer + to, p.b.key));
            assert_eq!((status(&cqe), cqe.byte_len.get()), (Status::Success, len as u32));
            assert!(p.a.bytes(from, len) == data, "READ of {len} from {to} to {from}");
            assert_eq!(p.a.bytes(from + len as u64, 1), [0], "bytes after a READ");
        }
    }
}

#[test]
fn sixteen_segments_gather_and_scatter() {
    let mut p = Pair::new();
    let data = pattern(16 * 37, 9);
    p.a.fill(0, &data);
    let gather: Vec<_> = (0..16).map(|n| p.a.sge(n * 37, 37)).collect();
    let cqe = p.complete(&Wr::new(Opcode::Write, &gather[..15]).to(p.b.buffer + 11, p.b.key));
    assert_eq!(status(&cqe), Status::Success);
    assert_eq!(p.b.bytes(11, 15 * 37), data[..15 * 37]);
    let scatter: Vec<_> = (0..15).map(|n| p.a.sge(50_000 + n * 100, 37)).collect();
    let cqe = p.complete(&Wr::new(Opcode::Read, &scatter).to(p.b.buffer + 11, p.b.key));
    assert_eq!((status(&cqe), cqe.byte_len.get()), (Status::Success, 15 * 37));
    for n in 0..15 {
        let at = 50_000 + n as u64 * 100;
        assert_eq!(p.a.bytes(at, 37), data[n * 37..(n + 1) * 37]);
    }
}

#[test]
fn inline_data_needs_no_region() {
    for in_device in [false, true] {
        let mut p = Pair::with(Setup { in_device, ..Setup::default() }, |_| {});
        let data = pattern(480, 3);
        let mut wr = Wr::new(Opcode::Write, &[]).to(p.b.buffer + 1, p.b.key);
        wr.inline = Some(data.clone());
        assert_eq!(status(&p.complete(&wr)), Status::Success);
        assert_eq!(p.b.bytes(1, 480), data);
    }
}

#[test]
fn write_with_immediate_uses_a_receive_up() {
    let mut p = Pair::new();
    p.b.post_recv(9, &[]);
    p.a.fill(0, b"payload");
    let mut wr = Wr::new(Opcode::WriteImm, &[p.a.sge(0, 7)]).to(p.b.buffer + 64, p.b.key);
    wr.imm = [1, 2, 3, 4];
    assert_eq!(status(&p.complete(&wr)), Status::Success);
    let got = p.received().expect("receive completion");
    assert_eq!((got.opcode, got.byte_len.get()), (cq::Opcode::RecvWriteImm as u8, 7));
    assert_eq!((got.imm, got.wr_id.get()), ([1, 2, 3, 4], 9));
    assert_eq!(p.b.bytes(64, 7), b"payload");
}

#[test]
fn atomics_return_the_old_value() {
    let mut p = Pair::new();
    p.b.fill(64, &7u64.to_le_bytes());
    let mut add = Wr::new(Opcode::FetchAdd, &[p.a.sge(0, 8)]).to(p.b.buffer + 64, p.b.key);
    add.atomic = Some((u64::MAX, 0));
    let cqe = p.complete(&add);
    assert_eq!((status(&cqe), cqe.byte_len.get()), (Status::Success, 8));
    assert_eq!(cqe.opcode, cq::Opcode::FetchAdd as u8);
    assert_eq!(p.a.bytes(0, 8), 7u64.to_le_bytes());
    assert_eq!(p.b.bytes(64, 8), 6u64.to_le_bytes());
    for (compare, expected) in [(5, 6u64), (6, 42)] {
        let mut swap = Wr::new(Opcode::CmpSwp, &[p.a.sge(8, 8)]).to(p.b.buffer + 64, p.b.key);
        swap.atomic = Some((42, compare));
        assert_eq!(status(&p.complete(&swap)), Status::Success);
        assert_eq!(p.a.bytes(8, 8), 6u64.to_le_bytes());
        assert_eq!(p.b.bytes(64, 8), expected.to_le_bytes());
    }
}

#[test]
fn unsignaled_requests_are_silent_unless_the_queue_signals_all() {
    for flags in [QpFlags::empty(), QpFlags::SIGNAL_ALL] {
        let signal_all = !flags.is_empty();
        let mut p = Pair::with(Setup { flags, ..Setup::default() }, |_| {});
        let wr = Wr::new(Opcode::Write, &[p.a.sge(0, 8)]).to(p.b.buffer, p.b.key);
        p.run(&wr.clone().flags(Flags::empty()).id(1));
        assert_eq!(p.sent().map(|cqe| cqe.wr_id.get()), signal_all.then_some(1));
        let cqe = p.complete(&wr.flags(Flags::SIGNALED | Flags::FENCE).id(2));
        assert_eq!((cqe.wr_id.get(), cqe.wqe_index.get()), (2, 1));
    }
}

/// Shows: data: a QP connected with itself, or with a neighbour of the same function
#[test]
fn a_qp_may_be_connected_to_itself_or_a_neighbour() {
    let world = World::default();
    let guest = world.guest(1);
    let (mut a, mut b) = (
        Endpoint::new(&guest, Setup::default()),
        Endpoint::new(&guest, Setup { kernel: true, ..Setup::default() }),
    );
    let mac = guest.mac();
    a.connect(mac, b.qpn, |_| {});
    b.connect(mac, a.qpn, |_| {});
    a.fill(0, b"neighbour");
    let wr = Wr::new(Opcode::Send, &[a.sge(0, 9)]);
    b.post_recv(1, &[b.sge(0, 16)]);
    a.post_send(&wr);
    world.settle(&[&guest]);
    assert_eq!(status(&a.send_cq.poll().expect("sent")), Status::Success);
    assert_eq!(b.bytes(0, 9), b"neighbour");

    a.set_state(vrnic_abi::qp::State::Reset);
    a.connect(mac, a.qpn, |_| {});
    a.post_recv(2, &[a.sge(64, 16)]);
    let wr = Wr::new(Opcode::Send, &[a.sge(0, 9)]);
    a.post_send(&wr);
    world.settle(&[&guest]);
    assert_eq!(status(&a.send_cq.poll().expect("sent")), Status::Success);
    assert_eq!(a.bytes(64, 9), b"neighbour");
}

#[test]
fn long_messages_take_turns_with_short_ones() {
    let world = World::default();
    let (ga, gb) = (world.guest(1), world.guest(2));
    let setup = Setup::default();
    let [(mut a1, b1), (mut a2, b2)] = [0, 1].map(|_| {
        let (a, b) = (Endpoint::new(&ga, setup), Endpoint::new(&gb, setup));
        Endpoint::connect_pair(&a, &b);
        (a, b)
    });
    let long = Wr::new(Opcode::Write, &[a1.sge(0, REGION as u32)]).to(b1.buffer, b1.key);
    a1.post_send(&long);
    let short = Wr::new(Opcode::Write, &[a2.sge(0, 8)]).to(b2.buffer, b2.key);
    a2.post_send(&short);
    let (mut first, mut polls) = (None, 0);
    while first.is_none() {
        ga.adapter.poll(0);
        gb.adapter.poll(0);
        polls += 1;
        assert!(polls < 1000);
        if a2.send_cq.poll().is_some() {
            first = Some("short");
        } else if a1.send_cq.poll().is_some() {
            first = Some("long");
        }
    }
    assert_eq!(first, Some("short"));
}

/// The size of a QP, so that ten thousand idle QPs take little of the daemon's memory.
#[test]
fn a_qp_is_small() {
    let qp = size_of::<vrnic_adapter::objects::qp::Qp<crate::host::TestHost>>();
    assert!(qp <= 2048, "{qp} bytes");
}

/// The local key of memory that does not exist reads as zeros at any address, and loses what is
/// written.
///
/// Shows: memory
#[test]
fn the_null_key_reads_as_zeros_and_loses_what_is_written() {
    let null = |at: u64, len: u32| sge(at, len, Key::NULL.get());
    let mut p = Pair::new();
    let data = pattern(9000, 5);
    p.a.fill(0, &data);
    let gather = [p.a.sge(0, 3000), null(u64::MAX - 4999, 5000), p.a.sge(3000, 6000)];
    let sent: Vec<u8> = [&data[..3000], &[0; 5000], &data[3000..]].concat();
    p.b.fill(0, &[0xee; 20_000]);
    let wr = Wr::new(Opcode::Write, &gather).to(p.b.buffer, p.b.key);
    assert_eq!(status(&p.complete(&wr)), Status::Success);
    assert!(p.b.bytes(0, 14_000) == sent && p.b.bytes(14_000, 1) == [0xee]);

    let scatter = [null(0, 2999), p.a.sge(20_000, 2), null(7, 10_999)];
    let wr = Wr::new(Opcode::Read, &scatter).to(p.b.buffer, p.b.key);
    assert_eq!(status(&p.complete(&wr)), Status::Success);
    assert_eq!(p.a.bytes(20_000, 3), [sent[2999], sent[3000], 0]);

    p.b.post_recv(7, &[p.b.sge(10, 100), null(1, 4000), p.b.sge(200, 9900)]);
    assert_eq!(status(&p.complete(&Wr::new(Opcode::Send, &gather))), Status::Success);
    assert_eq!(p.received().expect("received").byte_len.get(), 14_000);
    assert!(p.b.bytes(10, 100) == sent[..100] && p.b.bytes(200, 9900) == sent[4100..]);

    let wr = Wr::new(Opcode::FetchAdd, &[null(0, 8)]).to(p.b.buffer, p.b.key).atomic(1, 0);
    assert_eq!(status(&p.complete(&wr)), Status::Success);
}

/// The null key is no key for peers, and none of an atomic, a region or a window.
#[test]
fn the_null_key_is_only_local() {
    let mut p = Pair::new();
    let wr = Wr::new(Opcode::Write, &[p.a.sge(0, 8)]).to(p.b.buffer, Key::NULL.get());
    assert_eq!(status(&p.complete(&wr)), Status::RemAccessErr);
    let mut p = Pair::new();
    let wr = Wr::new(Opcode::LocalInv, &[]).to(0, Key::NULL.get());
    assert_eq!(status(&p.complete(&wr)), Status::MwBindErr);
}
