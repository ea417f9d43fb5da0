//! Bytes of sends arrive in receives of any other lengths.
//!
//! Shows: tcp

use vrnic_abi::cq::Status;
use vrnic_abi::sq::Opcode;
use vrnic_simlink::{Fate, Faults};
use vrnic_tcp::wire::frame::Frame as TcpFrame;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::wr::Wr;

use super::{cable, connected, pass, received, send, sent};
use crate::network::streams::pattern;

/// Sends bytes in pieces of the lengths `sends`, and receives them in pieces of `receives` bytes
/// each.
fn exchange(seed: u64, faults: Faults, push: bool, sends: &[u32], receives: u32) -> u64 {
    let cable = cable(seed, faults);
    let (mut a, mut b) = connected(&cable, push);
    let total: u32 = sends.iter().sum();
    let data = pattern(total as usize, seed as usize);
    a.fill(0, &data);
    let (mut next, mut at, mut done, mut got, mut place) = (0, 0, 0, 0, 0u64);
    let (mut posted, mut places) = (0, std::collections::VecDeque::new());
    let mut bytes = Vec::new();
    cable.run_until(|| {
        while next < sends.len() && next - done < 20 {
            send(&mut a, at, sends[next]);
            at += u64::from(sends[next]);
            next += 1;
        }
        while posted - got < 12 {
            // Two segments of memory each.
            let half = receives / 2;
            b.post_recv(1, &[b.sge(place, half), b.sge(place + 1_000_000, receives - half)]);
            places.push_back((place, half as usize));
            place = (place + u64::from(receives - half)) % 900_000;
            posted += 1;
        }
        while let Some(cqe) = a.send_cq.poll() {
            assert_eq!(status(&cqe), Status::Success);
            done += 1;
        }
        while let Some(cqe) = b.recv_cq.poll() {
            assert_eq!(status(&cqe), Status::Success);
            let (place, half) = places.pop_front().expect("it was posted");
            let len = cqe.byte_len.get() as usize;
            assert!(len == receives as usize || push, "a receive of {len} bytes");
            bytes.extend(b.bytes(place, half.min(len)));
            bytes.extend(b.bytes(place + 1_000_000, len.saturating_sub(half)));
            got += 1;
        }
        // The last receive may not be full.
        let rest = if push { 0 } else { total as usize % receives as usize };
        bytes.len() + rest == total as usize && done == sends.len()
    });
    assert!(bytes == data[..bytes.len()], "the bytes are those of the sends");
    cable.ga.stats().tcp_retrans_segs.get()
}

const SENDS: [u32; 12] = [1, 70_000, 1460, 1459, 3, 100_001, 65_536, 8, 0, 1461, 4096, 200_000];

#[test]
fn bytes_fill_receives_of_any_length() {
    for receives in [100_000, 4096, 1461, 64] {
        assert_eq!(exchange(1, Faults::default(), false, &SENDS, receives), 0);
    }
}

#[test]
fn bytes_fill_receives_over_a_bad_cable() {
    // One frame in a hundred is lost, and as many are late or come twice.
    for receives in [100_000, 4096, 2000] {
        assert!(exchange(2, Faults::all(10_000), false, &SENDS, receives) > 0);
    }
}

#[test]
fn pushed_bytes_arrive_over_a_bad_cable() {
    exchange(3, Faults::default(), true, &SENDS, 4096);
    assert!(exchange(4, Faults::all(10_000), true, &SENDS, 10_000) > 0);
}

/// The second of three segments is lost. The third one is in its receive before that comes again.
#[test]
fn bytes_behind_a_gap_are_in_their_receive_at_once() {
    let cable = cable(5, Faults::default());
    let (mut a, mut b) = connected(&cable, false);
    let data = pattern(3 * 1460, 5);
    a.fill(0, &data);
    b.post_recv(1, &[b.sge(0, 2000)]);
    b.post_recv(2, &[b.sge(10_000, 1000), b.sge(20_000, 1380)]);
    let (mut seen, mut lost) = (0, 0);
    cable.links[0].borrow_mut().rule(move |bytes| {
        let length = TcpFrame::parse(bytes).ok().flatten().map_or(0, |it| it.segment.payload.len());
        seen += usize::from(length > 0);
        if length > 0 && seen >= 2 && lost < 1 {
            lost += 1;
            return Fate::Drop;
        }
        Fate::Pass
    });
    send(&mut a, 0, data.len() as u32);
    // The cable takes 2 µs in each direction.
    pass(&cable, 3000);
    assert!(b.recv_cq.poll().is_none(), "completions are in order");
    // Positions 2920 to 4380 are in the second receive, from its byte 920 on.
    assert_eq!(b.bytes(10_920, 80), data[2920..3000]);
    assert_eq!(b.bytes(20_000, 1380), data[3000..]);
    assert_eq!(b.bytes(10_000, 920), [0; 920], "these are missing");
    assert_eq!((received(&cable, &mut b), received(&cable, &mut b)), (2000, 2380));
    assert_eq!(b.bytes(0, 2000), data[..2000]);
    assert_eq!(b.bytes(10_000, 1000), data[2000..3000]);
}

/// Sends of inline data, and of several segments.
#[test]
fn the_bytes_of_a_send_are_a_gather_list() {
    let cable = cable(6, Faults::default());
    let (mut a, mut b) = connected(&cable, false);
    a.fill(0, b"abc");
    a.fill(100, b"defgh");
    b.post_recv(1, &[b.sge(0, 8)]);
    let list = [a.sge(100, 5), a.sge(0, 3)];
    a.post_send(&Wr::new(Opcode::Send, &list));
    assert_eq!((received(&cable, &mut b), b.bytes(0, 8)), (8, b"defghabc".to_vec()));
    assert_eq!(sent(&cable, &mut a), Status::Success);
}

/// Both directions at the same time.
#[test]
fn both_ends_send() {
    let cable = cable(7, Faults::all(10_000));
    let (mut a, mut b) = connected(&cable, false);
    for (end, seed) in [(&mut a, 1), (&mut b, 2)] {
        end.fill(0, &pattern(300_000, seed));
        end.post_recv(1, &[end.sge(1_000_000, 300_000)]);
        send(end, 0, 300_000);
    }
    for (end, seed) in [(&mut a, 2), (&mut b, 1)] {
        assert_eq!(received(&cable, end), 300_000);
        assert!(end.bytes(1_000_000, 300_000) == pattern(300_000, seed));
        assert_eq!(sent(&cable, end), Status::Success);
    }
}
