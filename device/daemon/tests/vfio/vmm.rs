//! The VMM's side: what a correct VMM gets, and what a hostile VMM gets.
//!
//! Shows: hostile

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use vrnic_testdriver::memory::BASE;
use vrnic_testdriver::vmm::raw::{Command, RawClient, dma_map, dma_unmap, region_access};
use vrnic_testdriver::vmm::vfio::Guest;

use crate::common::start;

/// The number that vfio gives to configuration space.
const CONFIG: u32 = 7;
/// The number that vfio gives to BAR2.
const UAR: u32 = 2;

/// Connects and reads the identity.
fn works(guest: &Guest) {
    let mut id = [0; 4];
    guest.read_config(0, &mut id);
    assert_eq!(id, [0x34, 0x12, 0x4e, 0x52]);
}

#[test]
fn a_vmm_sees_the_function_and_the_next_one_too() {
    let mut daemon = start(1);
    for _ in 0..3 {
        let guest = daemon.guest(0);
        works(&guest);
        let bars = guest.with_client(|client| [0, 2, 4].map(|n| client.region(n).map(|r| r.size)));
        assert_eq!(bars, [Some(128 << 10), Some(256 << 20), Some(2 << 20)]);
        let irqs = guest.with_client(|client| [0, 1, 2, 3, 4].map(|n| client.get_irq_info(n)));
        let counts = irqs.map(|irq| irq.expect("IRQ info").count);
        assert_eq!(counts, [0, 0, 65, 0, 0]);
        guest.with_client(|client| client.shutdown()).expect("shutdown");
    }
    daemon.check();
}

/// A process of the old VMM may keep BAR2 mapped. That memory is not used any more.
#[test]
fn the_next_vmm_has_doorbell_memory_of_its_own() {
    let mut daemon = start(1);
    let memory = |guest: &Guest| {
        guest.with_client(|client| {
            let file = client.region(UAR).expect("BAR2").file_offset.clone().expect("a file");
            file.file().try_clone().expect("a descriptor")
        })
    };
    let word = |file: &File| {
        let mut word = [0; 4];
        file.read_exact_at(&mut word, 4096).expect("read");
        word
    };
    let trapped = |guest: &Guest| {
        let mut word = [0; 4];
        guest.with_client(|client| client.region_read(UAR, 4096, &mut word)).expect("read");
        word
    };
    let first = daemon.guest(0);
    let old = memory(&first);
    old.write_all_at(b"left", 4096).expect("write");
    assert_eq!(trapped(&first), *b"left");
    drop(first);
    let second = daemon.ready_guest(0);
    let new = memory(&second);
    old.write_all_at(b"evil", 4096).expect("write");
    assert_eq!((word(&new), trapped(&second)), ([0; 4], [0; 4]));
    new.write_all_at(b"ring", 4096).expect("write");
    assert_eq!((word(&old), trapped(&second)), (*b"evil", *b"ring"));
    daemon.check();
}

#[test]
fn a_second_client_is_turned_away_and_harms_nobody() {
    let mut daemon = start(2);
    let first = daemon.guest(0);
    let mut second = RawClient::connect(&daemon.socket(0)).expect("connect");
    second.wait_closed().expect("turned away");
    daemon.wait_for_log("second client turned away");
    works(&first);
    works(&daemon.guest(1));
    drop(first);
    works(&daemon.guest(0));
    daemon.check();
}

#[test]
fn accesses_outside_regions_read_ones_and_change_nothing() {
    let mut daemon = start(1);
    let mut client = RawClient::open(&daemon.socket(0)).expect("open");
    let outside = [
        (0, 256 << 10, 4),
        (0, u64::MAX - 1, 4),
        (0, 2, 4),
        (0, 0, 64),
        (1, 0, 4),
        (UAR, 256 << 20, 8),
        (6, 0, 4),
        (CONFIG, 4096, 4),
        (CONFIG, 4090, 16),
    ];
    for (region, offset, count) in outside {
        let body = region_access(region, offset, count, &[]);
        let reply = client.call(Command::RegionRead, &body, &[]).expect("reply");
        assert!(!reply.error);
        let data = &reply.body[16..];
        assert!(data.iter().all(|byte| *byte == 0xff), "region {region} at {offset:#x}");
        let body = region_access(region, offset, count, &vec![0; count as usize]);
        client.call(Command::RegionWrite, &body, &[]).expect("reply");
    }
    daemon.wait_for_log("outside region");
    // This region does not exist.
    let body = region_access(77, 0, 4, &[]);
    assert!(client.call(Command::RegionRead, &body, &[]).expect("reply").error);
    drop(client);
    works(&daemon.guest(0));
    daemon.check();
}

