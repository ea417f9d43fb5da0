//! Keys of messages in TCP connections (iWARP).
//!
//! Shows: iwarp

use vrnic_abi::admin::{MrFlags, Pages, QpFlags, RegMr, TagForm, command};
use vrnic_abi::connection::{Ending, Stage};
use vrnic_abi::cq::{self, Status};
use vrnic_abi::qp::{Access, State};
use vrnic_abi::sq::{CommandFlags, Opcode};
use vrnic_simlink::Faults;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{ALL, Setup};
use vrnic_testdriver::stream;
use vrnic_testdriver::wr::{Wr, sge};

use crate::bus::Endpoint;
use crate::cable::Cable;
use crate::memory::commands::command;
use crate::memory::keys::{alloc_mr, local_inv, reg, reg_seg};
use crate::network::streams::ends::{MS, ending, stage};
use crate::network::streams::pairs::Daemon;
use crate::network::streams::{connected, pattern};

/// A READ can invalidate the key of its sink. It must have exactly one sink.
#[test]
fn reads_invalidate_the_key_of_their_sink() {
    let cable = Cable::new(9, Faults::default());
    let setup = Setup { kernel: true, ..Setup::default() };
    let (mut a, b) = (Endpoint::new(&cable.ga, setup), Endpoint::new(&cable.gb, setup));
    stream::connect_pair(&a, &b);
    let key = alloc_mr(&cable.ga, a.pdn, 1);
    let register = reg(key, 0x5000, &reg_seg(&cable.ga, &[a.buffer], 4096, ALL));
    let data = pattern(3000, 1);
    b.fill(0, &data);
    let read = |opcode| Wr::new(opcode, &[sge(0x5000, 3000, key)]).to(b.buffer, b.key);
    for _ in 0..3 {
        assert_eq!(status(&cable.complete(&mut a, &register)), Status::Success);
        a.fill(0, &[0; 3000]);
        for opcode in [Opcode::Read, Opcode::ReadInv] {
            let cqe = cable.complete(&mut a, &read(opcode));
            assert_eq!((status(&cqe), cqe.byte_len.get()), (Status::Success, 3000));
        }
        assert_eq!(a.bytes(0, 3000), data);
    }
    let ended = cable.complete(&mut a, &read(Opcode::Read));
    assert_eq!(status(&ended), Status::LocProtErr);
}

/// A READ fails if it has no sink or several, or if the key of its sink cannot be invalidated.
#[test]
fn reads_invalidate_no_other_keys() {
    for (sinks, failure) in
        [(2, Status::LocQpOpErr), (0, Status::LocQpOpErr), (1, Status::MwBindErr)]
    {
        let cable = Cable::new(10, Faults::default());
        let (mut a, b) = connected(&cable);
        let sinks: Vec<_> = (0..sinks).map(|_| a.sge(0, 8)).collect();
        let read = Wr::new(Opcode::ReadInv, &sinks).to(b.buffer, b.key);
        assert_eq!(status(&cable.complete(&mut a, &read)), failure);
    }
}

#[test]
fn a_key_for_one_message_serves_one_read_whose_answer_is_sent_again() {
    let cable = Cable::new(8, Faults::all(20_000));
    let (mut a, b) = connected(&cable);
    let params = RegMr {
        flags: MrFlags::ONE_TOUCH.bits().into(),
        ..RegMr::new(b.pdn, ALL, b.buffer, 1 << 20, Pages::new(b.buffer, 12, 0))
    };
    let key = b.guest.command::<command::RegMr>(&params).expect("a key").get();
    let data = pattern(300_000, 1);
    b.fill(0, &data);
    let read = Wr::new(Opcode::Read, &[a.sge(0, 300_000)]).to(b.buffer, key);
    assert_eq!(status(&cable.complete(&mut a, &read)), Status::Success);
    assert_eq!(a.bytes(0, 300_000), data);
    assert_eq!(status(&cable.complete(&mut a, &read)), Status::RemAccessErr);
}

