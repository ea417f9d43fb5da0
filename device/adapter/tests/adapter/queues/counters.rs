//! Counters: each event moves exactly the counters that are named for it, by the exact number.
//!
//! Shows: views

use std::collections::BTreeMap;

use vrnic_abi::admin::{
    BindCounters, Counter, OPTIONAL_NAMES, Opcode as Admin, OptionalCounter, OptionalStats,
    QueryCounters, QueryParams, STAT_NAMES, Stats, Status as Refusal, SwitchCounter, command,
};
use vrnic_abi::cq::Status;
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;
use zerocopy::{FromBytes, IntoBytes};

use crate::bus::Guest;
use crate::world::{Pair, by_packets};

type Moved = BTreeMap<&'static str, u64>;

/// The first of the counters that are about queues and the adapter's own work.
const FIRST_OF_ADAPTER: &str = "cqes";

/// Returns all counters about messages.
fn read(guest: &Guest) -> Moved {
    named(&guest.stats()).collect()
}

/// Returns the counters about messages with their names.
fn named(stats: &Stats) -> impl Iterator<Item = (&'static str, u64)> {
    let values = stats.as_bytes().chunks_exact(8).map(|word| {
        let word: [u8; 8] = word.try_into().expect("8 bytes");
        u64::from_le_bytes(word)
    });
    STAT_NAMES.into_iter().zip(values).take_while(|(name, _)| *name != FIRST_OF_ADAPTER)
}

/// Returns the changes of both guests' counters while `work` ran.
fn moved(p: &mut Pair, work: impl FnOnce(&mut Pair)) -> [Moved; 2] {
    let before = [read(&p.ga), read(&p.gb)];
    work(p);
    let mut after = [read(&p.ga), read(&p.gb)];
    for (after, before) in after.iter_mut().zip(&before) {
        for (name, value) in after.iter_mut() {
            *value = value.checked_sub(before[name]).expect("a counter went down");
        }
        after.retain(|_, value| *value != 0);
    }
    after
}

