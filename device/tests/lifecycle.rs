//! Resets, lost VMMs and withdrawn memory, in the middle of traffic.

mod common;

use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{pair, pattern, start};
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;
use vrnic_abi::regs;
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::endpoint::{Endpoint, EndpointSetup};
use vrnic_testdriver::guest::Guest;
use vrnic_testdriver::qp::Send;
use vrnic_testdriver::ram::BASE;
use vrnic_testdriver::wait;

const SETUP: EndpointSetup = EndpointSetup {
    buffer: 4 << 20,
    log_cqes: 8,
    log_wqes: 6,
    log_stride: 9,
    in_device: false,
    vector: 1,
    kernel: false,
};

fn ends(guests: [&Guest; 2]) -> [Endpoint<'_>; 2] {
    let ends = guests.map(|guest| Endpoint::new(guest, &SETUP).expect("endpoint"));
    Endpoint::connect(&ends[0], &ends[1]).expect("connect");
    ends
}

fn moves_data(a: &mut Endpoint<'_>, b: &Endpoint<'_>) {
    let data = pattern(9000, 5);
    a.fill(0, &data).expect("fill");
    let write = Send::new(Opcode::Write, 1)
        .sges(&[a.sge(0, 9000)])
        .remote(b.buffer, b.key);
    a.run_expecting(&write, 1, Status::Success).expect("WRITE");
    assert!(b.bytes(0, 9000).expect("bytes") == data);
}

/// Fills the send queue with long messages.
fn load(a: &mut Endpoint<'_>, b: &Endpoint<'_>) {
    let write = Send::new(Opcode::Write, 1)
        .sges(&[a.sge(0, 4 << 20)])
        .remote(b.buffer, b.key);
    for _ in 0..32 {
        a.qp.store_send(a.guest, &write).expect("post");
    }
    a.qp.ring(a.guest).expect("ring");
}

#[test]
fn resets_in_mid_traffic_end_clean() {
    let mut daemon = start(3);
    let guests = pair(&daemon);
    let third = daemon.ready_guest(2).expect("bring-up");
    let [mut c, d] = ends([&guests[1], &third]);
    for round in 0..12 {
        let [mut a, b] = ends([&guests[0], &guests[1]]);
        load(&mut a, &b);
        std::thread::sleep(Duration::from_micros(round * 150));
        match round % 3 {
            0 => guests[0].reset().expect("reset by register"),
            1 => guests[0].write_config(0x68, &[0, 0x80]).expect("FLR"),
            _ => guests[0]
                .with_client(|client| client.reset())
                .expect("reset by the VMM"),
        }
        assert!(
            !guests[0]
                .status()
                .expect("status")
                .contains(regs::Status::ENABLED)
        );
        moves_data(&mut c, &d);
        // The doorbell memory is zero, all objects are gone.
        let word = guests[0]
            .bar()
            .word32(Guest::slot_offset(a.uar, a.qp.slot))
            .expect("word");
        assert_eq!(word.load(Ordering::Acquire), 0);
        guests[0].bring_up().expect("bring-up");
        assert!(
            guests[0].query_qp(a.qp.qpn).is_err(),
            "the QP has survived a reset"
        );
    }
    let [mut a, b] = ends([&guests[0], &guests[1]]);
    moves_data(&mut a, &b);
    daemon.check().expect("healthy");
}

#[test]
fn a_lost_vmm_fails_its_peers_and_the_next_one_starts_afresh() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let [zero, one] = guests;
    {
        let [mut a, mut b] = ends([&zero, &one]);
        load(&mut a, &b);
        // The peer's own request is under way when the VMM goes.
        zero.with_client(|client| client.shutdown())
            .expect("shutdown");
        let read = Send::new(Opcode::Read, 8)
            .sges(&[b.sge(0, 64)])
            .remote(a.buffer, a.key);
        b.run_expecting(&read, 8, Status::RetryExcErr)
            .expect("retries are used up");
        assert_eq!(b.qp.state(&one).expect("state"), State::Err);
    }
    drop(zero);
    let again = daemon.ready_guest(0).expect("next VMM");
    let [mut a, b] = ends([&again, &one]);
    moves_data(&mut a, &b);
    daemon.check().expect("healthy");
}

