//! Resets, lost VMMs and unmapped memory during transfers.
//!
//! Shows: daemon

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;
use vrnic_abi::regs;
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::memory::BASE;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::vmm::vfio::{Endpoint, Guest};
use vrnic_testdriver::wait;
use vrnic_testdriver::wr::Wr;

use crate::common::{pair, pattern, start};

fn ends(guests: [&Guest; 2]) -> [Endpoint; 2] {
    let ends = guests.map(|guest| Endpoint::new(guest, Setup { log_wqes: 6, ..Setup::default() }));
    Endpoint::connect_pair(&ends[0], &ends[1]);
    ends
}

fn moves_data(a: &mut Endpoint, b: &Endpoint) {
    let data = pattern(9000, 5);
    a.fill(0, &data);
    let write = Wr::new(Opcode::Write, &[a.sge(0, 9000)]).to(b.buffer, b.key);
    a.run_expecting(&write, Status::Success);
    assert!(b.bytes(0, 9000) == data);
}

/// Fills the send queue with long messages.
fn load(a: &mut Endpoint, b: &Endpoint) {
    let write = Wr::new(Opcode::Write, &[a.sge(0, 4 << 20)]).to(b.buffer, b.key);
    for _ in 0..32 {
        a.store_send(&write);
    }
    a.ring();
}

#[test]
fn resets_in_mid_traffic_end_clean() {
    let mut daemon = start(3);
    let guests = pair(&daemon);
    let third = daemon.ready_guest(2);
    let [mut c, d] = ends([&guests[1], &third]);
    for round in 0..12 {
        let [mut a, b] = ends([&guests[0], &guests[1]]);
        load(&mut a, &b);
        std::thread::sleep(Duration::from_micros(round * 150));
        match round % 3 {
            0 => guests[0].reset(),
            1 => guests[0].write_config(0x68, &[0, 0x80]),
            _ => guests[0].with_client(|client| client.reset()).expect("reset by the VMM"),
        }
        assert!(!guests[0].status().contains(regs::Status::ENABLED));
        moves_data(&mut c, &d);
        // The doorbell memory is zero, and all objects are destroyed.
        assert_eq!(guests[0].slot64(a.uar, a.slot).load(Ordering::Acquire), 0);
        guests[0].bring_up();
        assert!(guests[0].query_qp(a.qpn).is_err(), "the QP has survived a reset");
    }
    let [mut a, b] = ends([&guests[0], &guests[1]]);
    moves_data(&mut a, &b);
    daemon.check();
}

#[test]
fn a_lost_vmm_fails_its_peers_and_the_next_one_starts_afresh() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let [zero, one] = guests;
    {
        let [mut a, mut b] = ends([&zero, &one]);
        load(&mut a, &b);
        // Requests of the peer are outstanding when the VMM disconnects.
        zero.with_client(|client| client.shutdown()).expect("shutdown");
        let read = Wr::new(Opcode::Read, &[b.sge(0, 64)]).to(a.buffer, a.key);
        let failed = || Some(status(&b.run(&read))).filter(|status| *status != Status::Success);
        assert_eq!(wait::until("failed request", failed), Status::RetryExcErr);
        assert_eq!(b.state(), State::Err);
    }
    drop(zero);
    let again = daemon.ready_guest(0);
    let [mut a, b] = ends([&again, &one]);
    moves_data(&mut a, &b);
    daemon.check();
}

#[test]
fn memory_may_be_withdrawn_in_mid_traffic() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    for _ in 0..5 {
        let [mut a, b] = ends([&guests[0], &guests[1]]);
        load(&mut a, &b);
        let ram = guests[1].ram();
        guests[1].with_client(|client| client.dma_unmap(BASE, ram.len())).expect("unmap");
        // The daemon does not write to the memory after its reply.
        let before = ram.read(b.buffer, 4 << 20);
        a.fill(0, &pattern(4 << 20, 8));
        std::thread::sleep(Duration::from_millis(20));
        assert!(ram.read(b.buffer, 4 << 20) == before, "a write after the unmap");
        wait::until("failure of the requester", || (a.state() == State::Err).then_some(()));
        guests[1]
            .with_client(|client| client.dma_map(0, BASE, ram.len(), ram.file().as_raw_fd()))
            .expect("map");
        guests[1].bring_up();
        guests[0].bring_up();
    }
    let [mut a, b] = ends([&guests[0], &guests[1]]);
    moves_data(&mut a, &b);
    daemon.check();
}

#[test]
fn without_bus_mastering_nothing_moves_and_no_interrupt_comes() {
    let daemon = start(2);
    let guests = pair(&daemon);
    let [mut a, b] = ends([&guests[0], &guests[1]]);
    moves_data(&mut a, &b);
    let _earlier = guests[0].interrupts(0);
    guests[0].write_config(4, &[0x02, 0]);
    let write = Wr::new(Opcode::Write, &[a.sge(0, 64)]).to(b.buffer, b.key);
    a.post_send(&write);
    std::thread::sleep(Duration::from_millis(50));
    assert!(a.send_cq.poll().is_none(), "DMA without bus mastering");
    assert_eq!(guests[0].interrupts(0), 0);
    guests[0].bring_up();
    let [mut a, b] = ends([&guests[0], &guests[1]]);
    moves_data(&mut a, &b);
}

#[test]
fn the_cable_makes_the_link_and_its_events() {
    let daemon = start(1);
    let guest = daemon.ready_guest(0);
    *guest.cable.lock() = None;
    guest.wait_status("link down", |status| !status.contains(regs::Status::LINK_UP));
    let next = |guest: &Guest| guest.wait_event();
    assert_eq!(next(&guest), (Kind::PortDown, 1));
    *guest.cable.lock() = Some(daemon.plug(0));
    assert_eq!(next(&guest), (Kind::PortUp, 1));
    guest.wait_interrupt(0);
}

#[test]
fn the_heartbeat_goes_on_whatever_the_guest_does() {
    let daemon = start(2);
    let guests = pair(&daemon);
    let [mut a, b] = ends([&guests[0], &guests[1]]);
    let beats = |guest: &Guest| {
        let mapped = guest.bar().word64(vrnic_abi::uar::HEARTBEAT_OFFSET.into()).expect("word");
        (guest.register(regs::HEARTBEAT), mapped.load(Ordering::Acquire))
    };
    let (register, mapped) = beats(&guests[0]);
    wait::until("five beats in both places", || {
        load(&mut a, &b);
        while a.send_cq.poll().is_some() {}
        std::thread::sleep(Duration::from_millis(20));
        let (later, mapped_later) = beats(&guests[0]);
        (later.wrapping_sub(register) >= 5 && mapped_later.wrapping_sub(mapped) >= 5).then_some(())
    });
}
