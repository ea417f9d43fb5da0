//! TCP connections of QPs (iWARP) between adapters of one daemon: their messages are copied in
//! memory, and have the same effects as messages in segments.
//!
//! Shows: iwarp

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use vrnic_abi::connection::{Ending, Stage};
use vrnic_abi::cq::Status;
use vrnic_abi::qp::State;
use vrnic_abi::sq::Opcode;
use vrnic_adapter::ethernet::Frame;
use vrnic_adapter::watch::{Exchanged, Sender, Watcher};
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{ALL, Setup};
use vrnic_testdriver::stream;
use vrnic_testdriver::wr::{Wr, sge};

use crate::bus::{Endpoint, Guest};
use crate::memory::keys::{alloc_mr, reg, reg_seg};
use crate::network::streams::ends::{MS, ending, open, stage};
use crate::network::streams::{expect_immediate, pattern};
use crate::world::World;

/// Counts the frames that adapters send.
#[derive(Debug, Default)]
pub(crate) struct Counter(pub(crate) AtomicUsize);

impl Watcher for Counter {
    fn leaving(&self, _from: &Sender<'_>, frames: &mut Vec<Frame>) {
        self.0.fetch_add(frames.len(), Ordering::Relaxed);
    }
    fn arriving(&self, _function: &str, _frame: &Frame, _note: Option<String>) {}
    fn wants(&self, _functions: [&str; 2], _length: u64) -> bool {
        false
    }
    fn exchanged(&self, _functions: [&str; 2], _message: Exchanged) {}
    fn datagram(&self, _from: &str, _to: Option<&str>, _frame: Frame) {}
}

/// A daemon with two guests.
pub(crate) struct Daemon {
    pub(crate) world: World,
    pub(crate) guests: [Guest; 2],
    frames: Arc<Counter>,
}

impl Daemon {
    pub(crate) fn new(packets: bool) -> Self {
        let world = World::copying();
        if packets {
            world.fabric.use_packets_only();
        }
        let frames = Arc::new(Counter::default());
        world.fabric.watch.attach(Arc::clone(&frames) as Arc<dyn Watcher>);
        world.fabric.watch.want_all(true);
        let guests = [world.guest(1), world.guest(2)];
        Self { world, guests, frames }
    }

    /// Returns two ends of a connection. The second end is on the guest with this number.
    fn ends(&self, second: usize) -> (Endpoint, Endpoint) {
        let end = |guest| Endpoint::new(&self.guests[guest], Setup::default());
        (end(0), end(second))
    }

    /// Returns two ends of an open connection.
    pub(crate) fn connected(&self) -> (Endpoint, Endpoint) {
        let (a, b) = self.ends(1);
        stream::connect_pair(&a, &b);
        self.pass(2 * MS);
        assert_eq!((stage(&a), stage(&b)), (Stage::Open, Stage::Open));
        (a, b)
    }

    fn now(&self) -> u64 {
        self.world.clock.load(Ordering::Acquire)
    }

    /// Returns the number of frames that were sent so far.
    pub(crate) fn frames(&self) -> usize {
        self.frames.0.load(Ordering::Relaxed)
    }

    /// Runs the adapters, and moves the clock by this time.
    pub(crate) fn pass(&self, time: u64) {
        let end = self.now() + time;
        loop {
            let polls = self.guests.each_ref().map(|guest| guest.adapter.poll(0));
            if polls.iter().any(|polled| polled.busy) {
                continue;
            }
            if self.now() >= end {
                return;
            }
            let next = polls
                .iter()
                .filter_map(|polled| polled.deadline)
                .map(|at| at.0)
                .min()
                .unwrap_or(end);
            self.world.clock.fetch_max(next.min(end), Ordering::AcqRel);
        }
    }

    /// Posts a work request. Returns the status of its completion.
    pub(crate) fn complete(&self, on: &mut Endpoint, wr: &Wr) -> Status {
        on.post_send(wr);
        self.pass(0);
        status(&on.send_cq.poll().expect("a completion"))
    }
}

