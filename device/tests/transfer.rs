//! Operations between two functions of one daemon, checked to the byte.

mod common;

use common::{pair, pattern, start, start_with};
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::sq::{Flags, Opcode};
use vrnic_abi::uar::{ARM_NEXT, ARM_SOLICITED};
use vrnic_testdriver::endpoint::{ALL_ACCESS, Endpoint, EndpointSetup};
use vrnic_testdriver::qp::Send;

/// Both kinds of send queue.
fn setups() -> [EndpointSetup; 2] {
    let guest = EndpointSetup {
        buffer: 8 << 20,
        ..EndpointSetup::default()
    };
    [
        guest,
        EndpointSetup {
            in_device: true,
            ..guest
        },
    ]
}

#[test]
fn writes_and_reads_move_every_byte() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    for setup in setups() {
        let [mut a, b] = guests
            .each_ref()
            .map(|guest| Endpoint::new(guest, &setup).expect("endpoint"));
        Endpoint::connect(&a, &b).expect("connect");
        for (len, from, to) in [
            (0, 0, 0),
            (1, 3, 5),
            (8, 0, 0),
            (63, 1, 2),
            (4096, 4095, 1),
            (65_537, 7, 4093),
            (4 << 20, 1, 0),
        ] {
            let data = pattern(len, 1);
            a.fill(from, &data).expect("fill");
            b.fill(to, &vec![0; len + 1]).expect("clear");
            let write = Send::new(Opcode::Write, 1)
                .sges(&[a.sge(from, len as u32)])
                .remote(b.buffer + to, b.key);
            a.run_expecting(&write, 1, Status::Success).expect("WRITE");
            assert!(
                b.bytes(to, len).expect("bytes") == data,
                "WRITE of {len} bytes"
            );
            assert_eq!(
                b.bytes(to + len as u64, 1).expect("byte"),
                [0],
                "beyond {len} bytes"
            );
            let back = pattern(len, 2);
            b.fill(to, &back).expect("fill");
            let read = Send::new(Opcode::Read, 2)
                .sges(&[a.sge(from, len as u32)])
                .remote(b.buffer + to, b.key);
            let cqe = a.run_expecting(&read, 2, Status::Success).expect("READ");
            assert_eq!(cqe.byte_len.get(), len as u32);
            assert!(
                a.bytes(from, len).expect("bytes") == back,
                "READ of {len} bytes"
            );
        }
    }
    daemon.check().expect("healthy");
}

#[test]
fn atomics_give_the_old_value_and_change_the_memory() {
    let daemon = start(2);
    let guests = pair(&daemon);
    for setup in setups() {
        let [mut a, b] = guests
            .each_ref()
            .map(|guest| Endpoint::new(guest, &setup).expect("endpoint"));
        Endpoint::connect(&a, &b).expect("connect");
        b.fill(64, &40u64.to_le_bytes()).expect("fill");
        let old = |a: &Endpoint<'_>| a.bytes(8, 8).expect("bytes");
        let now = || b.bytes(64, 8).expect("bytes");
        let wr = |opcode, swap, compare| {
            Send::new(opcode, 9)
                .operands(swap, compare)
                .sges(&[a.sge(8, 8)])
                .remote(b.buffer + 64, b.key)
        };
        let steps = [
            (wr(Opcode::FetchAdd, 2, 0), 40, 42),
            (wr(Opcode::CmpSwp, 7, 42), 42, 7),
            (wr(Opcode::CmpSwp, 9, 42), 7, 7),
            (wr(Opcode::FetchAdd, u64::MAX, 0), 7, 6),
        ];
        for (wr, before, after) in steps {
            a.run_expecting(&wr, 9, Status::Success).expect("atomic");
            assert_eq!(old(&a), u64::to_le_bytes(before));
            assert_eq!(now(), u64::to_le_bytes(after));
        }
    }
}

