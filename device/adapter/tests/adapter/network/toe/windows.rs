//! The window is what the posted receives hold.
//!
//! Shows: tcp

use std::cell::RefCell;
use std::rc::Rc;

use vrnic_abi::cq::Status;
use vrnic_simlink::{Fate, Faults};
use vrnic_tcp::wire::frame::Frame as TcpFrame;
use vrnic_testdriver::stream;

use super::{apart, cable, connected, pass, received, send, sent};
use crate::cable::Cable;
use crate::network::streams::pattern;

const MS: u64 = 1_000_000;
/// The scale of the windows in [`stream::connection`].
const SCALE: u32 = 7;

/// Returns the last window that B has advertised, in bytes.
fn watch(cable: &Cable) -> Rc<RefCell<Option<u32>>> {
    let last = Rc::new(RefCell::new(None));
    let seen = Rc::clone(&last);
    cable.links[1].borrow_mut().rule(move |bytes| {
        if let Ok(Some(frame)) = TcpFrame::parse(bytes) {
            *seen.borrow_mut() = Some(u32::from(frame.segment.header.window) << SCALE);
        }
        Fate::Pass
    });
    last
}

#[test]
fn the_window_follows_the_receives() {
    let cable = cable(1, Faults::default());
    let (mut a, mut b) = apart(&cable, false);
    let macs = [cable.ga.mac(), cable.gb.mac()];
    // The kernels have promised a little.
    for (number, end) in [(0, &a), (1, &b)] {
        end.guest.take_through(
            end.qpn,
            vrnic_testdriver::qp::attributes(macs[1 - number], 0),
            &vrnic_testdriver::qp::TO_RTS[..1],
        );
        let macs = [macs[number], macs[1 - number]];
        let mut connection = stream::bare_connection(number, macs, stream::MSS);
        connection.receive_window = 4096.into();
        connection.send_window = 4096.into();
        connection.max_send_window = 4096.into();
        end.guest.open_toe(end.qpn, &connection, &[]).expect("OPEN_CONNECTION");
    }
    let window = watch(&cable);
    let data = pattern(200_000, 1);
    a.fill(0, &data);
    send(&mut a, 0, 200_000);
    pass(&cable, 50 * MS);
    let rest = window.borrow().expect("a window");
    assert!(rest < 1460, "no receive is posted, and the promise is used up: {rest}");
    assert!(a.send_cq.poll().is_none());
    for nth in 0..4 {
        b.post_recv(nth, &[b.sge(nth * 50_000, 50_000)]);
    }
    pass(&cable, MS);
    let first = window.borrow().expect("a window");
    assert!(first <= 200_064, "{first}");
    for _ in 0..4 {
        assert_eq!(received(&cable, &mut b), 50_000);
    }
    assert_eq!(sent(&cable, &mut a), Status::Success);
    assert!(b.bytes(0, 200_000) == data);
    pass(&cable, 50 * MS);
    // Each window is rounded up to the unit of the scale, and what was promised is kept.
    let rest = window.borrow().expect("a window");
    assert!(rest < 10_000, "nothing is posted: {rest}");
}

/// Bytes that no receive can take are stored, and are in the receives that come. The peer probes
/// the closed window in the meantime.
#[test]
fn nothing_is_lost_while_no_receive_is_posted() {
    for faults in [Faults::default(), Faults::all(10_000)] {
        let cable = cable(2, faults);
        let (mut a, mut b) = connected(&cable, false);
        // More than the kernel has promised.
        let data = pattern(3_000_000, 2);
        a.fill(0, &data);
        send(&mut a, 0, 3_000_000);
        pass(&cable, 2_000 * MS);
        assert!(a.send_cq.poll().is_none());
        let mut bytes = Vec::new();
        while bytes.len() < data.len() {
            b.post_recv(1, &[b.sge(0, 60_000)]);
            let got = received(&cable, &mut b);
            bytes.extend(b.bytes(0, got));
        }
        assert!(bytes == data);
        assert_eq!(sent(&cable, &mut a), Status::Success);
    }
}

/// Receives open the window when they are posted, without a frame of the peer.
#[test]
fn posting_a_receive_opens_the_window_at_once() {
    let cable = cable(3, Faults::default());
    let (mut a, mut b) = connected(&cable, false);
    send(&mut a, 0, 2_000_000);
    pass(&cable, 3_000 * MS);
    let before = cable.now();
    let mut got = 0;
    while got < 2_000_000 {
        b.post_recv(1, &[b.sge(0, 250_000)]);
        got += received(&cable, &mut b);
    }
    let time = cable.now() - before;
    assert!(time < 100 * MS, "{time} ns");
    assert_eq!(sent(&cable, &mut a), Status::Success);
}
