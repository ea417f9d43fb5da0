//! Direct transfers of QPs with TCP connections (iWARP): to another daemon, and within a daemon, by
//! packets and by memory copies.
//!
//! Shows: direct

use vrnic_abi::admin::{ArmRange, Opcode as Admin, command};
use vrnic_abi::cq::Status;
use vrnic_abi::direct::{Direction, MARK_FAILED, RANGE_LEN};
use vrnic_abi::qp::State;
use vrnic_abi::sq::Opcode;
use vrnic_adapter::memory::tpt::Denied;
use vrnic_simlink::Faults;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::stream;
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, Guest};
use crate::cable::Cable;
use crate::direct::blocks::{by_block, window, window_sge};
use crate::direct::marks::within;
use crate::direct::{MS, PACKETS, arm, armed, packet, pattern, read, state, store, until};
use crate::network::streams::pairs::Daemon;

/// Two ends of a connection, and the function that lets time pass until they have no more work.
struct Ends<'a> {
    guest: &'a Guest,
    a: Endpoint,
    b: Endpoint,
    settle: &'a dyn Fn(),
}

impl Ends<'_> {
    /// Posts a work request, and runs all adapters.
    fn run(&mut self, wr: &Wr) {
        self.a.post_send(wr);
        (self.settle)();
    }

    fn read(&self, range: u32, len: u32) -> Wr {
        Wr::new(Opcode::Read, &[packet(&self.a, range, len)]).to(self.b.buffer, self.b.key)
    }

    fn write(&self, range: u32, len: u32) -> Wr {
        Wr::new(Opcode::Write, &[packet(&self.a, range, len)]).to(self.b.buffer, self.b.key)
    }

    /// Returns the identifiers, statuses and causes of the completions since the last call.
    fn done(&mut self) -> Vec<(u64, Status, u32)> {
        let all = std::iter::from_fn(|| self.a.send_cq.poll());
        all.map(|cqe| (cqe.wr_id.get(), status(&cqe), cqe.vendor_err.get())).collect()
    }
}

/// Runs a test with three connections: between two daemons, in a daemon by memory copies, and in a
/// daemon by packets.
fn in_each_way(run: impl Fn(&mut Ends<'_>)) {
    let cable = Cable::new(1, Faults::default());
    let [a, b] = [&cable.ga, &cable.gb].map(|guest| Endpoint::new(guest, Setup::default()));
    stream::connect_pair(&a, &b);
    let settle = || {
        let until = cable.now() + 500 * MS;
        cable.run_until(|| cable.now() >= until);
    };
    run(&mut Ends { guest: &cable.ga, a, b, settle: &settle });
    for packets in [false, true] {
        let daemon = Daemon::new(packets);
        let (a, b) = daemon.connected();
        let settle = || daemon.pass(50 * MS);
        let mut ends = Ends { guest: &daemon.guests[0], a, b, settle: &settle };
        let write = ends.write(0, 8);
        ends.run(&write);
        assert_eq!(ends.done(), [(1, Status::Success, 0)]);
        let before = daemon.frames();
        ends.run(&write);
        assert_eq!(ends.done(), [(1, Status::Success, 0)]);
        assert_eq!(daemon.frames() > before, packets, "whether the messages are packets");
        run(&mut ends);
    }
}

/// Transfers through blocks: a message begins when all of its bytes are there.
#[test]
fn connections_carry_messages_that_name_ranges() {
    in_each_way(|ends| {
        ends.guest.command::<command::SetWindow>(&window(&ends.a, 2)).expect("SET_WINDOW");
        let armed = |ends: &Ends<'_>, range, direction, length| {
            let params = ArmRange {
                time_limit_ms: 10_000.into(),
                ..by_block(&ends.a, range, direction, length)
            };
            arm(ends.guest, &params).expect("ARM_RANGE");
        };
        let data = pattern(RANGE_LEN, 7);
        armed(ends, 0, Direction::Write, RANGE_LEN);
        armed(ends, 1, Direction::Write, 100);
        let list = [window_sge(0, 0, RANGE_LEN), window_sge(1, 0, 100)];
        let write = Wr::new(Opcode::Write, &list).to(ends.b.buffer, ends.b.key).id(2);
        ends.a.store_send(&write);
        ends.a.store_send(&until(0));
        ends.run(&until(1));
        store(ends.guest, 0, 0, &data);
        (ends.settle)();
        assert_eq!(ends.done(), []);
        store(ends.guest, 1, 0, &data[..100]);
        (ends.settle)();
        assert_eq!(ends.done(), [2, 100, 101].map(|id| (id, Status::Success, 0)));
        assert!(ends.b.bytes(0, 4196) == [&data[..], &data[..100]].concat());

        armed(ends, 0, Direction::Read, RANGE_LEN);
        armed(ends, 1, Direction::Read, 100);
        let read_all = Wr::new(Opcode::Read, &list).to(ends.b.buffer, ends.b.key).id(3);
        ends.a.store_send(&read_all);
        ends.a.store_send(&until(1));
        ends.run(&until(0));
        assert_eq!(ends.done(), [(3, Status::Success, 0)]);
        assert_eq!(read(ends.guest, 1, 0, 100).as_deref(), Ok(&data[..100]));
        assert!(read(ends.guest, 0, 0, RANGE_LEN).as_deref() == Ok(&data[..]));
        (ends.settle)();
        assert_eq!(ends.done(), [101, 100].map(|id| (id, Status::Success, 0)));
    });
}

