//! Probes of idle connections.
//!
//! Shows: tcp

use std::thread;
use std::time::Duration;

use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl,
};
use vrnic_tcp::connection::{End, Event};
use vrnic_tcp::{Params, State};

use crate::network::{Network, Setup};
use crate::peer::{self, Pace};
use crate::station::{Opener, Station};
use crate::{LATENCY, params};

/// The shortest idle time of a socket, and that of the engine.
const SECOND: Duration = Duration::from_secs(1);
const IDLE: Duration = Duration::from_millis(200);
const LEN: u64 = 1000;

#[test]
fn both_ends_answer_probes() {
    let Some(network) = Network::new(Setup::default()) else { return };
    let params = Params { keepalive: Some(IDLE), ..params() };
    let (mut station, stream) = Station::open(&network, Opener::Engine, &params, LATENCY);
    set_tcp_keepidle(&stream, SECOND).expect("an option");
    set_tcp_keepintvl(&stream, SECOND).expect("an option");
    set_tcp_keepcnt(&stream, 1).expect("an option");
    set_socket_keepalive(&stream, true).expect("an option");
    let before = station.host.sent;
    station.run(|| thread::sleep(SECOND * 5));
    assert_eq!(station.host.connection.state(), State::Established);
    assert_eq!(network.states(), ["ESTAB"]);
    assert!(network.counter("TcpExtTCPKeepAlive") >= 3, "probes of the kernel");
    assert!(station.host.sent - before >= 10, "probes of the engine, and answers");
    let stream = station.exchange(LEN, LEN, move || {
        peer::exchange(&stream, LEN, Pace::default());
        stream
    });
    station.cut();
    station.wait_for(Event::Ended(End::TimedOut));
    drop(stream);
}
