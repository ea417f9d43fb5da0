//! A fault of one VMM or one function affects that function only.

mod common;

use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use common::{connected_pair, start_with, still_works};
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::Signal;
use vrnic_abi::eq::Kind;
use vrnic_abi::regs::{self, FatalCode, Status};
use vrnic_abi::sq::Opcode;
use vrnic_abi::uar::ARM_NEXT;
use vrnic_testdriver::daemon::Daemon;
use vrnic_testdriver::guest::Guest;
use vrnic_testdriver::qp::Send;
use vrnic_testdriver::ram::{BASE, Ram};

/// Two pairs of guests, all of them served by one worker.
fn two_pairs(args: &[&str]) -> (Daemon, [Guest; 2], [Guest; 2]) {
    let daemon = start_with(4, &[&["--workers", "1"], args].concat());
    let pair = |first| [first, first + 1].map(|at| daemon.ready_guest(at).expect("bring-up"));
    let (bad, good) = (pair(0), pair(2));
    (daemon, bad, good)
}

/// Pulls the plug of a guest's Ethernet and waits until its function knows.
fn unplug(guest: &Guest) {
    let cable = guest.cable.as_ref().expect("a netdev");
    cable.shutdown(Shutdown::Both).expect("shutdown");
    guest.wait_status("link down", |status| !status.contains(Status::LINK_UP)).expect("link");
}

/// An eventfd that blocks whoever writes to it.
fn full_eventfd() -> OwnedFd {
    let event = eventfd(0, EventfdFlags::CLOEXEC).expect("eventfd");
    rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).expect("write");
    event
}

#[test]
fn an_eventfd_that_would_block_stops_nobody() {
    let (mut daemon, bad, good) = two_pairs(&[]);
    let [mut a, mut b] = connected_pair(&bad);
    let [mut c, d] = connected_pair(&good);
    let full = full_eventfd();
    for vector in [0, b.vector] {
        bad[1].assign(vector, full.as_raw_fd()).expect("SET_IRQS");
    }
    // The worker raises one of the vectors, the link the other.
    b.recv_cq.arm(b.guest, ARM_NEXT).expect("arm");
    b.qp.post_recv(b.guest, 1, &[]).expect("receive");
    a.qp.post_send(a.guest, &Send::new(Opcode::Send, 1)).expect("send");
    let event = b.events.wait(b.guest).expect("event");
    assert_eq!(event, (Kind::Completion, b.recv_cq.cqn));
    still_works(&mut c, &d);
    unplug(&bad[1]);
    assert_eq!(bad[1].events.lock().wait(&bad[1]).expect("event"), (Kind::PortDown, 1));
    unplug(&good[1]);
    // Commands raise a vector, too, and everybody who asks gets an answer.
    assert!(bad[1].caps().expect("QUERY_DEVICE").max_qp.get() > 0);
    let len = bad[1].ram.len();
    bad[1].with_client(|client| client.dma_unmap(BASE, len)).expect("DMA_UNMAP");
    bad.iter().for_each(|guest| guest.reset().expect("reset"));
    daemon.check().expect("healthy");
    assert!(daemon.stop(Signal::TERM).expect("end").success());
}

/// The VMM cuts its memory file short while others write to it: its function fails, and no other
/// notices.
#[test]
fn memory_that_is_cut_off_ends_its_function_alone() {
    let mut daemon = start_with(4, &["--workers", "1"]);
    let ready = |at| daemon.ready_guest(at).expect("bring-up");
    let ram = Arc::new(Ram::unsealed(64 << 20).expect("memory"));
    let lost = daemon.ready_guest_with(1, Arc::clone(&ram)).expect("bring-up");
    let bad = [ready(0), lost];
    let good = [ready(2), ready(3)];
    let [mut a, b] = connected_pair(&bad);
    let [mut c, d] = connected_pair(&good);
    still_works(&mut a, &b);
    let write = Send::new(Opcode::Write, 1).sges(&[a.sge(0, 1 << 20)]).remote(b.buffer, b.key);
    (0..8).for_each(|_| a.qp.post_send(a.guest, &write).expect("post"));
    ram.truncate(0).expect("truncate");
    a.qp.post_send(a.guest, &write).expect("post");
    bad[1].wait_status("FATAL", |status| status.contains(Status::FATAL)).expect("fatal");
    assert_eq!(bad[1].register(regs::FATAL_CODE).expect("code"), FatalCode::Internal as u32);
    daemon.wait_for_log("memory of the guest was truncated").expect("log");
    still_works(&mut c, &d);
    assert!(bad[0].caps().expect("QUERY_DEVICE").max_qp.get() > 0);
    // No reset helps as long as the memory is what it is. With other memory the function works
    // again.
    bad[1].reset().expect("reset");
    bad[1].wait_status("FATAL", |status| status.contains(Status::FATAL)).expect("fatal");
    let [first, lost] = bad;
    drop(lost);
    let next = [first, daemon.ready_guest(1).expect("the next VMM")];
    let [mut a, b] = connected_pair(&next);
    still_works(&mut a, &b);
    daemon.check().expect("healthy");
}
