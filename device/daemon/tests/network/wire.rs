//! RDMA between functions of two daemons, as packets over a trunk.
//!
//! Shows: roce

use vrnic_abi::cq::Status;
use vrnic_abi::qp::Type;
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wait;
use vrnic_testdriver::wr::Wr;

use crate::common;
use crate::common::joined::Joined;
use crate::common::{Span, pattern, start_with, write_and_read};

#[test]
fn every_operation_goes_from_daemon_to_daemon() {
    let mut joined = Joined::by_trunk();
    for in_device in [false, true] {
        let [mut a, mut b] = joined.connected(Setup { in_device, ..Setup::default() }, |_| {});
        for (len, from, to) in
            [(0, 0, 0), (1, 3, 5), (4096, 4095, 1), (65_537, 7, 93), (4 << 20, 1, 0)]
        {
            write_and_read(&mut a, &b, Span { len, from, to });
            b.post_recv(1, &[b.sge(to, len as u32)]);
            a.run_expecting(&Wr::new(Opcode::Send, &[a.sge(from, len as u32)]), Status::Success);
            let got = wait::until("the receive", || b.recv_cq.poll());
            assert_eq!(got.byte_len.get() as usize, len);
        }
        b.fill(64, &40u64.to_le_bytes());
        let add = Wr::new(Opcode::FetchAdd, &[a.sge(8, 8)]).atomic(2, 0).to(b.buffer + 64, b.key);
        a.run_expecting(&add, Status::Success);
        assert_eq!(
            (a.bytes(8, 8), b.bytes(64, 8)),
            (40u64.to_le_bytes().to_vec(), 42u64.to_le_bytes().to_vec())
        );
    }
    joined.check();
}

#[test]
fn both_ends_send_at_once() {
    let mut joined = Joined::by_trunk();
    let mut ends =
        joined.connected(Setup { kind: Type::Rc, ..Setup::default() }, |attr| attr.retry_cnt = 7);
    for round in 0..50 {
        for (nth, end) in ends.iter().enumerate() {
            end.fill(0, &pattern(60_000, round * 2 + nth));
        }
        let peers = ends.each_ref().map(|end| (end.buffer + (1 << 20), end.key));
        for (nth, end) in ends.iter_mut().enumerate() {
            let (addr, key) = peers[1 - nth];
            end.post_send(&Wr::new(Opcode::Write, &[end.sge(0, 60_000)]).to(addr, key));
        }
        for end in &mut ends {
            let cqe = wait::until("a WRITE", || end.send_cq.poll());
            assert_eq!(vrnic_testdriver::cq::status(&cqe), Status::Success);
        }
        for (nth, end) in ends.iter().enumerate() {
            assert!(end.bytes(1 << 20, 60_000) == pattern(60_000, round * 2 + 1 - nth));
        }
    }
    joined.check();
}

/// The sender of an unreliable connection does not wait for its peer, but it waits for room in the
/// queues on the way.
#[test]
fn unreliable_messages_are_not_lost_on_a_trunk() {
    const LEN: u32 = 256 << 10;
    const MESSAGES: u32 = 120;
    for path_mtu in [1, 3, 5] {
        let mut joined = Joined::by_trunk();
        let setup = Setup { kind: Type::Uc, log_wqes: 8, log_cqes: 8, ..Setup::default() };
        let [mut a, mut b] = joined.connected(setup, |attr| attr.path_mtu = path_mtu);
        for _ in 0..MESSAGES {
            b.post_recv(1, &[b.sge(0, LEN)]);
        }
        for _ in 0..MESSAGES {
            a.post_send(&Wr::new(Opcode::Send, &[a.sge(0, LEN)]));
        }
        for nth in 0..MESSAGES {
            let got = wait::until("a receive", || b.recv_cq.poll());
            assert_eq!(got.byte_len.get(), LEN, "message {nth}, path MTU code {path_mtu}");
        }
        joined.check();
    }
}

#[test]
fn a_peer_that_ends_leaves_retries() {
    let joined = Joined::by_trunk();
    let [mut a, b] =
        joined.connected(Setup::default(), |attr| (attr.timeout, attr.retry_cnt) = (10, 1));
    let Joined { daemons: [_left, mut right], guests, .. } = joined;
    let write = Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key);
    a.run_expecting(&write, Status::Success);
    let _status = right.stop(rustix::process::Signal::TERM);
    a.run_expecting(&write, Status::RetryExcErr);
    drop((b, guests));
}

#[test]
fn functions_of_one_daemon_reach_each_other_by_packets() {
    let mut daemon = start_with(2, &["--fabric", "wire"]);
    let guests = common::pair(&daemon);
    let [mut a, b] = common::connected(&guests, Setup::default());
    common::still_works(&mut a, &b);
    // With memory copies, no acknowledgement would be received.
    assert!(guests[0].stats().rx_pkts.get() > 0, "no acknowledgement has come");
    daemon.check();
}