#[test]
fn paired_ends_send_no_probes() {
    for packets in [false, true] {
        let daemon = Daemon::new(packets);
        let idle = Some(Duration::from_secs(5));
        daemon.guests.iter().for_each(|guest| guest.adapter.set_keepalive(idle));
        let (a, b) = daemon.connected();
        daemon.pass(1000 * MS);
        let before = daemon.frames();
        daemon.pass(100_000 * MS);
        assert_eq!(
            (daemon.frames() > before, stage(&a), stage(&b)),
            (packets, Stage::Open, Stage::Open)
        );
        let deadlines = daemon.guests.each_ref().map(|guest| guest.adapter.poll(0).deadline);
        assert!(deadlines.iter().all(|at| at.is_some() == packets), "{deadlines:?}");
    }
}

/// A READ can invalidate the key of its sink when its data has arrived, however many turns that
/// takes.
#[test]
fn reads_invalidate_the_key_of_their_sink() {
    const LEN: usize = 900_000;
    let daemon = Daemon::new(false);
    let setup = Setup { kernel: true, ..Setup::default() };
    let end = |guest: usize| Endpoint::new(&daemon.guests[guest], setup);
    let (mut a, b) = (end(0), end(1));
    stream::connect_pair(&a, &b);
    daemon.pass(2 * MS);
    let before = daemon.frames();
    let pages: Vec<u64> = (0..LEN.div_ceil(4096) as u64).map(|n| a.buffer + n * 4096).collect();
    let key = alloc_mr(&a.guest, a.pdn, pages.len() as u32);
    let register = reg(key, 0x5000, &reg_seg(&a.guest, &pages, LEN as u64, ALL));
    let data = pattern(LEN, 1);
    b.fill(0, &data);
    let read = |opcode, len| Wr::new(opcode, &[sge(0x5000, len, key)]).to(b.buffer, b.key);
    for round in 0..3 {
        assert_eq!(daemon.complete(&mut a, &register), Status::Success);
        a.fill(0, &vec![0; LEN]);
        // The first READ is outstanding when the second one is posted.
        a.post_send(&read(Opcode::Read, LEN as u32).id(round));
        a.post_send(&read(Opcode::ReadInv, LEN as u32).id(round + 10));
        a.post_send(
            &Wr::new(Opcode::Write, &[]).inline(b"x").to(b.buffer + 4, b.key).id(round + 20),
        );
        daemon.pass(0);
        for id in [round, round + 10, round + 20] {
            a.send_cq.expect(id, Status::Success);
        }
        assert!(a.bytes(0, LEN) == data);
        b.fill(0, &data);
    }
    assert_eq!(daemon.frames(), before, "the messages were copied");
    assert_eq!(daemon.complete(&mut a, &read(Opcode::Read, 8)), Status::LocProtErr);
}

/// A READ of a paired connection fails if the key of its sink cannot be invalidated.
#[test]
fn reads_invalidate_no_other_keys() {
    let daemon = Daemon::new(false);
    let (mut a, b) = daemon.connected();
    let read = Wr::new(Opcode::ReadInv, &[a.sge(0, 8)]).to(b.buffer, b.key);
    assert_eq!(daemon.complete(&mut a, &read), Status::MwBindErr);
}

