//! Receives that are not full, and that the program asks for.
//!
//! Shows: tcp

use vrnic_abi::qp::State;
use vrnic_simlink::{Fate, Faults};
use vrnic_tcp::wire::frame::Frame as TcpFrame;
use vrnic_testdriver::stream;

use super::{END, apart, cable, connected, pass, received, release, send};
use crate::network::streams::pattern;

const MS: u64 = 1_000_000;

#[test]
fn a_release_completes_the_receive_in_progress() {
    for push in [false, true] {
        let cable = cable(1, Faults::default());
        let (mut a, mut b) = connected(&cable, push);
        let data = pattern(3000, 1);
        a.fill(0, &data);
        for nth in 0..3 {
            b.post_recv(nth, &[b.sge(nth * 5000, 5000)]);
        }
        // One without bytes stays.
        release(&b, 1);
        pass(&cable, MS);
        assert!(b.recv_cq.poll().is_none(), "it has no bytes");
        send(&mut a, 0, 1000);
        pass(&cable, MS);
        release(&b, 2);
        assert_eq!(received(&cable, &mut b), 1000, "push: {push}");
        // The bytes that follow are in the next receive, and nothing is released by itself.
        send(&mut a, 1000, 2000);
        pass(&cable, MS);
        if !push {
            assert!(b.recv_cq.poll().is_none(), "nothing was asked for");
            release(&b, 3);
        }
        assert_eq!(received(&cable, &mut b), 2000);
        assert!(b.bytes(0, 1000) == data[..1000] && b.bytes(5000, 2000) == data[1000..]);
        // The last receive is there for the end.
        release(&b, 4);
        a.set_state(State::Sqd);
        assert_eq!(received(&cable, &mut b), END);
    }
}

/// Bytes behind a gap are at their final places in the receive in progress, so the request waits
/// for those before them. No byte is lost or at another place.
#[test]
fn a_release_waits_for_bytes_in_front_of_placed_ones() {
    let cable = cable(2, Faults::default());
    let (mut a, mut b) = connected(&cable, false);
    let data = pattern(5 * 1460, 2);
    a.fill(0, &data);
    b.post_recv(1, &[b.sge(0, 20_000)]);
    b.post_recv(2, &[b.sge(20_000, 20_000)]);
    let mut seen = 0;
    cable.links[0].borrow_mut().rule(move |bytes| {
        let length = TcpFrame::parse(bytes).ok().flatten().map_or(0, |it| it.segment.payload.len());
        seen += usize::from(length > 0);
        if length > 0 && seen == 2 { Fate::Drop } else { Fate::Pass }
    });
    send(&mut a, 0, data.len() as u32);
    // The cable takes 2 µs in each direction.
    pass(&cable, 3000);
    assert_eq!(b.bytes(2920, 100), data[2920..3020], "they are placed behind the gap");
    release(&b, 1);
    assert_eq!(received(&cable, &mut b), data.len());
    assert!(b.bytes(0, data.len()) == data);
}

/// The same with random requests over a cable that loses, doubles and delays frames.
#[test]
fn random_releases_keep_the_bytes_in_order() {
    let cable = cable(3, Faults::all(10_000));
    let (mut a, mut b) = connected(&cable, false);
    let data = pattern(800_000, 3);
    a.fill(0, &data);
    send(&mut a, 0, 800_000);
    let (mut posted, mut got, mut nth, mut short, mut last) = (0u64, 0u64, 0u32, 0, 0);
    let mut bytes = Vec::new();
    let mut random = 7u32;
    cable.run_until(|| {
        while posted - got < 8 {
            b.post_recv(posted, &[b.sge(posted % 16 * 10_000, 10_000)]);
            posted += 1;
        }
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Time passes only while both ends have nothing to do.
        if cable.now() > last && (random >> 24 < 40 || bytes.len() + 10_000 > data.len()) {
            (nth, last) = (nth + 1, cable.now());
            release(&b, nth);
        }
        while let Some(cqe) = b.recv_cq.poll() {
            let len = cqe.byte_len.get() as usize;
            assert!(len > 0 && len <= 10_000);
            short += usize::from(len < 10_000);
            bytes.extend(b.bytes(got % 16 * 10_000, len));
            got += 1;
        }
        bytes.len() >= data.len()
    });
    assert!(bytes == data && short > 10, "{} bytes, {short} short receives", bytes.len());
    assert!(cable.ga.stats().tcp_retrans_segs.get() > 0);
}

/// Requests from before the connection have no effect on it, and bytes of the kernel are released
/// like others.
#[test]
fn a_release_before_the_takeover_is_none() {
    let cable = cable(4, Faults::default());
    let (a, mut b) = apart(&cable, false);
    release(&b, 9);
    stream::open_toe(&a, 0, cable.gb.mac(), &[]).expect("OPEN_CONNECTION");
    stream::open_toe(&b, 1, cable.ga.mac(), b"early").expect("OPEN_CONNECTION");
    b.post_recv(1, &[b.sge(0, 100)]);
    pass(&cable, MS);
    assert!(b.recv_cq.poll().is_none(), "it came before the connection");
    release(&b, 10);
    assert_eq!((received(&cable, &mut b), b.bytes(0, 5)), (5, b"early".to_vec()));
}
