//! Operations between two functions of one daemon. Each byte is checked.
//!
//! Shows: data

use std::sync::atomic::Ordering;
use std::time::Duration;

use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::sq::{Flags, Opcode};
use vrnic_abi::uar::{ARM_NEXT, ARM_SOLICITED};
use vrnic_testdriver::qp::{ALL, Setup};
use vrnic_testdriver::vmm::vfio::Endpoint;
use vrnic_testdriver::wr::Wr;

use crate::common::{Span, connected, pair, start, start_with, write_and_read};

/// Returns setups with both kinds of send queue.
fn setups() -> [Setup; 2] {
    [false, true].map(|in_device| Setup { in_device, ..Setup::default() })
}

#[test]
fn writes_and_reads_move_every_byte() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    for setup in setups() {
        let [mut a, b] = connected(&guests, setup);
        for (len, from, to) in [
            (0, 0, 0),
            (1, 3, 5),
            (8, 0, 0),
            (63, 1, 2),
            (4096, 4095, 1),
            (65_537, 7, 4093),
            (4 << 20, 1, 0),
        ] {
            write_and_read(&mut a, &b, Span { len, from, to });
        }
    }
    daemon.check();
}

#[test]
fn atomics_give_the_old_value_and_change_the_memory() {
    let daemon = start(2);
    let guests = pair(&daemon);
    for setup in setups() {
        let [mut a, b] = connected(&guests, setup);
        b.fill(64, &40u64.to_le_bytes());
        let old = |a: &Endpoint| a.bytes(8, 8);
        let now = || b.bytes(64, 8);
        let wr = |opcode, swap, compare| {
            Wr::new(opcode, &[a.sge(8, 8)]).atomic(swap, compare).to(b.buffer + 64, b.key)
        };
        let steps = [
            (wr(Opcode::FetchAdd, 2, 0), 40, 42),
            (wr(Opcode::CmpSwp, 7, 42), 42, 7),
            (wr(Opcode::CmpSwp, 9, 42), 7, 7),
            (wr(Opcode::FetchAdd, u64::MAX, 0), 7, 6),
        ];
        for (wr, before, after) in steps {
            a.run_expecting(&wr, Status::Success);
            assert_eq!(old(&a), u64::to_le_bytes(before));
            assert_eq!(now(), u64::to_le_bytes(after));
        }
    }
}

/// Two functions, each on its own worker, and a processor add to the same word. No addition is
/// lost.
#[test]
fn atomics_of_both_sides_and_the_processor_add_up() {
    const EACH: u64 = 1000;
    let daemon = start_with(2, &["--workers", "2"]);
    let guests = pair(&daemon);
    let [mut a, b] = connected(&guests, Setup::default());
    // Guest b adds to its own word through a pair of QPs in the guest.
    let [mut c, d] = [0, 1].map(|_| Endpoint::new(&guests[1], Setup::default()));
    Endpoint::connect_pair(&c, &d);
    let word = b.buffer;
    let inner = guests[1].reg_flat(d.pdn, ALL, word, 4096).expect("region");
    let add = |from: &mut Endpoint, key| {
        let add = Wr::new(Opcode::FetchAdd, &[from.sge(8, 8)]).atomic(1, 0).to(word, key);
        from.run_expecting(&add, Status::Success);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let at = b.guest.ram().word64(word);
            for _ in 0..EACH * 100 {
                at.fetch_add(1, Ordering::SeqCst);
            }
        });
        scope.spawn(|| (0..EACH).for_each(|_| add(&mut c, inner)));
        (0..EACH).for_each(|_| add(&mut a, b.key));
    });
    assert_eq!(b.bytes(0, 8), (102 * EACH).to_le_bytes());
}

#[test]
fn armed_queues_raise_one_interrupt_and_solicited_ones_wait() {
    let daemon = start(2);
    let guests = pair(&daemon);
    let setup = Setup { vector: 3, ..Setup::default() };
    let [mut a, mut b] = connected(&guests, setup);
    for wr_id in 0..3 {
        b.post_recv(wr_id, &[b.sge(0, 64)]);
    }
    let plain = Wr::new(Opcode::Send, &[]).inline(b"x");
    a.run_expecting(&plain, Status::Success);
    assert_eq!(b.guest.interrupts(3), 0, "an interrupt for a CQ that is not armed");
    // The program has not seen the completion that is there already: the event is due at once.
    b.recv_cq.arm(ARM_NEXT);
    b.guest.wait_interrupt(3);
    let event = b.events.wait();
    assert_eq!(event, (Kind::Completion, b.recv_cq.cqn));
    b.recv_cq.expect(0, Status::Success);
    // A message that is not solicited raises no event of a queue that is armed for solicited ones.
    b.recv_cq.arm(ARM_SOLICITED);
    a.run_expecting(&plain, Status::Success);
    b.recv_cq.expect(1, Status::Success);
    assert_eq!(b.events.poll(), None);
    let solicited = plain.flags(Flags::SIGNALED | Flags::SOLICITED);
    a.run_expecting(&solicited, Status::Success);
    let event = b.events.wait();
    assert_eq!(event, (Kind::Completion, b.recv_cq.cqn));
    b.guest.wait_interrupt(3);
}

/// A worker that sleeps as often as it can misses no doorbell and no arm request.
#[test]
fn no_kick_is_lost() {
    let mut daemon = start_with(2, &["--spin", "0", "--sleep", "0"]);
    let guests = pair(&daemon);
    let [mut a, b] = connected(&guests, Setup::default());
    let write = Wr::new(Opcode::Write, &[]).inline(b"12345678").to(b.buffer, b.key);
    let mut slow = 0;
    for round in 0u32..3000 {
        let start = std::time::Instant::now();
        a.post_send(&write);
        let cqe = loop {
            if let Some(cqe) = a.send_cq.poll() {
                break cqe;
            }
            std::hint::spin_loop();
        };
        assert_eq!(cqe.status, 0);
        // A lost kick costs a fifth of a second. A loaded machine may cause such delays, too, but
        // rarely.
        slow += u32::from(start.elapsed().as_millis() >= 190);
        // Some posts come while the worker falls asleep. Before some posts it is asleep for sure,
        // even if other programs use the processors.
        if round.is_multiple_of(16) {
            std::thread::sleep(Duration::from_millis(1));
        }
        (0..round % 512).for_each(|_| std::hint::spin_loop());
    }
    assert!(slow <= 2, "{slow} of 3000 posts waited for a time-out");
    let kicks = a.guest.kicks.load(Ordering::Relaxed);
    assert!(kicks > 100, "the worker never slept: {kicks} kicks");
    daemon.check();
}