/// Runs every operation in both directions. Checks that no frame is sent.
fn every_operation(daemon: &Daemon, mut a: Endpoint, mut b: Endpoint) {
    let before = daemon.frames();
    for turn in 0..2 {
        for (seed, len) in [0, 1, 63, 1442, 65_536, 100_001].into_iter().enumerate() {
            let data = pattern(len, seed + turn);
            a.fill(3, &data);
            let here = [a.sge(3, len as u32)];
            let write = Wr::new(Opcode::Write, &here).to(b.buffer + 5, b.key);
            assert_eq!(daemon.complete(&mut a, &write), Status::Success, "WRITE of {len}");
            let sink = [a.sge(200_000, len as u32)];
            let read = Wr::new(Opcode::Read, &sink).to(b.buffer + 5, b.key);
            assert_eq!(daemon.complete(&mut a, &read), Status::Success, "READ of {len}");
            assert_eq!((&b.bytes(5, len), &a.bytes(200_000, len)), (&data, &data));
            b.post_recv(7, &[b.sge(300_000, 200_000)]);
            let send = Wr::new(Opcode::Send, &here);
            assert_eq!(daemon.complete(&mut a, &send), Status::Success, "SEND of {len}");
            let got = b.recv_cq.poll().expect("the receive");
            assert_eq!((status(&got), got.byte_len.get()), (Status::Success, len as u32));
            assert_eq!(b.bytes(300_000, len), data);
            b.fill(5, &vec![0; len]);
            b.post_recv(8, &[]);
            let write = Wr::new(Opcode::WriteImm, &here).imm(*b"news").to(b.buffer + 5, b.key);
            assert_eq!(daemon.complete(&mut a, &write), Status::Success, "immediate, {len}");
            expect_immediate(&b.recv_cq.poll().expect("the receive"), len);
            assert_eq!(b.bytes(5, len), data);
        }
        b.fill(64, &40u64.to_le_bytes());
        let add = Wr::new(Opcode::FetchAdd, &[a.sge(8, 8)]).atomic(2, 0).to(b.buffer + 64, b.key);
        assert_eq!(daemon.complete(&mut a, &add), Status::Success);
        assert_eq!((a.bytes(8, 1), b.bytes(64, 1)), (vec![40], vec![42]));
        (a, b) = (b, a);
    }
    daemon.pass(2000 * MS);
    assert_eq!(daemon.frames(), before);
    assert_eq!((stage(&a), stage(&b)), (Stage::Open, Stage::Open));
}

#[test]
fn messages_within_a_daemon_are_copied() {
    let daemon = Daemon::new(false);
    let (a, b) = daemon.connected();
    every_operation(&daemon, a, b);
}

/// The next connection of two QPs that were reset is paired, too.
#[test]
fn qps_that_were_reset_are_paired_again() {
    let daemon = Daemon::new(false);
    let (mut a, mut b) = daemon.connected();
    for round in 0..3 {
        let write = Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key);
        a.fill(0, &[round; 8]);
        let before = daemon.frames();
        assert_eq!(daemon.complete(&mut a, &write), Status::Success, "{round}");
        assert_eq!((b.bytes(0, 8), daemon.frames()), (vec![round; 8], before));
        a.set_state(State::Err);
        daemon.pass(2 * MS);
        [&mut a, &mut b].into_iter().for_each(|end| end.set_state(State::Reset));
        stream::connect_pair(&a, &b);
        daemon.pass(2 * MS);
    }
    every_operation(&daemon, a, b);
}

#[test]
fn a_guest_can_be_connected_with_itself() {
    let daemon = Daemon::new(false);
    let (a, b) = daemon.ends(0);
    stream::connect_pair(&a, &b);
    daemon.pass(2 * MS);
    every_operation(&daemon, a, b);
}

/// The adapter takes over the responder's end when its program has accepted the request, which the
/// guest's kernel has sent to itself. The request that the adapter sends has no receiver until
/// then.
#[test]
fn a_guest_may_take_seconds_to_accept_itself() {
    let daemon = Daemon::new(false);
    let (a, b) = daemon.ends(0);
    let mac = daemon.guests[0].mac();
    open(&a, 0, mac, |_| {});
    daemon.pass(5000 * MS);
    assert_eq!(stage(&a), Stage::Opening);
    assert!(daemon.frames() > 1, "the request is sent again");
    open(&b, 1, mac, |_| {});
    daemon.pass(2 * MS);
    assert_eq!((stage(&a), stage(&b)), (Stage::Open, Stage::Open));
    every_operation(&daemon, a, b);
}

#[test]
fn frames_carry_messages_if_the_daemon_says_so() {
    let daemon = Daemon::new(true);
    let (mut a, b) = daemon.connected();
    let before = daemon.frames();
    let write = Wr::new(Opcode::Write, &[a.sge(0, 100)]).to(b.buffer, b.key);
    a.post_send(&write);
    daemon.pass(10 * MS);
    assert_eq!(status(&a.send_cq.poll().expect("a completion")), Status::Success);
    assert!(daemon.frames() > before);
}

