//! Tests that a line which always has frames does not shut out others while a worker runs the
//! switch. What others wait for is counted in the flood's turns.
//!
//! Shows: network

use std::io::{ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::*;
use crate::net::framing::prefix;
use crate::net::netdev::Netdev;
use vrnic_control::socket::SocketFile;
use vrnic_control::socket::access::Access;

/// Returns the bytes of a frame in the stream of a network card.
fn streamed(to: MacAddr, from: MacAddr) -> Vec<u8> {
    let frame = Frame::new(frame(to, from, 0)).expect("a frame");
    [&prefix(&frame)[..], frame.bytes()].concat()
}

/// Adds a function, and connects its network card as QEMU does.
fn card(switch: &mut Switch, folder: &Path, mac: MacAddr) -> UnixStream {
    let (id, path) = (switch.next, folder.join(format!("{mac}")));
    let line = Netdev::new(SocketFile::bind(&path, &Access::default()).expect("a socket"));
    let setup = function("a card", mac, &Taker::default());
    switch.add(PortSetup { line: Some(Box::new(line)), ..setup }).expect("a port");
    let stream = UnixStream::connect(&path).expect("a connection");
    stream.set_nonblocking(true).expect("a socket");
    switch.serve_door(id);
    stream
}

/// A network card that sends short frames as fast as the switch reads them.
struct Flood {
    card: UnixStream,
    frames: Vec<u8>,
    /// The place of the next byte.
    next: usize,
}

impl Flood {
    fn new(card: UnixStream, from: MacAddr) -> Self {
        Self { card, frames: streamed(B, from).repeat(100), next: 0 }
    }

    fn go_on(&mut self) {
        loop {
            match self.card.write(&self.frames[self.next..]) {
                Ok(written) => self.next = (self.next + written) % self.frames.len(),
                Err(error) => return assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
    }
}

/// Returns the sources of the frames that an adapter has got.
fn sources(taker: &Taker) -> Vec<MacAddr> {
    let frames = std::mem::take(&mut *taker.frames.lock());
    frames.into_iter().map(|frame| Frame::try_from(frame).expect("a frame").source()).collect()
}

/// Each network card has a turn before another one has its second.
#[test]
fn a_flood_of_cards_delays_another_card_by_a_turn_each() {
    for count in [1, 6] {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut switch, _handle) = switch();
        let taker = Taker::default();
        switch.add(function("b", B, &taker)).expect("a port");
        let mac = |n: usize| MacAddr([2, 0, 0, 0, 1, u8::try_from(n).expect("small")]);
        let mut floods: Vec<Flood> = (0..count)
            .map(|n| Flood::new(card(&mut switch, folder.path(), mac(n)), mac(n)))
            .collect();
        let mut honest = card(&mut switch, folder.path(), A);
        for nth in 0..100 {
            // Epoll finds the card idle, and then behind those that always have frames.
            for _ in 0..5 {
                floods.iter_mut().for_each(Flood::go_on);
                switch.serve_wires(TIME);
            }
            sources(&taker);
            honest.write_all(&streamed(B, A)).expect("room for a frame");
            let mut turns = 0;
            loop {
                floods.iter_mut().for_each(Flood::go_on);
                switch.serve_wires(TIME);
                let sources = sources(&taker);
                if sources.contains(&A) {
                    break;
                }
                turns += usize::from(!sources.is_empty());
                // Epoll reports some cards at a time.
                assert!(turns <= count + 2, "frame {nth} waits for {turns} turns of {count} cards");
            }
        }
    }
}

#[test]
fn a_flood_of_an_uplink_delays_another_line_by_a_few_turns() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut switch, _handle) = switch();
    let taker = Taker::default();
    switch.add(function("b", B, &taker)).expect("a port");
    let add = |switch: &mut Switch, line| {
        let setup = PortSetup { kind: Kind::Packet, line: Some(line), ..uplink() };
        switch.add(setup).expect("a port");
    };
    add(&mut switch, flood(&[B], STATION));
    let other = MacAddr([2, 0, 0, 0, 0, 4]);
    let single = Frame::new(frame(B, other, 0)).expect("a frame");
    add(&mut switch, Scripted::line(move |frames, _| frames.push(single.clone())));
    let mut honest = card(&mut switch, folder.path(), A);
    let mut turns = [0; 2];
    for _ in 0..1000 {
        honest.write_all(&streamed(B, A)).expect("room for a frame");
        switch.serve_wires(TIME);
        let sources = sources(&taker);
        for (from, turns) in [A, other].iter().zip(&mut turns) {
            *turns = if sources.contains(from) { 0 } else { *turns + 1 };
        }
        assert!(turns.iter().all(|turns| *turns <= 12), "frames wait for {turns:?} turns");
    }
}
