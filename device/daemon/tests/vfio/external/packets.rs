//! Messages that travel in packets, which are much shorter than the messages to the VMM.
//!
//! Shows: direct: memory of other devices, by messages to the VMM, for messages that travel in
//! packets

use std::sync::atomic::{AtomicU64, Ordering};

use vrnic_abi::cq::Status;
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::{Wr, sge};

use super::device::{FAR, Manner, Rig, WAYS, far};
use crate::common::pattern;

/// Packets are much shorter than what the VMM reads and writes at once.
#[test]
fn messages_in_packets_take_few_requests() {
    for personality in ["roce", "iwarp"] {
        take_few_requests(personality);
    }
}

fn take_few_requests(personality: &'static str) {
    const LEN: usize = 64 << 10;
    let mut rig = Rig::of(personality, WAYS[1]);
    let (mut a, mut b, key) = rig.ends_of(Setup { region: 1 << 20, ..Setup::default() });
    let (own, local) = (far(0, LEN, key), b.sge(0, LEN as u32));
    let out_of = Wr::new(Opcode::Write, &[own]).to(b.buffer, b.key);
    let into = Wr::new(Opcode::Read, &[own]).to(b.buffer, b.key);
    let [read_by_peer, written_by_peer] =
        [Opcode::Read, Opcode::Write].map(|opcode| Wr::new(opcode, &[local]).to(FAR, key));
    // The packets of a message arrive during the first request.
    rig.device.be(Manner::Slow);
    let requests = |rig: &Rig| {
        let load = |count: &AtomicU64| count.swap(0, Ordering::SeqCst);
        load(&rig.device.reads) + load(&rig.device.writes)
    };
    for (nth, wr) in [out_of, into, read_by_peer, written_by_peer].iter().enumerate() {
        let end = if nth < 2 { &mut a } else { &mut b };
        end.run_expecting(wr, Status::Success);
        if nth == 3 {
            // Behind a WRITE of iWARP, this shows that the WRITE has ended.
            let read = Wr::new(Opcode::Read, &[b.sge(0, 1)]).to(FAR, key);
            b.run_expecting(&read, Status::Success);
        }
        let requests = requests(&rig);
        assert!((1..=8).contains(&requests), "{personality} {nth}: {requests} requests");
    }
    rig.daemon.check();
}

/// The last packet of a READ waits until its bytes are written, and so do the packets behind it.
/// The peer is not asked for them again.
#[test]
fn a_read_into_it_is_asked_for_once() {
    const LEN: usize = 8 << 10;
    let mut rig = Rig::new(WAYS[1]);
    let (mut a, b, key) = rig.ends();
    let data = pattern(3 * LEN, 5);
    b.fill(0, &data);
    rig.device.be(Manner::Slow);
    let before = b.guest.stats().duplicate_request.get();
    for nth in 0..3 {
        let own = far(nth * LEN, LEN, key);
        a.post_send(&Wr::new(Opcode::Read, &[own]).to(b.buffer + (nth * LEN) as u64, b.key));
    }
    for _ in 0..3 {
        a.send_cq.expect(1, Status::Success);
    }
    assert!(rig.device.bytes(0, data.len()) == data, "the bytes of the peer");
    assert_eq!(b.guest.stats().duplicate_request.get(), before, "READs that came again");
    rig.daemon.check();
}

/// Each work request has its own bytes, although others are outstanding at the same time.
#[test]
fn many_work_requests_are_outstanding() {
    const LEN: usize = 9000;
    const COUNT: usize = 24;
    let mut rig = Rig::new(WAYS[1]);
    let setup = Setup { region: 1 << 20, log_wqes: 6, log_cqes: 6, ..Setup::default() };
    let (mut a, mut b, key) = rig.ends_of(setup);
    for opcode in [Opcode::Write, Opcode::Read] {
        for own in [true, false] {
            let data = pattern(COUNT * LEN, COUNT + usize::from(own));
            // A WRITE goes from the memory of its requester, a READ to it.
            let from_far = own == (opcode == Opcode::Write);
            let zeros = vec![0; COUNT * LEN];
            rig.device.fill(0, if from_far { &data } else { &zeros });
            b.fill(0, if from_far { &zeros } else { &data });
            let (near, near_key) = (b.buffer, b.key);
            let end = if own { &mut a } else { &mut b };
            for nth in 0..COUNT {
                let at = (nth * LEN) as u64;
                let [near, far] = [(near + at, near_key), (FAR + at, key)];
                let [(local, lkey), (remote, rkey)] = if own { [far, near] } else { [near, far] };
                let wr = Wr::new(opcode, &[sge(local, LEN as u32, lkey)]).to(remote, rkey);
                end.post_send(&wr);
            }
            for _ in 0..COUNT {
                end.send_cq.expect(1, Status::Success);
            }
            let moved =
                if from_far { b.bytes(0, data.len()) } else { rig.device.bytes(0, data.len()) };
            assert!(moved == data, "{opcode:?}, own memory: {own}");
        }
    }
    rig.daemon.check();
}