/// Two functions, each on a worker of its own, and a processor add to one word; nothing is lost.
#[test]
fn atomics_of_both_sides_and_the_processor_add_up() {
    const EACH: u64 = 1000;
    let daemon = start_with(2, &["--workers", "2"]);
    let guests = pair(&daemon);
    let setup = EndpointSetup::default();
    let [mut a, b] = guests
        .each_ref()
        .map(|guest| Endpoint::new(guest, &setup).expect("endpoint"));
    Endpoint::connect(&a, &b).expect("connect");
    // Guest b reaches its own word through a pair of QPs inside.
    let [mut c, d] = [0, 1].map(|_| Endpoint::new(&guests[1], &setup).expect("endpoint"));
    Endpoint::connect(&c, &d).expect("connect");
    let word = b.buffer;
    let inner = guests[1]
        .reg_flat(d.pdn, ALL_ACCESS, word, 4096)
        .expect("region");
    let add = |from: &mut Endpoint<'_>, key| {
        let add = Send::new(Opcode::FetchAdd, 1)
            .operands(1, 0)
            .sges(&[from.sge(8, 8)])
            .remote(word, key);
        from.run_expecting(&add, 1, Status::Success)
            .expect("atomic");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let at = b.guest.ram.word64(word).expect("word");
            for _ in 0..EACH * 100 {
                at.fetch_add(1).expect("writable");
            }
        });
        scope.spawn(|| (0..EACH).for_each(|_| add(&mut c, inner)));
        (0..EACH).for_each(|_| add(&mut a, b.key));
    });
    assert_eq!(b.bytes(0, 8).expect("bytes"), (102 * EACH).to_le_bytes());
}

#[test]
fn armed_queues_raise_one_interrupt_and_solicited_ones_wait() {
    let daemon = start(2);
    let guests = pair(&daemon);
    let setup = EndpointSetup {
        vector: 3,
        ..EndpointSetup::default()
    };
    let [mut a, mut b] = guests
        .each_ref()
        .map(|guest| Endpoint::new(guest, &setup).expect("endpoint"));
    Endpoint::connect(&a, &b).expect("connect");
    for wr_id in 0..3 {
        b.qp.post_recv(b.guest, wr_id, &[b.sge(0, 64)])
            .expect("receive");
    }
    let plain = Send::new(Opcode::Send, 1).inline(b"x");
    a.run_expecting(&plain, 1, Status::Success).expect("SEND");
    assert_eq!(
        b.guest.interrupts(3).expect("vector"),
        0,
        "an interrupt for a CQ that is not armed"
    );
    // The completion that is there already is not seen yet: the event is due at once.
    b.recv_cq.arm(b.guest, ARM_NEXT).expect("arm");
    b.guest.wait_interrupt(3).expect("interrupt");
    let event = b.events.wait(b.guest).expect("event");
    assert_eq!(event, (Kind::Completion, b.recv_cq.cqn));
    b.recv_cq
        .expect(b.guest, 0, Status::Success)
        .expect("receive");
    // A plain message does not fire a queue armed for solicited ones.
    b.recv_cq.arm(b.guest, ARM_SOLICITED).expect("arm");
    a.run_expecting(&plain, 1, Status::Success).expect("SEND");
    b.recv_cq
        .expect(b.guest, 1, Status::Success)
        .expect("receive");
    assert_eq!(b.events.poll(b.guest).expect("poll"), None);
    let solicited = plain
        .clone()
        .edit(|head| head.flags |= Flags::SOLICITED.bits());
    a.run_expecting(&solicited, 1, Status::Success)
        .expect("SEND");
    let event = b.events.wait(b.guest).expect("event");
    assert_eq!(event, (Kind::Completion, b.recv_cq.cqn));
    b.guest.wait_interrupt(3).expect("interrupt");
}

/// A worker that sleeps as often as it can misses no doorbell and no arm request.
#[test]
fn no_kick_is_lost() {
    let mut daemon = start_with(2, &["--spin", "0", "--sleep", "0"]);
    let guests = pair(&daemon);
    let setup = EndpointSetup::default();
    let [mut a, b] = guests
        .each_ref()
        .map(|guest| Endpoint::new(guest, &setup).expect("endpoint"));
    Endpoint::connect(&a, &b).expect("connect");
    let write = Send::new(Opcode::Write, 1)
        .inline(b"12345678")
        .remote(b.buffer, b.key);
    let mut slow = 0;
    for round in 0u32..3000 {
        let start = std::time::Instant::now();
        a.qp.post_send(a.guest, &write).expect("post");
        let cqe = loop {
            if let Some(cqe) = a.send_cq.poll(a.guest).expect("poll") {
                break cqe;
            }
            std::hint::spin_loop();
        };
        assert_eq!(cqe.status, 0);
        // A lost kick costs a fifth of a second; a loaded machine may cost that too, but not often.
        slow += u32::from(start.elapsed().as_millis() >= 190);
        // Some posts fall into the moment of falling asleep.
        (0..round % 512).for_each(|_| std::hint::spin_loop());
    }
    assert!(slow <= 2, "{slow} of 3000 posts waited for a time-out");
    let kicks = a.guest.kicks.load(std::sync::atomic::Ordering::Relaxed);
    assert!(kicks > 100, "the worker never slept: {kicks} kicks");
    daemon.check().expect("healthy");
}
