//! The end of connections to the kernel.
//!
//! Shows: tcp

use std::io::{ErrorKind, Read};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use vrnic_tcp::State;
use vrnic_tcp::connection::{End, Event};

use crate::network::{Network, Setup};
use crate::peer::{self, Pace};
use crate::station::{Opener, Station};
use crate::{LATENCY, params};

/// Number of bytes that are exchanged before an end.
const LEN: u64 = 100_000;

/// Opens a connection and moves some bytes in both directions.
fn open(network: &Network, latency: u64) -> (Station<'_>, TcpStream) {
    let (mut station, stream) = Station::open(network, Opener::Engine, &params(), latency);
    let stream = station.exchange(LEN, LEN, move || {
        peer::exchange(&stream, LEN, Pace::default());
        stream
    });
    (station, stream)
}

/// Waits until the kernel's connections have these states.
fn wait_for_states(station: &mut Station<'_>, network: &Network, states: &[&str]) {
    station.run_until(|_| network.states() == states);
}

#[test]
fn the_engine_closes_first() {
    let Some(network) = Network::new(Setup::default()) else { return };
    let (mut station, stream) = open(&network, LATENCY);
    station.host.connection.close();
    let stream = station.run(move || peer::end(&stream).map(|()| stream)).expect("the end");
    station.run_until(|host| host.connection.state() == State::FinWait2);
    wait_for_states(&mut station, &network, &["CLOSE-WAIT"]);
    // The other direction still works.
    let wrote = station.exchange(0, 2 * LEN, move || peer::write(&stream, LEN..2 * LEN));
    wrote.expect("room");
    station.wait_for(Event::Closed);
    station.wait_for(Event::Ended(End::Closed));
    wait_for_states(&mut station, &network, &[]);
}

#[test]
fn the_kernel_closes_first() {
    let Some(network) = Network::new(Setup::default()) else { return };
    let (mut station, stream) = open(&network, LATENCY);
    stream.shutdown(Shutdown::Write).expect("the end");
    station.wait_for(Event::PeerClosed);
    assert_eq!(station.host.connection.state(), State::CloseWait);
    let stream = station.exchange(LEN, LEN, move || {
        peer::read(&stream, LEN..2 * LEN, Pace::default());
        stream
    });
    wait_for_states(&mut station, &network, &["FIN-WAIT-2"]);
    station.host.connection.close();
    station.run(move || peer::end(&stream)).expect("the end");
    station.wait_for(Event::Ended(End::Closed));
    wait_for_states(&mut station, &network, &["TIME-WAIT"]);
}

/// With this latency, the ends of both directions pass each other on the way.
#[test]
fn both_close_at_once() {
    let Some(network) = Network::new(Setup::default()) else { return };
    let (mut station, stream) = open(&network, 20_000_000);
    stream.shutdown(Shutdown::Write).expect("the end");
    station.host.connection.close();
    station.flush();
    station.run_until(|host| host.connection.state() != State::FinWait1);
    assert_ne!(station.host.connection.state(), State::FinWait2);
    station.run(move || peer::end(&stream)).expect("the end");
    station.wait_for(Event::Closed);
    assert_eq!(station.host.connection.state(), State::TimeWait);
    wait_for_states(&mut station, &network, &["TIME-WAIT"]);
}

#[test]
fn the_kernel_resets() {
    let Some(network) = Network::new(Setup::default()) else { return };
    let (mut station, stream) = open(&network, LATENCY);
    set_socket_linger(&stream, Some(Duration::ZERO)).expect("an option");
    drop(stream);
    station.wait_for(Event::Ended(End::Reset));
    assert_eq!(station.host.connection.state(), State::Closed);
    wait_for_states(&mut station, &network, &[]);
}

/// A kernel socket that is closed with bytes unread resets the connection.
#[test]
fn the_kernel_resets_with_bytes_unread() {
    let Some(network) = Network::new(Setup::default()) else { return };
    let (mut station, stream) = open(&network, LATENCY);
    station.exchange(1000, LEN, || ());
    drop(stream);
    station.wait_for(Event::Ended(End::Reset));
    wait_for_states(&mut station, &network, &[]);
}

#[test]
fn the_engine_aborts() {
    for under_way in [0, LEN] {
        let Some(network) = Network::new(Setup::default()) else { return };
        let (mut station, mut stream) = open(&network, LATENCY);
        station.host.source.end += under_way;
        station.flush();
        station.host.connection.abort();
        let result = station.run(move || {
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes)
        });
        assert_eq!(result.expect_err("an error").kind(), ErrorKind::ConnectionReset);
        assert!(station.host.events.contains(&Event::Ended(End::Aborted)));
        wait_for_states(&mut station, &network, &[]);
    }
}
