//! Commands that read and write.
//!
//! Shows: iscsi

use vrnic_abi::cq::Status;
use vrnic_abi::sq::CommandFlags;
use vrnic_simlink::Faults;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::wr::{Wr, sge};

use super::rig::{
    MAX_SEND, Pdu, READ, Rig, Told, WRITE, data_in, r2t, read10, response, scsi, write10,
};
use crate::memory::commands::command;
use crate::network::streams::pattern;

/// The data of a READ arrives in its buffer, at any offsets and over the bounds of segments. The
/// response ends the command, and has its Command ID.
///
/// Shows: iscsi
#[test]
fn a_read_is_placed_in_its_buffer() {
    for (digests, faults) in
        [(false, Faults::default()), (true, Faults::default()), (true, Faults::all(10_000))]
    {
        let mut rig = Rig::new(1, faults, digests);
        rig.receives(0..8);
        rig.a.fill(0, &[0xee; 40_000]);
        let segments = [rig.a.sge(100, 5000), rig.a.sge(20_000, 3000)];
        rig.post(&read10(8000), &segments, WRITE);
        let heard = rig.heard();
        let key = heard.tag();
        assert_eq!((heard.head[0], heard.get(20)), (1, 8000));
        let data = pattern(8000, 7);
        // The second half comes first, and lengths are no multiples of four.
        let pieces = [
            data_in(key, 4001, &data[4001..]),
            data_in(key, 0, &data[..4001]),
            data_in(key, 8000, &[]),
        ];
        pieces.iter().for_each(|pdu| rig.say(pdu));
        rig.say(&response(key));
        for pdu in &pieces {
            rig.expect(pdu, false, Told::Executed(0, key));
        }
        rig.expect(&response(key), true, Told::Ended(0, key));
        assert!(rig.a.bytes(100, 5000) == data[..5000]);
        assert!(rig.a.bytes(20_000, 3000) == data[5000..]);
        assert_eq!(rig.a.bytes(5100, 100), [0xee; 100]);
        assert_eq!((rig.a.bytes(99, 1), rig.a.bytes(23_000, 1)), (vec![0xee], vec![0xee]));
        let cqe = rig.sent();
        assert_eq!((status(&cqe), cqe.key.get()), (Status::Success, key));
        let counters = rig.counters();
        assert_eq!((counters.placed.get(), counters.ended.get()), (3, 1));
    }
}

/// A Data-In with status is a response.
#[test]
fn data_in_with_status_ends_its_command() {
    let mut rig = Rig::new(2, Faults::default(), true);
    rig.receives(0..4);
    // The Command ID is the index of the work request.
    rig.send(&Pdu::new(0x40, 0x80, 5).word(20, u32::MAX));
    rig.post(&read10(512), &[rig.a.sge(0, 512)], WRITE);
    assert_eq!(rig.heard().head[0], 0x40);
    let key = rig.heard().tag();
    let data = pattern(512, 2);
    let mut pdu = data_in(key, 0, &data);
    pdu.head[1] = 0x81;
    rig.say(&pdu);
    rig.expect(&pdu, false, Told::Ended(1, key));
    assert!(rig.a.bytes(0, 512) == data);
    // The second one is dropped.
    rig.say(&pdu);
    rig.say(&Pdu::new(0x20, 0x80, 5));
    rig.expect(&Pdu::new(0x20, 0x80, 5), true, Told::Nothing);
    assert_eq!(rig.counters().dropped.get(), 1);
}

/// R2Ts in any order get their bytes, in pieces that the target accepts.
///
/// Shows: iscsi
#[test]
fn the_adapter_answers_r2ts() {
    for (digests, faults) in
        [(false, Faults::default()), (true, Faults::default()), (true, Faults::all(10_000))]
    {
        let mut rig = Rig::new(3, faults, digests);
        rig.receives(0..8);
        let data = pattern(20_000, 5);
        rig.a.fill(1000, &data[..7000]);
        rig.a.fill(100_000, &data[7000..]);
        let segments = [rig.a.sge(1000, 7000), rig.a.sge(100_000, 13_000)];
        rig.post(&write10(20_000), &segments, READ);
        let key = rig.heard().tag();
        for (offset, len) in [(6000, 14_000), (0, 6000)] {
            let mut ask = r2t(key, offset, len);
            ask.head[8..16].copy_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1]);
            rig.say(&ask);
            rig.expect(&ask, true, Told::Executed(0, key));
            let (mut at, mut number) = (offset, 0);
            while at < offset + len {
                let pdu = rig.heard();
                let left = offset + len - at;
                let count = left.min(MAX_SEND);
                let last = if count == left { 0x80 } else { 0 };
                assert_eq!((pdu.head[0], pdu.head[1]), (5, last));
                assert_eq!(pdu.head[8..16], ask.head[8..16]);
                assert_eq!((pdu.tag(), pdu.get(20)), (key, 0x77));
                assert_eq!((pdu.get(28), pdu.get(36), pdu.get(40)), (9, number, at));
                assert!(pdu.data == data[at as usize..(at + count) as usize]);
                (at, number) = (at + count, number + 1);
            }
        }
        rig.say(&response(key));
        rig.expect(&response(key), true, Told::Ended(0, key));
        assert_eq!(status(&rig.sent()), Status::Success);
        let counters = rig.counters();
        assert_eq!((counters.served.get(), counters.data_out.get()), (2, 4 + 2));
        assert_eq!(counters.zeroed.get(), 0);
    }
}

