//! The memory of QPs whose peers are reached by packets. It comes from the adapter's budget for
//! connections. QPs that get no share of it still work.
//!
//! Shows: roce

use vrnic_abi::cq::Status;
use vrnic_abi::qp::Attr;
use vrnic_abi::sq::Opcode;
use vrnic_adapter::limits::CONNECTION_MEMORY;
use vrnic_simlink::{Fate, Faults};
use vrnic_tcp::Share;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, Guest};
use crate::cable::Cable;

/// Number of work requests that are posted at once.
const COUNT: usize = 120;

fn deep() -> Setup {
    Setup { log_wqes: 7, log_cqes: 8, ..Setup::default() }
}

fn free(guest: &Guest) -> usize {
    guest.adapter.connection_memory().free()
}

/// Posts [`COUNT`] WRITEs of this length.
fn post_writes(a: &mut Endpoint, b: &Endpoint, len: u32) {
    for _ in 0..COUNT {
        a.store_send(&Wr::new(Opcode::Write, &[a.sge(0, len)]).to(b.buffer, b.key));
    }
    a.ring();
}

/// Runs until all of them have completed. Returns how many have succeeded.
fn succeeded(cable: &Cable, a: &mut Endpoint) -> usize {
    let mut statuses = Vec::new();
    cable.run_until(|| {
        statuses.extend(std::iter::from_fn(|| a.send_cq.poll()).map(|cqe| status(&cqe)));
        statuses.len() == COUNT
    });
    statuses.iter().filter(|status| **status == Status::Success).count()
}

/// Drops the first packet from A once.
fn lose_first(cable: &Cable) {
    let mut lost = false;
    cable.links[0]
        .borrow_mut()
        .rule(move |_| if std::mem::replace(&mut lost, true) { Fate::Pass } else { Fate::Drop });
}

/// Takes all memory for connections until the result is dropped.
fn take_all(guest: &Guest) -> Vec<Share> {
    let memory = guest.adapter.connection_memory();
    let mut all = Vec::new();
    while memory.free() > 1 {
        let mut share = Share::of(memory);
        assert!(share.take(memory.free() / 2));
        all.push(share);
    }
    all
}

#[test]
fn outstanding_work_requests_are_counted_and_their_memory_is_given_back() {
    let cable = Cable::new(41, Faults::default());
    let (mut a, b) = cable.connected(deep(), |_| {});
    let all = free(&cable.ga);
    assert!(
        (CONNECTION_MEMORY - 4096..CONNECTION_MEMORY).contains(&all),
        "a part is kept for READs of the peer"
    );
    cable.set_full(true);
    post_writes(&mut a, &b, 8);
    for _ in 0..4 {
        cable.ga.adapter.poll(0);
    }
    let used = all - free(&cable.ga);
    assert!(used > COUNT * 64, "{used} bytes for {COUNT} work requests");
    cable.set_full(false);
    cable.world.advance(1_000_000);
    assert_eq!(succeeded(&cable, &mut a), COUNT);
    assert_eq!(all - free(&cable.ga), used, "the QP keeps its memory for a while");
    cable.settle();
    assert_eq!(free(&cable.ga), all);
    post_writes(&mut a, &b, 8);
    assert_eq!(succeeded(&cable, &mut a), COUNT);
}

#[test]
fn early_packets_are_counted_and_their_memory_is_given_back() {
    let cable = Cable::new(42, Faults::default());
    let (mut a, b) = cable.connected(deep(), |_| {});
    let all = free(&cable.gb);
    lose_first(&cable);
    post_writes(&mut a, &b, 4096);
    let mut max_used = 0;
    cable.run_until(|| {
        max_used = max_used.max(all - free(&cable.gb));
        max_used > 0 && free(&cable.gb) == all
    });
    assert!(max_used > 8 * 4096, "{max_used} bytes");
    assert_eq!(succeeded(&cable, &mut a), COUNT);
    assert_eq!(free(&cable.gb), all);
}

/// The responder drops packets after a packet that has found no receive.
#[test]
fn packets_behind_one_without_a_receive_take_no_memory() {
    let cable = Cable::new(43, Faults::default());
    let (mut a, mut b) = cable.connected(deep(), |attr| attr.rnr_retry = 7);
    let all = free(&cable.gb);
    lose_first(&cable);
    a.post_send(&Wr::new(Opcode::Send, &[a.sge(0, 40_000)]));
    let mut held = false;
    cable.run_until(|| {
        held |= free(&cable.gb) < all;
        held && free(&cable.gb) == all
    });
    assert!(held && free(&cable.gb) == all, "the frames have left");
    assert!(b.recv_cq.poll().is_none(), "nothing has been received");
    b.post_recv(1, &[b.sge(0, 40_000)]);
    cable.settle();
    assert_eq!(b.recv_cq.poll().map(|cqe| cqe.byte_len.get()), Some(40_000));
}

#[test]
fn queue_pairs_work_without_memory_for_more_than_a_few_work_requests() {
    let cable = Cable::new(44, Faults::default());
    let tune = |attr: &mut Attr| (attr.retry_cnt, attr.max_rd_atomic) = (7, 8);
    let limited = |attr: &mut Attr| {
        tune(attr);
        attr.max_dest_rd_atomic = 8;
    };
    let taken = [take_all(&cable.ga), take_all(&cable.gb)];
    let (mut a, mut b) = cable.connected(deep(), limited);
    let left = [free(&cable.ga), free(&cable.gb)];
    let mut count = 0;
    cable.links[0].borrow_mut().rule(move |_| {
        count += 1;
        if count % 37 == 0 { Fate::Drop } else { Fate::Pass }
    });
    post_writes(&mut a, &b, 5000);
    assert_eq!(succeeded(&cable, &mut a), COUNT);
    b.post_recv(1, &[b.sge(0, 100_000)]);
    let send = Wr::new(Opcode::Send, &[a.sge(0, 100_000)]);
    assert_eq!(status(&cable.complete(&mut a, &send)), Status::Success);
    assert_eq!([free(&cable.ga), free(&cable.gb)], left, "nothing was taken");
    drop(taken);
}
