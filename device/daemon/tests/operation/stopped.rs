//! A daemon that is stopped while its guests end.
//!
//! Shows: daemon: a daemon that was stopped writes no memory of guests that have left

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::memory::Ram;
use vrnic_testdriver::qp::{ALL, Setup};
use vrnic_testdriver::vmm::daemon::Daemon;
use vrnic_testdriver::wait;
use vrnic_testdriver::wr::{Wr, sge};

use crate::common;
use crate::common::{connected, start};

/// Length of each message.
const LEN: u32 = 128 << 20;
/// Number of messages, so that one is in progress when the daemon is stopped.
const MESSAGES: usize = 32;
/// Time for which the daemon is stopped. Drivers consider an adapter dead after 5 s without a
/// heartbeat.
const STOPPED: Duration = Duration::from_secs(5);
/// The bytes that the messages write, and the bytes that the next owner of the memory writes.
const SENT: u8 = 0xaa;
const OWNED: u8 = 0x5c;

/// Sends a signal to the daemon.
fn signal(daemon: &Daemon, signal: Signal) {
    let pid = Pid::from_raw(daemon.pid().cast_signed()).expect("a process");
    kill_process(pid, signal).expect("a signal");
}

/// Returns whether all threads of the daemon are stopped.
fn is_stopped(daemon: &Daemon) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).expect("threads");
    tasks.flatten().all(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
    })
}

/// The guests end while the daemon is stopped in the middle of a message, and other processes use
/// their memory. Then the daemon goes on.
#[test]
fn memory_of_guests_that_have_left_is_not_written() {
    let daemon = start(2);
    let ram = Arc::new(Ram::new(1 << 30));
    let guests = [daemon.ready_guest(0), daemon.ready_guest_with(1, Arc::clone(&ram))];
    // The send queue has room for all messages.
    let [mut a, b] = connected(&guests, Setup { log_wqes: 5, ..Setup::default() });
    let [from, to] = guests.each_ref().map(|guest| guest.ram().alloc(LEN.into()));
    let lkey = guests[0].reg_flat(a.pdn, ALL, from, LEN.into()).expect("a region");
    let rkey = guests[1].reg_flat(b.pdn, ALL, to, LEN.into()).expect("a region");
    let bytes = |byte| vec![byte; LEN as usize];
    guests[0].ram().write(from, &bytes(SENT));
    ram.write(to, &bytes(0));
    for _ in 0..MESSAGES {
        a.post_send(&Wr::new(Opcode::Write, &[sge(from, LEN, lkey)]).to(to, rkey));
    }
    wait::until("the first bytes", || (ram.read(to, 1) == [SENT]).then_some(()));
    signal(&daemon, Signal::STOP);
    let stop = Instant::now();
    wait::until("the end of all threads' work", || is_stopped(&daemon).then_some(()));
    let done = std::iter::from_fn(|| a.send_cq.poll()).count();
    assert!(done < MESSAGES, "no message is in progress");
    drop((a, b, guests));
    ram.write(to, &bytes(OWNED));
    std::thread::sleep(STOPPED.saturating_sub(stop.elapsed()));
    signal(&daemon, Signal::CONT);
    wait::until("the end of both connections", || {
        (daemon.log().matches("VMM disconnected").count() == 2).then_some(())
    });
    let written = ram.read(to, LEN as usize).iter().filter(|byte| **byte != OWNED).count();
    assert_eq!(written, 0, "the daemon has written to memory of a guest that has left");
    // The daemon serves the next guest.
    let guests = [0, 1].map(|index| daemon.ready_guest(index));
    let [mut a, b] = connected(&guests, Setup::default());
    common::still_works(&mut a, &b);
}