#[test]
fn work_that_is_posted_early_is_done() {
    let daemon = Daemon::new(false);
    let (mut a, mut b) = daemon.ends(1);
    open(&a, 0, b.guest.mac(), |_| {});
    let there = Wr::new(Opcode::Write, &[a.sge(0, 100)]).to(b.buffer, b.key);
    let back = Wr::new(Opcode::Write, &[b.sge(500, 100)]).to(a.buffer + 500, a.key);
    a.post_send(&there);
    daemon.pass(5 * MS);
    open(&b, 1, a.guest.mac(), |_| {});
    b.post_send(&back);
    daemon.pass(5 * MS);
    let done = [&mut a, &mut b].map(|end| end.send_cq.poll().as_ref().map(status));
    assert_eq!(done, [Some(Status::Success); 2]);
    every_operation(&daemon, a, b);
}

#[test]
fn ends_that_are_not_of_one_connection_are_not_paired() {
    // With another sequence number or another address, the connection never opens.
    for fault in 0..3 {
        let daemon = Daemon::new(false);
        let (mut a, mut b) = daemon.ends(1);
        open(&a, 0, b.guest.mac(), |_| {});
        open(&b, 1, a.guest.mac(), |connection| match fault {
            0 => connection.receive_next = 77.into(),
            1 => connection.send_next = 77.into(),
            _ => connection.remote[3] = 9,
        });
        a.fill(0, &[7; 100]);
        a.post_send(&Wr::new(Opcode::Write, &[a.sge(0, 100)]).to(b.buffer, b.key));
        b.post_send(&Wr::new(Opcode::Write, &[b.sge(0, 100)]).to(a.buffer, a.key));
        daemon.pass(11_000 * MS);
        assert_eq!((stage(&a), b.bytes(0, 100)), (Stage::Gone, vec![0; 100]), "{fault}");
        let done = [&mut a, &mut b].map(|end| end.send_cq.poll().as_ref().map(status));
        assert_eq!(done, [Some(Status::WrFlushErr); 2]);
    }
}

#[test]
fn limits_of_reads_are_those_of_the_agreement() {
    for (ird, expected) in [(0, Status::LocQpOpErr), (1, Status::Success)] {
        let daemon = Daemon::new(false);
        let (mut a, b) = daemon.ends(1);
        open(&a, 0, b.guest.mac(), |_| {});
        open(&b, 1, a.guest.mac(), |connection| connection.ird = ird.into());
        daemon.pass(5 * MS);
        let read = Wr::new(Opcode::Read, &[a.sge(0, 100)]).to(b.buffer, b.key);
        assert_eq!(daemon.complete(&mut a, &read), expected);
    }
}

#[test]
fn a_peer_whose_link_is_down_is_waited_for() {
    let daemon = Daemon::new(false);
    let (mut a, b) = daemon.connected();
    b.guest.adapter.set_link(false);
    a.fill(0, &[9; 100]);
    a.post_send(&Wr::new(Opcode::Write, &[a.sge(0, 100)]).to(b.buffer, b.key));
    daemon.pass(3000 * MS);
    assert!(a.send_cq.poll().is_none() && stage(&a) == Stage::Open);
    b.guest.adapter.set_link(true);
    daemon.pass(5000 * MS);
    assert_eq!(a.send_cq.poll().as_ref().map(status), Some(Status::Success));
    assert_eq!((b.bytes(0, 100), stage(&a)), (vec![9; 100], Stage::Open));
    // The link does not come back.
    b.guest.adapter.set_link(false);
    a.post_send(&Wr::new(Opcode::Write, &[a.sge(0, 100)]).to(b.buffer, b.key));
    daemon.pass(3_600_000 * MS);
    assert_eq!(a.send_cq.poll().as_ref().map(status), Some(Status::WrFlushErr));
    assert_eq!((stage(&a), ending(&a)), (Stage::Gone, Ending::TimedOut));
}

/// A work request that is posted before either adapter has looked at the connection is executed.
#[test]
fn a_work_request_may_be_posted_at_once() {
    for packets in [false, true] {
        let daemon = Daemon::new(packets);
        let (mut a, b) = daemon.ends(1);
        stream::connect_pair(&a, &b);
        a.fill(0, b"at once!");
        a.post_send(&Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key));
        daemon.pass(100 * MS);
        let done = a.send_cq.poll().expect("a completion");
        assert_eq!(
            (status(&done), b.bytes(0, 8)),
            (Status::Success, b"at once!".to_vec()),
            "{packets}"
        );
    }
}