/// A range of a message fails before the message begins.
#[test]
fn a_connection_fails_with_a_range_of_its_message() {
    in_each_way(|ends| {
        ends.guest.command::<command::SetWindow>(&window(&ends.a, 1)).expect("SET_WINDOW");
        arm(ends.guest, &by_block(&ends.a, 0, Direction::Write, 64)).expect("ARM_RANGE");
        let list = [window_sge(0, 0, 64)];
        let write = Wr::new(Opcode::Write, &list).to(ends.b.buffer, ends.b.key).id(2);
        ends.a.store_send(&write);
        let before = ends.b.bytes(0, 64);
        store(ends.guest, 0, 60, &[7; 5]);
        ends.run(&until(0));
        let overrun = Denied::Overrun as u32;
        let expected = [(2, Status::LocProtErr, overrun), (100, Status::WrFlushErr, 0)];
        assert_eq!(ends.done(), expected);
        assert_eq!((ends.b.bytes(0, 64), ends.a.state()), (before, State::Err));
    });
}

/// Transfers that wait for marks instead of ranges.
#[test]
fn connections_wait_for_marks() {
    in_each_way(|ends| {
        for mark in 1..4 {
            ends.a.fill(PACKETS, &pattern(64, mark));
            let brings = ends.read(1, 64).id(3);
            ends.a.store_send(&brings);
            ends.a.store_send(&within(10_000, 0, mark));
            let write = ends.write(0, 64).id(2);
            ends.run(&write);
            assert_eq!(ends.done(), [(3, Status::Success, 0)]);
            ends.a.mark(0, mark);
            ends.a.ring();
            (ends.settle)();
            assert_eq!(ends.done(), [(200, Status::Success, 0), (2, Status::Success, 0)]);
            assert_eq!(ends.b.bytes(0, 64), pattern(64, mark));
        }
        ends.run(&within(10_000, 1, 1));
        ends.a.mark(1, 1 | MARK_FAILED);
        ends.guest.adapter.beat();
        (ends.settle)();
        assert_eq!(ends.done(), [(201, Status::MwBindErr, Denied::Ended as u32)]);
    });
}
#[test]
fn connections_carry_transfers_in_both_directions() {
    in_each_way(|ends| {
        for round in 0..3 {
            let data = pattern(RANGE_LEN, round);
            armed(&ends.a, 0, Direction::Write, RANGE_LEN);
            ends.run(&until(0));
            let write = ends.write(0, RANGE_LEN).id(2);
            ends.run(&write);
            for (nth, piece) in data.chunks(1000).enumerate() {
                assert_eq!(ends.done(), []);
                store(ends.guest, 0, nth as u32 * 1000, piece);
                (ends.settle)();
            }
            assert_eq!(ends.done(), [(100, Status::Success, 0), (2, Status::Success, 0)]);
            assert!(ends.b.bytes(0, data.len()) == data);

            armed(&ends.a, 1, Direction::Read, RANGE_LEN);
            assert!(read(ends.guest, 1, 0, 8).is_err());
            let brings = ends.read(1, RANGE_LEN).id(3);
            // Posts READ and TRANSFER at once: the READ is outstanding when the adapter takes the
            // TRANSFER.
            ends.a.store_send(&brings);
            ends.run(&until(1));
            assert_eq!(ends.done(), [(3, Status::Success, 0)]);
            assert_eq!(read(ends.guest, 1, 0, 4000).as_deref(), Ok(&data[..4000]));
            (ends.settle)();
            assert_eq!(ends.done(), []);
            assert_eq!(read(ends.guest, 1, 4000, 96).as_deref(), Ok(&data[4000..]));
            (ends.settle)();
            assert_eq!(ends.done(), [(101, Status::Success, 0)]);
        }
    });
}