#[test]
fn odd_maps_are_refused_by_name_and_ones_without_a_file_accepted() {
    let mut daemon = start(1);
    let mut client = RawClient::open(&daemon.socket(0)).expect("open");
    let memory = rustix::fs::memfd_create("m", rustix::fs::MemfdFlags::CLOEXEC).expect("memfd");
    let memory = File::from(memory);
    memory.set_len(1 << 20).expect("length");
    let null = File::open("/dev/null").expect("/dev/null");
    let plain = |body: &[u8], client: &mut RawClient| {
        client.call(Command::DmaMap, body, &[]).expect("reply").error
    };
    assert!(!plain(&dma_map(3, 0, BASE, 1 << 20), &mut client), "a map without a file");
    assert!(plain(&dma_map(3, 0, BASE + 4096, 4096), &mut client), "an overlap");
    daemon.wait_for_log("overlaps");
    assert!(plain(&dma_map(3, 0, u64::MAX - 4095, 8192), &mut client), "a wrap");
    assert!(plain(&dma_map(3, 0, 0, 0), &mut client), "nothing");
    let with = |body: &[u8], file: &File, client: &mut RawClient| {
        client.call(Command::DmaMap, body, &[file.as_fd()]).expect("reply").error
    };
    assert!(with(&dma_map(3, 0, 0, 4096), &null, &mut client), "not a memory file");
    daemon.wait_for_log("not a shared memory file");
    assert!(with(&dma_map(3, 4096, 0, 1 << 20), &memory, &mut client), "beyond the file");
    daemon.wait_for_log("beyond the end of its file");
    assert!(!with(&dma_map(1, 0, 0, 1 << 20), &memory, &mut client), "a read-only map");
    daemon.wait_for_log("not sealed against shrinking");
    let unmap = |body: &[u8], client: &mut RawClient| {
        client.call(Command::DmaUnmap, body, &[]).expect("reply").error
    };
    assert!(!unmap(&dma_unmap(4096, 4096), &mut client), "part of a map");
    assert!(with(&dma_map(3, 0, 0, 8192), &memory, &mut client), "an overlap with what is left");
    assert!(!with(&dma_map(3, 0, 4096, 4096), &memory, &mut client), "in place of the part");
    assert!(!unmap(&dma_unmap(1 << 40, 1 << 30), &mut client), "nothing there");
    assert!(!unmap(&dma_unmap(0, 1 << 32), &mut client), "all of it");
    assert!(!with(&dma_map(3, 0, 0, 1 << 20), &memory, &mut client), "map again");
    daemon.check();
}

/// Messages that violate the protocol can only end their own connection.
#[test]
fn malformed_messages_harm_nobody_else() {
    let daemon = start(2);
    let other = daemon.guest(1);
    let version = |len: u32, body: &[u8]| {
        let mut message = vec![1, 0, 1, 0];
        message.extend(len.to_le_bytes());
        message.extend([0; 8]);
        message.extend_from_slice(body);
        message
    };
    let messages = [
        version(16, &[]),
        version(20, &[0, 0, 1, 0]),
        version(24, &[0, 0, 1, 0, b'{', b'{', b'{', b'{']),
        version(21, &[0, 0, 1, 0, 0]),
        vec![0xff; 64],
        vec![0; 16],
        vec![1, 0, 9],
    ];
    for message in messages {
        let mut client = RawClient::connect(&daemon.socket(0)).expect("connect");
        client.send_bytes(&message).expect("send");
        drop(client);
        works(&other);
        works(&daemon.guest(0));
    }
    works(&other);
}

#[test]
fn an_absurd_read_length_is_survived() {
    let mut daemon = start(1);
    let mut client = RawClient::open(&daemon.socket(0)).expect("open");
    let body = region_access(CONFIG, 0, 1 << 19, &[]);
    let reply = client.call(Command::RegionRead, &body, &[]).expect("reply");
    assert_eq!(reply.body.len(), 16 + (1 << 19));
    let body = region_access(CONFIG, 0, u32::MAX, &[]);
    assert!(client.call(Command::RegionRead, &body, &[]).expect("reply").error);
    daemon.wait_for_log("a read of 4294967295 bytes is longer");
    drop(client);
    works(&daemon.guest(0));
    daemon.check();
}

#[test]
fn flr_resets_configuration_space() {
    let daemon = start(1);
    let guest = daemon.guest(0);
    guest.write_config(4, &[0x06, 0]);
    let command = || {
        let mut bytes = [0; 2];
        guest.read_config(4, &mut bytes);
        u16::from_le_bytes(bytes)
    };
    assert_eq!(command(), 6);
    guest.write_config(0x68, &[0, 0x80]);
    assert_eq!(command(), 0);
    guest.write_config(4, &[0x06, 0]);
    guest.with_client(|client| client.reset()).expect("reset by the VMM");
    assert_eq!(command(), 0);
}