/// Large transfers of several commands at the same time, over a bad cable.
#[test]
fn many_commands_at_once() {
    const LEN: u32 = 60_000;
    for digests in [false, true] {
        let mut rig = Rig::new(4, Faults::all(10_000), digests);
        rig.receives(0..24);
        let mut keys = Vec::new();
        for nth in 0..6u64 {
            let place = nth * 100_000;
            let sge = rig.a.sge(place, LEN);
            if nth % 2 == 0 {
                rig.post(&read10(LEN), &[sge], WRITE);
            } else {
                rig.a.fill(place, &pattern(LEN as usize, nth as usize));
                rig.post(&write10(LEN), &[sge], READ);
            }
            keys.push(rig.heard().tag());
        }
        for (nth, key) in keys.iter().enumerate() {
            if nth % 2 == 1 {
                rig.say(&r2t(*key, 0, LEN));
            }
        }
        let mut written = [(); 6].map(|()| Vec::new());
        let mut next = 24;
        for piece in 0..8 {
            for (nth, key) in keys.iter().enumerate().filter(|(nth, _)| nth % 2 == 0) {
                let data = pattern(LEN as usize, 10 + nth);
                let (from, to) = (piece * 8000, (piece * 8000 + 8000).min(LEN as usize));
                rig.say(&data_in(*key, from as u32, &data[from..to]));
            }
            rig.receives(next..next + 3);
            next += 3;
            (0..3).for_each(|_| _ = rig.received());
        }
        (0..3).for_each(|_| _ = rig.received());
        while written.iter().map(Vec::len).sum::<usize>() < 3 * LEN as usize {
            let pdu = rig.heard();
            let nth = keys.iter().position(|key| *key == pdu.tag()).expect("a command");
            assert_eq!(pdu.get(40) as usize, written[nth].len());
            written[nth].extend(pdu.data);
        }
        for (nth, key) in keys.iter().enumerate() {
            rig.say(&response(*key));
            rig.expect(&response(*key), true, Told::Ended(nth as u32, *key));
            if nth % 2 == 0 {
                let data = pattern(LEN as usize, 10 + nth);
                assert!(rig.a.bytes(nth as u64 * 100_000, LEN as usize) == data);
            } else {
                assert!(written[nth] == pattern(LEN as usize, nth));
            }
        }
    }
}

/// The segments of a kernel client may be guest addresses.
#[test]
fn segments_may_be_guest_addresses() {
    let mut rig = Rig::new(5, Faults::default(), false);
    rig.receives(0..4);
    let base = rig.a.buffer.next_multiple_of(4096);
    let segments = [sge(base + 4000, 96, 0), sge(base + 8192, 4096, 0), sge(base, 308, 0)];
    let message = read10(4500).head;
    rig.a.post_send(&command(&segments, &message, 0, WRITE, CommandFlags::PHYSICAL));
    let key = rig.heard().tag();
    let data = pattern(4500, 3);
    rig.say(&data_in(key, 0, &data));
    rig.expect(&data_in(key, 0, &data), false, Told::Executed(0, key));
    let ram = rig.a.guest.ram();
    let found = [ram.read(base + 4000, 96), ram.read(base + 8192, 4096), ram.read(base, 308)];
    assert!(found.concat() == data);
}