/// A burst that is too long. The WRITE after TRANSFER does not reach the other end.
#[test]
fn a_transfer_that_fails_ends_its_connection() {
    in_each_way(|ends| {
        armed(&ends.a, 0, Direction::Write, 64);
        ends.run(&until(0));
        let write = ends.write(0, 64).id(2);
        ends.run(&write);
        let before = ends.b.bytes(0, 64);
        store(ends.guest, 0, 0, &[7; 63]);
        store(ends.guest, 0, 60, &[7; 5]);
        (ends.settle)();
        let overrun = Denied::Overrun as u32;
        let expected = [(100, Status::MwBindErr, overrun), (2, Status::WrFlushErr, 0)];
        assert_eq!(ends.done(), expected);
        assert_eq!((ends.b.bytes(0, 64), ends.a.state()), (before, State::Err));
        armed(&ends.a, 0, Direction::Write, 1);
    });
}

/// The peer ends the connection, or the driver closes it, with data in the window. A range
/// whose TRANSFER was flushed has no owner.
#[test]
fn nothing_is_left_of_transfers_when_their_connection_ends() {
    let ends: [fn(&mut Ends<'_>); 3] = [
        |ends| ends.b.set_state(State::Err),
        |ends| ends.a.set_state(State::Err),
        |ends| assert_eq!(ends.b.guest.on_object(Admin::DestroyQp, ends.b.qpn), Ok(0)),
    ];
    for end in ends {
        in_each_way(|ends| {
            for range in 0..2 {
                armed(&ends.a, range, Direction::Write, 64);
                ends.a.store_send(&until(range));
                let write = ends.write(range, 64).id(2);
                ends.run(&write);
            }
            store(ends.guest, 0, 0, b"a part");
            end(ends);
            (ends.settle)();
            let flushed = [100, 2, 101, 2].map(|id| (id, Status::WrFlushErr, 0));
            assert_eq!(ends.done(), flushed);
            for range in 0..2 {
                store(ends.guest, range, 0, &[9; 64]);
                let at = PACKETS + u64::from(range * RANGE_LEN);
                assert_ne!(ends.a.bytes(at, 1), [9], "the range has no owner");
                assert_eq!(state(ends.guest, range), (0, 0, 0));
            }
        });
    }
}

/// A graceful close waits for a transfer in progress, and for the WRITE after it.
#[test]
fn a_connection_that_closes_waits_for_its_transfer() {
    in_each_way(|ends| {
        armed(&ends.a, 0, Direction::Write, 64);
        ends.a.store_send(&until(0));
        let write = ends.write(0, 64).id(2);
        ends.run(&write);
        ends.a.set_state(State::Sqd);
        // The clock is not moved, because a close may take only 5 s.
        while ends.guest.adapter.poll(0).busy {}
        assert_eq!(ends.done(), []);
        store(ends.guest, 0, 0, &[7; 64]);
        (ends.settle)();
        assert_eq!(ends.done(), [(100, Status::Success, 0), (2, Status::Success, 0)]);
        assert_eq!(ends.b.bytes(0, 64), [7; 64]);
    });
}