#[test]
fn memory_may_be_withdrawn_in_mid_traffic() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    for _ in 0..5 {
        let [mut a, b] = ends([&guests[0], &guests[1]]);
        load(&mut a, &b);
        let ram = &guests[1].ram;
        guests[1]
            .with_client(|client| client.dma_unmap(BASE, ram.len()))
            .expect("unmap");
        // Nothing writes to the memory after the reply.
        let before = ram.read(b.buffer, 4 << 20).expect("bytes");
        a.fill(0, &pattern(4 << 20, 8)).expect("fill");
        std::thread::sleep(Duration::from_millis(20));
        assert!(
            ram.read(b.buffer, 4 << 20).expect("bytes") == before,
            "a write after the unmap"
        );
        wait::until("error", || {
            Ok((a.qp.state(&guests[0])? == State::Err).then_some(()))
        })
        .expect("the requester fails");
        guests[1]
            .with_client(|client| client.dma_map(0, BASE, ram.len(), ram.fd()))
            .expect("map");
        guests[1].bring_up().expect("bring-up");
        guests[0].bring_up().expect("bring-up");
    }
    let [mut a, b] = ends([&guests[0], &guests[1]]);
    moves_data(&mut a, &b);
    daemon.check().expect("healthy");
}

#[test]
fn without_bus_mastering_nothing_moves_and_no_interrupt_comes() {
    let daemon = start(2);
    let guests = pair(&daemon);
    let [mut a, b] = ends([&guests[0], &guests[1]]);
    moves_data(&mut a, &b);
    guests[0].interrupts(0).expect("vector");
    guests[0].write_config(4, &[0x02, 0]).expect("command");
    let write = Send::new(Opcode::Write, 1)
        .sges(&[a.sge(0, 64)])
        .remote(b.buffer, b.key);
    a.qp.post_send(a.guest, &write).expect("post");
    std::thread::sleep(Duration::from_millis(50));
    assert!(
        a.send_cq.poll(a.guest).expect("poll").is_none(),
        "DMA without bus mastering"
    );
    assert_eq!(guests[0].interrupts(0).expect("vector"), 0);
    guests[0].bring_up().expect("bring-up");
    let [mut a, b] = ends([&guests[0], &guests[1]]);
    moves_data(&mut a, &b);
}

#[test]
fn the_cable_makes_the_link_and_its_events() {
    let daemon = start(1);
    let mut guest = daemon.ready_guest(0).expect("bring-up");
    guest.cable = None;
    guest
        .wait_status("link down", |status| {
            !status.contains(regs::Status::LINK_UP)
        })
        .expect("down");
    let next = |guest: &Guest| guest.events.lock().wait(guest).expect("event");
    assert_eq!(next(&guest), (Kind::PortDown, 1));
    guest.cable = Some(daemon.plug(0).expect("plug"));
    assert_eq!(next(&guest), (Kind::PortUp, 1));
    guest.wait_interrupt(0).expect("interrupt");
}

#[test]
fn the_heartbeat_goes_on_whatever_the_guest_does() {
    let daemon = start(2);
    let guests = pair(&daemon);
    let [mut a, b] = ends([&guests[0], &guests[1]]);
    let beats = |guest: &Guest| {
        let mapped = guest
            .bar()
            .word64(vrnic_abi::uar::HEARTBEAT_OFFSET as usize)
            .expect("word");
        (
            guest.register(regs::HEARTBEAT).expect("register"),
            mapped.load(Ordering::Acquire),
        )
    };
    let (register, mapped) = beats(&guests[0]);
    let start = std::time::Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        load(&mut a, &b);
        while a.send_cq.poll(a.guest).expect("poll").is_some() {}
        std::thread::sleep(Duration::from_millis(20));
    }
    let (later, mapped_later) = beats(&guests[0]);
    // Ten are promised; a loaded machine may take some.
    assert!(later.wrapping_sub(register) >= 5, "{register} to {later}");
    assert!(
        mapped_later.wrapping_sub(mapped) >= 5,
        "{mapped} to {mapped_later}"
    );
}