fn map(counts: &[(&'static str, u64)]) -> Moved {
    counts.iter().copied().collect()
}

/// Returns a pair with a path MTU of 1,024 bytes. Uses memory copies: then the counters say how
/// many packets the messages would be. Over packets they count the real packets, which include
/// answers and packets that are sent again.
fn pair() -> Pair {
    Pair::local(Setup::default(), |attr| {
        (attr.path_mtu, attr.min_rnr_timer, attr.rnr_retry) = (3, 14, 1);
    })
}

fn succeeds(p: &mut Pair, wr: &Wr) {
    assert_eq!(status(&p.complete(wr)), Status::Success);
}

#[test]
fn messages_count_as_packets_of_the_path_mtu() {
    let mut p = pair();
    let send = |p: &mut Pair| {
        p.b.post_recv(1, &[p.b.sge(0, 5000)]);
        succeeds(p, &Wr::new(Opcode::Send, &[p.a.sge(0, 3000)]));
    };
    let out = [("tx_send_req", 1), ("tx_pkts", 3), ("tx_bytes", 3000)];
    let arrived = [("rx_send_req", 1), ("rx_pkts", 3), ("rx_bytes", 3000), ("recv_wrs", 1)];
    assert_eq!(moved(&mut p, send), [map(&out), map(&arrived)]);

    let write = |p: &mut Pair| {
        succeeds(p, &Wr::new(Opcode::Write, &[p.a.sge(0, 1024)]).to(p.b.buffer, p.b.key));
        succeeds(p, &Wr::new(Opcode::Write, &[]).to(p.b.buffer, p.b.key));
    };
    let out = [("tx_write_req", 2), ("tx_pkts", 2), ("tx_bytes", 1024)];
    let arrived = [("rx_write_requests", 2), ("rx_pkts", 2), ("rx_bytes", 1024)];
    assert_eq!(moved(&mut p, write), [map(&out), map(&arrived)]);
}

#[test]
fn responses_go_the_other_way() {
    let mut p = pair();
    let read = |p: &mut Pair| {
        // Longer than a turn moves.
        succeeds(p, &Wr::new(Opcode::Read, &[p.a.sge(0, 3 << 20)]).to(p.b.buffer, p.b.key));
    };
    let back = 3 << 20;
    let asks = [("tx_read_req", 1), ("tx_pkts", 1), ("rx_pkts", back / 1024), ("rx_bytes", back)];
    let answers =
        [("rx_read_requests", 1), ("rx_pkts", 1), ("tx_pkts", back / 1024), ("tx_bytes", back)];
    assert_eq!(moved(&mut p, read), [map(&asks), map(&answers)]);

    let atomic = |p: &mut Pair| {
        let wr = Wr::new(Opcode::FetchAdd, &[p.a.sge(0, 8)]).to(p.b.buffer, p.b.key);
        succeeds(p, &Wr { atomic: Some((1, 0)), ..wr });
    };
    let asks = [("tx_atomic_req", 1), ("tx_pkts", 1), ("rx_pkts", 1), ("rx_bytes", 8)];
    let answers = [("rx_atomic_requests", 1), ("rx_pkts", 1), ("tx_pkts", 1), ("tx_bytes", 8)];
    assert_eq!(moved(&mut p, atomic), [map(&asks), map(&answers)]);
}

#[test]
fn a_receiver_that_is_not_ready() {
    let mut p = pair();
    let work = |p: &mut Pair| {
        p.run(&Wr::new(Opcode::Send, &[p.a.sge(0, 8)]));
        // The time of RNR timer code 14.
        p.world.advance(1_280_000);
        p.settle();
        assert_eq!(status(&p.sent().expect("completion")), Status::RnrRetryExcErr);
    };
    let asks = [
        ("tx_send_req", 1),
        ("rnr_nak_retry_err", 1),
        ("retry_rnr_exceeded_err", 1),
        ("req_cqe_error", 1),
    ];
    let answers = [("send_rnr_err", 2), ("out_of_buffer", 2)];
    assert_eq!(moved(&mut p, work), [map(&asks), map(&answers)]);
}

#[test]
fn a_peer_that_does_not_answer() {
    let mut p = Pair::local(Setup::default(), |attr| (attr.timeout, attr.retry_cnt) = (10, 2));
    let work = |p: &mut Pair| {
        p.gb.adapter.set_link(false);
        p.run(&Wr::new(Opcode::Write, &[p.a.sge(0, 8)]).to(p.b.buffer, p.b.key));
        for _ in 0..2 {
            p.world.advance(4096 << 10);
            p.settle();
        }
        assert_eq!(status(&p.sent().expect("completion")), Status::RetryExcErr);
        // One work request of each queue is flushed.
        p.a.post_recv(1, &[]);
        p.run(&Wr::new(Opcode::Send, &[]));
        p.world.advance(1_000_000_000);
        p.settle();
    };
    let asks = [
        ("tx_write_req", 1),
        ("local_ack_timeout_err", 3),
        ("retry_exceeded_err", 1),
        ("req_cqe_error", 1),
        ("req_cqe_flush_error", 1),
        ("resp_cqe_flush_error", 1),
        ("recv_wrs", 1),
    ];
    assert_eq!(moved(&mut p, work), [map(&asks), map(&[("link_downed", 1)])]);
}

#[test]
fn requests_that_are_refused() {
    type Case = (fn(&mut Pair) -> Wr, Status, &'static str, &'static [(&'static str, u64)]);
    let cases: [Case; 5] = [
        (
            |p| Wr::new(Opcode::Write, &[p.a.sge(0, 8)]).to(p.b.buffer, p.b.key ^ 1),
            Status::RemAccessErr,
            "req_remote_access_errors",
            &[("resp_remote_access_errors", 1)],
        ),
        (
            |p| {
                let wr = Wr::new(Opcode::FetchAdd, &[p.a.sge(0, 8)]).to(p.b.buffer + 4, p.b.key);
                Wr { atomic: Some((1, 0)), ..wr }
            },
            Status::RemInvReqErr,
            "req_remote_invalid_request",
            &[("resp_remote_invalid_request", 1)],
        ),
        (
            |p| {
                p.b.post_recv(1, &[p.b.sge(0, 4)]);
                Wr::new(Opcode::Send, &[p.a.sge(0, 8)])
            },
            Status::RemInvReqErr,
            "req_remote_invalid_request",
            &[("resp_local_length_error", 1), ("resp_cqe_error", 1), ("recv_wrs", 1)],
        ),
        (
            |p| {
                let mut place = p.a.sge(0, 8);
                place.lkey = (p.a.key ^ 1).into();
                Wr::new(Opcode::Write, &[place]).to(p.b.buffer, p.b.key)
            },
            Status::LocProtErr,
            "local_protection_err",
            &[],
        ),
        (
            |p| Wr::new(Opcode::FetchAdd, &[p.a.sge(0, 4)]).to(p.b.buffer, p.b.key),
            Status::LocLenErr,
            "local_qp_op_err",
            &[],
        ),
    ];
    for (wr, want, asks, answers) in cases {
        let mut p = Pair::new();
        let [mut a, mut b] = moved(&mut p, |p| {
            let wr = wr(p);
            assert_eq!(status(&p.complete(&wr)), want);
        });
        // A WQE that is refused locally counts as no request. Over packets, the refused request and
        // the NAK count as packets.
        a.retain(|name, _| !(name.starts_with("tx_") || by_packets() && name.ends_with("_pkts")));
        b.retain(|name, _| !by_packets() || !name.ends_with("_pkts") && !name.ends_with("_bytes"));
        assert_eq!((a, b), (map(&[(asks, 1), ("req_cqe_error", 1)]), map(answers)), "{want:?}");
    }
}

#[test]
fn counters_begin_again_with_a_reset() {
    let mut p = pair();
    let wr = Wr::new(Opcode::Write, &[p.a.sge(0, 64)]).to(p.b.buffer, p.b.key);
    succeeds(&mut p, &wr);
    assert_ne!(p.ga.stats().tx_pkts.get(), 0);
    p.ga.adapter.reset();
    p.ga.bring_up();
    assert_eq!(read(&p.ga).values().sum::<u64>(), 0);
    assert_ne!(p.gb.stats().rx_pkts.get(), 0);
}

/// Creates a set of counters that counts the work of a QP.
fn counted(guest: &Guest, qpn: u32) -> u32 {
    let set = guest.command::<command::CreateCounters>(&()).expect("CREATE_COUNTERS").get();
    bind(guest, qpn, set).expect("BIND_COUNTERS");
    set
}

fn bind(guest: &Guest, qpn: u32, set: u32) -> Result<(), Refused> {
    guest.command::<command::BindCounters>(&BindCounters::new(qpn, set))
}

/// Returns the counters of a set that are not zero.
fn of_set(guest: &Guest, set: u32) -> Moved {
    let addr = guest.ram().alloc(1 << 12);
    let params = QueryCounters::new(addr, size_of::<Stats>() as u32, set);
    guest.command::<command::QueryCounters>(&params).expect("QUERY_COUNTERS");
    let bytes = guest.ram().read(addr, size_of::<Stats>());
    let stats = Stats::read_from_bytes(&bytes).expect("as long as it");
    named(&stats).filter(|(_, value)| *value != 0).collect()
}

/// A set counts the work of its QPs, and the guest's counters of the function do not contain it.
/// The operator's do, also when the set is gone.
///
/// Shows: views: sets of counters for the work of some queue pairs
#[test]
fn a_set_counts_the_work_of_its_qps() {
    let mut p = pair();
    let write = Wr::new(Opcode::Write, &[p.a.sge(0, 3000)]).to(p.b.buffer, p.b.key);
    succeeds(&mut p, &write);
    let total = |guest: &Guest| guest.adapter.stats().get(Counter::TxWriteReq);
    let set = counted(&p.ga, p.a.qpn);
    let [a, b] = moved(&mut p, |p| (0..2).for_each(|_| succeeds(p, &write)));
    assert_eq!((a, b["rx_write_requests"]), (map(&[]), 2));
    let counts = of_set(&p.ga, set);
    assert_eq!((counts["tx_write_req"], counts["tx_bytes"]), (2, 6000));
    assert_eq!((read(&p.ga)["tx_write_req"], total(&p.ga)), (1, 3));

    assert_eq!(of_set(&p.ga, 0)["tx_write_req"], 3, "all work");

    // The responder's work, for a set of its own guest.
    let theirs = counted(&p.gb, p.b.qpn);
    bind(&p.ga, p.a.qpn, 0).expect("no set");
    let [a, b] = moved(&mut p, |p| succeeds(p, &write));
    assert_eq!((a["tx_write_req"], b), (1, map(&[])));
    assert_eq!(of_set(&p.gb, theirs)["rx_write_requests"], 1);
    assert_eq!(of_set(&p.ga, set), counts, "a set without a QP");

    p.ga.command::<command::DestroyCounters>(&set.into()).expect("DESTROY_COUNTERS");
    assert_eq!((read(&p.ga)["tx_write_req"], total(&p.ga)), (2, 4), "the kernel adds the set's");
}

#[test]
fn sets_of_counters_are_objects() {
    let p = pair();
    let guest = &p.ga;
    let missing = Err(Refused(Refusal::NotFound, 0));
    assert_eq!(bind(guest, p.a.qpn, 1), missing);
    let set = counted(guest, p.a.qpn);
    assert_eq!(bind(guest, 0x999, set), missing);
    let destroy = |set: u32| guest.command::<command::DestroyCounters>(&set.into());
    assert_eq!(destroy(set), Err(Refused(Refusal::Busy, 0)));
    let more: Vec<_> = std::iter::from_fn(|| guest.command::<command::CreateCounters>(&()).ok())
        .take(2000)
        .collect();
    assert_eq!(more.len(), 1023, "the maximum is 1,024");
    more.into_iter().for_each(|set| destroy(set.get()).expect("without a QP"));
    guest.on_object(Admin::DestroyQp, p.a.qpn).expect("DESTROY_QP");
    assert_eq!((destroy(set), destroy(set)), (Ok(()), missing));
    let query = |query| guest.command::<command::QueryCounters>(&query).err();
    assert_eq!(query(QueryCounters::new(8u64, 64, set)), missing.err());
    assert_eq!(query(QueryCounters::new(9u64, 64, set)), Some(Refused(Refusal::BadParam, 0)));
}

/// Returns the optional counters that are not zero.
fn optional(guest: &Guest) -> Moved {
    let addr = guest.ram().alloc(1 << 12);
    let params = QueryParams::new(addr, size_of::<OptionalStats>() as u32);
    guest.command::<command::QueryOptional>(&params).expect("QUERY_OPTIONAL");
    let words = guest.ram().read(addr, size_of::<OptionalStats>());
    let values = words.chunks_exact(8).map(|word| {
        let word: [u8; 8] = word.try_into().expect("8 bytes");
        u64::from_le_bytes(word)
    });
    OPTIONAL_NAMES.into_iter().zip(values).filter(|(_, value)| *value != 0).collect()
}

fn switch(guest: &Guest, counter: OptionalCounter, on: bool) {
    let params = SwitchCounter::new(counter as u32, on);
    guest.command::<command::SwitchCounter>(&params).expect("SWITCH_COUNTER");
}

/// An optional counter counts only while it is on, and from zero. A set does not take work from it.
#[test]
fn optional_counters_count_while_they_are_on() {
    let mut p = pair();
    let write = Wr::new(Opcode::Write, &[p.a.sge(0, 3000)]).to(p.b.buffer, p.b.key);
    let read = Wr::new(Opcode::Read, &[p.a.sge(0, 100)]).to(p.b.buffer, p.b.key);
    succeeds(&mut p, &write);
    assert_eq!(optional(&p.ga), map(&[]));

    switch(&p.ga, OptionalCounter::TxWriteBytes, true);
    switch(&p.ga, OptionalCounter::TxMsgs4k, true);
    counted(&p.ga, p.a.qpn);
    (0..2).for_each(|_| succeeds(&mut p, &write));
    succeeds(&mut p, &read);
    let counts = map(&[("tx_write_bytes", 6000), ("tx_msgs_4k", 2)]);
    assert_eq!((optional(&p.ga), optional(&p.gb)), (counts.clone(), map(&[])));
    switch(&p.ga, OptionalCounter::TxWriteBytes, true);
    assert_eq!(optional(&p.ga), counts, "it was on");

    switch(&p.ga, OptionalCounter::TxWriteBytes, false);
    switch(&p.ga, OptionalCounter::TxReadBytes, true);
    switch(&p.ga, OptionalCounter::TxMsgs256, true);
    succeeds(&mut p, &write);
    succeeds(&mut p, &read);
    let counts = map(&[("tx_read_bytes", 100), ("tx_msgs_256", 1), ("tx_msgs_4k", 3)]);
    assert_eq!(optional(&p.ga), counts);
    switch(&p.ga, OptionalCounter::TxWriteBytes, true);
    assert_eq!(optional(&p.ga), counts, "it counts from zero");

    p.ga.adapter.reset();
    p.ga.bring_up();
    assert_eq!(optional(&p.ga), map(&[]));
}

#[test]
fn only_optional_counters_can_be_switched() {
    let p = pair();
    let switch = |index, on: u32| {
        let params = SwitchCounter { on: on.into(), ..SwitchCounter::new(index, true) };
        p.ga.command::<command::SwitchCounter>(&params)
    };
    let bad = |offset| Err(Refused(Refusal::BadParam, offset));
    assert_eq!(switch(OPTIONAL_NAMES.len() as u32, 1), bad(0));
    assert_eq!(switch(u32::MAX, 0), bad(0));
    assert_eq!(switch(0, 2), bad(4));
}