/// Commands carry their keys, whether messages are copied or travel in the connection. The peer
/// uses their data until it responds.
#[test]
fn a_connection_carries_commands() {
    for (packets, place) in [(false, 0), (true, 0), (true, 1419), (true, 1421), (true, 2996)] {
        let daemon = Daemon::new(packets);
        let tags = (TagForm::General, 2);
        let mut a = Endpoint::new(&daemon.guests[0], Setup { tags, ..Setup::default() });
        let mut b = Endpoint::new(&daemon.guests[1], Setup::default());
        stream::connect_pair(&a, &b);
        daemon.pass(2 * MS);
        a.fill(1000, b"data to read");
        a.fill(20_000, &[9; 3000]);
        b.post_recv(1, &[b.sge(0, 4096)]);
        let data = [a.sge(1000, 12), a.sge(5000, 100)];
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let wr = Wr {
            inline: None,
            sges: vec![a.sge(20_000, 3000)],
            ..command(&data, &[], place, access.bits(), CommandFlags::empty())
        };
        a.post_send(&wr);
        daemon.pass(MS);
        let key = a.send_cq.expect(1, Status::Success).key.get();
        b.recv_cq.expect(1, Status::Success);
        let (at, message) = (place as usize, b.bytes(0, 3000));
        assert_eq!(message[at..at + 4], key.to_be_bytes(), "at {place}");
        assert!([&message[..at], &message[at + 4..]].concat() == [9; 2996]);
        let read = Wr::new(Opcode::Read, &[b.sge(8000, 12)]).to(0, key);
        b.post_send(&read);
        b.post_send(&Wr::new(Opcode::Write, &[b.sge(0, 50)]).to(12, key).id(2));
        daemon.pass(MS);
        b.send_cq.expect(1, Status::Success);
        b.send_cq.expect(2, Status::Success);
        assert_eq!(
            (b.bytes(8000, 12), a.bytes(5000, 50)),
            (b"data to read".to_vec(), b.bytes(0, 50))
        );
        a.post_recv(7, &[a.sge(30_000, 64)]);
        let response = [&[1, 2][..], &key.to_be_bytes()].concat();
        b.post_send(&Wr::new(Opcode::Send, &[]).inline(&response).id(3));
        daemon.pass(MS);
        b.send_cq.expect(3, Status::Success);
        let cqe = a.recv_cq.expect(7, Status::Success);
        assert_eq!((cqe.flags.get(), cqe.key.get()), (cq::Flags::INVALIDATED.bits(), key));
        b.post_send(&read);
        daemon.pass(MS);
        b.send_cq.expect(1, Status::RemAccessErr);
    }
}

/// Reactive failure: a refused request stops only the send queue. The connection still carries the
/// peer's messages, and the program can start the queue again.
#[test]
fn a_refused_request_of_a_reactive_qp_leaves_the_stream_alone() {
    for packets in [false, true] {
        let daemon = Daemon::new(packets);
        let setup = Setup { flags: QpFlags::REACTIVE, ..Setup::default() };
        let [mut a, mut b] = [0, 1].map(|guest: usize| Endpoint::new(&daemon.guests[guest], setup));
        stream::connect_pair(&a, &b);
        daemon.pass(2 * MS);
        a.post_recv(80, &[a.sge(0, 100)]);
        let write = Wr::new(Opcode::Write, &[a.sge(0, 64)]).to(b.buffer, b.key);
        a.post_send(&write.clone().id(1));
        a.post_send(&local_inv(0x7f_0000).id(2));
        a.post_send(&write.clone().id(3));
        daemon.pass(MS);
        for (id, expected) in
            [(1, Status::Success), (2, Status::MwBindErr), (3, Status::WrFlushErr)]
        {
            a.send_cq.expect(id, expected);
        }
        // Longer than a connection in the error state may take to end.
        daemon.pass(60_000 * MS);
        assert_eq!([a.state(), b.state()], [State::Sqe, State::Rts], "packets: {packets}");
        assert_eq!([stage(&a), stage(&b)], [Stage::Open; 2], "packets: {packets}");
        b.fill(0, &pattern(64, 3));
        let send = Wr::new(Opcode::Send, &[b.sge(0, 64)]);
        let back = Wr::new(Opcode::Write, &[b.sge(0, 64)]).to(a.buffer + 4096, a.key);
        let read = Wr::new(Opcode::Read, &[b.sge(4096, 64)]).to(a.buffer + 4096, a.key);
        for request in [send, back, read] {
            b.post_send(&request);
            daemon.pass(100 * MS);
            assert_eq!(status(&b.send_cq.poll().expect("a completion")), Status::Success);
        }
        a.recv_cq.expect(80, Status::Success);
        for bytes in [a.bytes(0, 64), a.bytes(4096, 64), b.bytes(4096, 64)] {
            assert_eq!(bytes, pattern(64, 3));
        }
        a.post_send(&write.clone().id(4));
        daemon.pass(MS);
        a.send_cq.expect(4, Status::WrFlushErr);
        a.set_state(State::Rts);
        a.post_send(&write.id(5));
        daemon.pass(100 * MS);
        a.send_cq.expect(5, Status::Success);
    }
}

/// Anticipatory failure: a Terminate tells the peer of the failure.
#[test]
fn a_refused_request_of_another_qp_ends_both_ends() {
    for packets in [false, true] {
        let daemon = Daemon::new(packets);
        let (mut a, b) = daemon.connected();
        a.post_send(&local_inv(0x7f_0000));
        daemon.pass(10 * MS);
        assert_eq!(status(&a.send_cq.poll().expect("a completion")), Status::MwBindErr);
        assert_eq!([a.state(), b.state()], [State::Err; 2], "packets: {packets}");
        assert_eq!(ending(&b), Ending::TerminateReceived);
    }
}