/// Scattered pages of a list are one buffer. The list is checked before anything is sent.
///
/// Shows: iscsi: data for kernel clients by lists of pages
#[test]
fn a_buffer_may_be_a_list_of_pages() {
    const LIST: u64 = 64 << 10;
    const NO_LIST: u64 = 16;
    for digests in [false, true] {
        let mut rig = Rig::new(7, Faults::default(), digests);
        rig.receives(0..16);
        let base = rig.a.buffer.next_multiple_of(4096);
        // Every second page, the last one first.
        let pages: Vec<u64> = (0..12).map(|nth| base + 8192 * (11 - nth)).collect();
        let write_list = |rig: &Rig, pages: &[u64]| {
            let bytes: Vec<u8> = pages.iter().flat_map(|page| page.to_le_bytes()).collect();
            rig.a.guest.ram().write(base + (1 << 20) + LIST, &bytes);
        };
        let post = |rig: &mut Rig, message: &Pdu, len: u32, offset: u64, access: u32| {
            let list = [sge(base + (1 << 20) + LIST, len, 0)];
            let wr = command(&list, &message.head, 0, access, CommandFlags::PAGES);
            rig.a.post_send(&Wr { raddr: offset, ..wr });
        };
        write_list(&rig, &pages);
        let (len, offset) = (11 * 4096 + 90, 4000);
        post(&mut rig, &read10(len), len, offset, WRITE);
        let key = rig.heard().tag();
        let data = pattern(len as usize, 3);
        for at in (0..len as usize).step_by(8000) {
            let part = &data[at..data.len().min(at + 8000)];
            rig.say(&data_in(key, at as u32, part));
            rig.expect(&data_in(key, at as u32, part), false, Told::Executed(0, key));
        }
        let mut found = Vec::new();
        pages.iter().for_each(|page| found.extend(rig.a.guest.ram().read(*page, 4096)));
        assert!(found[4000..][..data.len()] == data);
        assert!(rig.sent().status == 0);
        // A command that writes reads them.
        post(&mut rig, &write10(len), len, offset, READ);
        let key = rig.heard().tag();
        rig.say(&r2t(key, 90, 3000));
        let heard = rig.heard();
        assert!(heard.data == data[90..3090]);
    }
    // A byte after the first page, too many pages, an address inside a page, a list that is not
    // there.
    for (offset, len, first) in [(4096, 8, 0), (1, 2 << 20, 0), (0, 8, 8), (0, 8, NO_LIST)] {
        let mut rig = Rig::new(8, Faults::default(), false);
        rig.receives(0..1);
        let base = rig.a.buffer.next_multiple_of(4096);
        let list = if first == NO_LIST { 1 << 60 } else { base + LIST };
        rig.a.guest.ram().write(base + LIST, &(base + first).to_le_bytes());
        let list = [sge(list, len, 0)];
        let wr = command(&list, &read10(8).head, 0, WRITE, CommandFlags::PAGES);
        rig.a.post_send(&Wr { raddr: offset, ..wr });
        assert_eq!(status(&rig.sent()), Status::MwBindErr);
    }
}

/// A command without data has an entry too, so that its response is found. Data may come with a
/// command, and sense data with a response.
#[test]
fn commands_without_buffers_and_immediate_data() {
    for digests in [false, true] {
        let mut rig = Rig::new(6, Faults::default(), digests);
        rig.receives(0..4);
        rig.post(&scsi(0x80, 0x00, 0), &[rig.a.sge(0, 0)], 0);
        let key = rig.heard().tag();
        let sense = response(key).data(&pattern(97, 1));
        rig.say(&sense);
        rig.expect(&sense, true, Told::Ended(0, key));
        let immediate = write10(512).data(&pattern(101, 4));
        rig.post(&immediate, &[rig.a.sge(0, 512)], READ);
        let heard = rig.heard();
        assert!(heard.data == immediate.data);
        rig.say(&r2t(heard.tag(), 101, 411));
        assert_eq!(rig.heard().data.len(), 411);
    }
}

/// The bytes that the guest's kernel has received may end anywhere.
#[test]
fn bytes_of_the_kernel_come_first() {
    for digests in [false, true] {
        let first = Pdu::new(0x20, 0x80, u32::MAX).data(&pattern(333, 3));
        let second = Pdu::new(0x32, 0x80, u32::MAX).data(&pattern(64, 4));
        let bytes = [first.bytes(digests), second.bytes(digests)].concat();
        for cut in [0, 1, 47, 48, 60, 384, 391, 392, 430, bytes.len()] {
            let mut rig = Rig::with_early(7, Faults::default(), digests, &bytes[..cut]);
            if cut < bytes.len() {
                rig.say_bytes(&bytes[cut..]);
            }
            rig.receives(0..2);
            rig.expect(&first, true, Told::Nothing);
            rig.expect(&second, true, Told::Nothing);
        }
    }
}

/// Without a receive the target waits, and nothing is lost.
#[test]
fn receives_may_come_late() {
    let mut rig = Rig::new(8, Faults::default(), true);
    rig.post(&read10(8000), &[rig.a.sge(0, 8000)], WRITE);
    let key = rig.heard().tag();
    let data = pattern(8000, 6);
    let pieces = [data_in(key, 0, &data[..4000]), data_in(key, 4000, &data[4000..])];
    pieces.iter().for_each(|pdu| rig.say(pdu));
    rig.say(&response(key));
    crate::network::toe::pass(&rig.cable, 1_000_000);
    assert_eq!(rig.a.bytes(0, 8000), [0; 8000]);
    for (nth, pdu) in pieces.iter().enumerate() {
        rig.receives(nth as u64..nth as u64 + 1);
        rig.expect(pdu, false, Told::Executed(0, key));
    }
    rig.receives(2..3);
    rig.expect(&response(key), true, Told::Ended(0, key));
    assert!(rig.a.bytes(0, 8000) == data);
}
