//! A fault of one VMM or one function affects that function only.
//!
//! Shows: hostile

use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::Signal;
use vrnic_abi::eq::Kind;
use vrnic_abi::regs::{self, FatalCode, Status};
use vrnic_abi::sq::Opcode;
use vrnic_abi::uar::ARM_NEXT;
use vrnic_testdriver::memory::{BASE, Ram};
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::vmm::daemon::Daemon;
use vrnic_testdriver::vmm::vfio::Guest;
use vrnic_testdriver::wr::Wr;

use crate::common::{connected, start_with, still_works};

/// Returns two pairs of guests, which are all served by one worker.
fn two_pairs(args: &[&str]) -> (Daemon, [Guest; 2], [Guest; 2]) {
    let daemon = start_with(4, &[&["--workers", "1"], args].concat());
    let pair = |first| [first, first + 1].map(|at| daemon.ready_guest(at));
    let (bad, good) = (pair(0), pair(2));
    (daemon, bad, good)
}

/// Closes a guest's Ethernet connection and waits until its function has noticed.
fn unplug(guest: &Guest) {
    let cable = guest.cable.lock();
    cable.as_ref().expect("a netdev").shutdown(Shutdown::Both).expect("shutdown");
    guest.wait_status("link down", |status| !status.contains(Status::LINK_UP));
}

/// Returns an eventfd on which write() blocks.
fn full_eventfd() -> OwnedFd {
    let event = eventfd(0, EventfdFlags::CLOEXEC).expect("eventfd");
    rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).expect("write");
    event
}

#[test]
fn an_eventfd_that_would_block_stops_nobody() {
    let (mut daemon, bad, good) = two_pairs(&[]);
    let [mut a, mut b] = connected(&bad, Setup::default());
    let [mut c, d] = connected(&good, Setup::default());
    let full = full_eventfd();
    for vector in [0, Setup::default().vector] {
        bad[1].assign(vector, full.as_raw_fd());
    }
    // The worker raises one of the vectors, the change of the link the other one.
    b.recv_cq.arm(ARM_NEXT);
    b.post_recv(1, &[]);
    a.post_send(&Wr::new(Opcode::Send, &[]));
    let event = b.events.wait();
    assert_eq!(event, (Kind::Completion, b.recv_cq.cqn));
    still_works(&mut c, &d);
    unplug(&bad[1]);
    assert_eq!(bad[1].wait_event(), (Kind::PortDown, 1));
    unplug(&good[1]);
    // Commands raise a vector, too, and each command is answered.
    assert!(bad[1].caps().max_qp.get() > 0);
    let len = bad[1].ram().len();
    bad[1].with_client(|client| client.dma_unmap(BASE, len)).expect("DMA_UNMAP");
    bad.iter().for_each(|guest| guest.reset());
    daemon.check();
    assert!(daemon.stop(Signal::TERM).success());
}

/// The VMM truncates its memory file while other guests write to the memory: its function fails,
/// and no other function is affected.
#[test]
fn memory_that_is_cut_off_ends_its_function_alone() {
    let mut daemon = start_with(4, &["--workers", "1"]);
    let ready = |at| daemon.ready_guest(at);
    let ram = Arc::new(Ram::unsealed(64 << 20));
    let lost = daemon.ready_guest_with(1, Arc::clone(&ram));
    let bad = [ready(0), lost];
    let good = [ready(2), ready(3)];
    let [mut a, b] = connected(&bad, Setup::default());
    let [mut c, d] = connected(&good, Setup::default());
    still_works(&mut a, &b);
    let write = Wr::new(Opcode::Write, &[a.sge(0, 1 << 20)]).to(b.buffer, b.key);
    (0..8).for_each(|_| a.post_send(&write));
    ram.truncate(0);
    a.post_send(&write);
    bad[1].wait_status("FATAL", |status| status.contains(Status::FATAL));
    assert_eq!(bad[1].register(regs::FATAL_CODE), FatalCode::Internal as u32);
    daemon.wait_for_log("memory of the guest was truncated");
    still_works(&mut c, &d);
    assert!(bad[0].caps().max_qp.get() > 0);
    // While the memory is truncated, a reset does not help. With other memory the function works
    // again.
    bad[1].reset();
    bad[1].wait_status("FATAL", |status| status.contains(Status::FATAL));
    let [first, lost] = bad;
    drop((a, b, lost));
    let next = [first, daemon.ready_guest(1)];
    let [mut a, b] = connected(&next, Setup::default());
    still_works(&mut a, &b);
    daemon.check();
}
