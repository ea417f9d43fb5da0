//! Connections to the kernel's TCP through a TAP device in a network namespace, in real time. The
//! tests are skipped with a message where no namespace can be made.
//!
//! Shows: tcp
//!
//! | module | contents |
//! | --- | --- |
//! | [`network`] | a kernel with a TAP device |
//! | [`handshake`] | the handshake, frame by frame |
//! | [`station`] | the engine on the TAP device, with faults in both directions |
//! | [`peer`] | the kernel's side of a stream |
//! | [`host`] | one end of a connection, with conditions that always hold |
//! | `closing` | the end of connections |
//! | `keepalive` | probes of idle connections |

mod closing;
mod handshake;
#[path = "../stream/host.rs"]
#[allow(dead_code)]
mod host;
mod keepalive;
mod network;
mod peer;
mod station;

use std::time::Duration;

use network::{Network, Setup};
use peer::Pace;
use station::{Opener, Station};
use vrnic_simlink::Faults;
use vrnic_tcp::connection::Event;
use vrnic_tcp::{Context, Counters, Params};

const MB: u64 = 1 << 20;
/// The latency of a link in nanoseconds.
const LATENCY: u64 = 50_000;
/// Chances in a million: of 100 frames, one is lost, one is duplicated, and two are late.
const FAULTS: Faults =
    Faults { drop: 10_000, duplicate: 10_000, delay: 20_000, corrupt: 2_000, truncate: 2_000 };

/// Returns parameters with short waits.
fn params() -> Params {
    Params {
        min_rto: Duration::from_millis(50),
        time_wait: Duration::from_secs(5),
        ..Params::default()
    }
}

/// A stream in both directions.
struct Exchange {
    setup: Setup,
    opener: Opener,
    params: Params,
    faults: Faults,
    len: u64,
    pace: Pace,
    /// Chances in 256 that the engine's receiver places early bytes, holds bytes back, refuses
    /// bytes.
    receiver: [u8; 3],
}

impl Default for Exchange {
    fn default() -> Self {
        Self {
            setup: Setup::default(),
            opener: Opener::Engine,
            params: params(),
            faults: FAULTS,
            len: 2 * MB,
            pace: Pace::default(),
            receiver: [128, 0, 0],
        }
    }
}

impl Exchange {
    /// Exchanges the bytes, and closes both directions, the engine's first. Returns the negotiated
    /// state and the engine's counters, or nothing if no network can be made.
    fn run(self) -> Option<(Context, Counters)> {
        let network = Network::new(self.setup)?;
        let (mut station, stream) = Station::open(&network, self.opener, &self.params, LATENCY);
        station.faults(self.faults);
        let sink = &mut station.host.sink;
        [sink.place, sink.hold, sink.refuse] = self.receiver;
        let (len, pace) = (self.len, self.pace);
        let stream = station.exchange(len, len, move || {
            peer::exchange(&stream, len, pace);
            stream
        });
        station.host.connection.close();
        station.run(move || peer::end(&stream)).expect("the end of the stream");
        station.wait_for(Event::Closed);
        assert_eq!((station.host.sink.next, station.host.source.end), (len, len));
        // The kernel has found no fault in the engine's segments. It counts reports of frames that
        // the link has duplicated as faults, so this is checked only without faults.
        if self.faults == Faults::default() {
            for name in ["TcpInErrs", "TcpExtPAWSEstab", "TcpExtTCPSACKDiscard"] {
                assert_eq!(network.counter(name), 0, "{name}");
            }
        }
        Some((station.context, station.host.connection.counters()))
    }
}

#[test]
fn streams_without_faults() {
    for opener in [Opener::Engine, Opener::Kernel] {
        let exchange =
            Exchange { opener, faults: Faults::default(), len: 8 * MB, ..Exchange::default() };
        let Some((context, _)) = exchange.run() else { return };
        assert!(context.sack && context.timestamps.is_some() && context.send_scale > 0);
    }
}

#[test]
fn streams_over_a_bad_link() {
    for opener in [Opener::Engine, Opener::Kernel] {
        let exchange = Exchange { opener, len: 4 * MB, ..Exchange::default() };
        let Some((_, counters)) = exchange.run() else { return };
        assert!(counters.send.recoveries > 0 && counters.send.duplicates > 0, "{counters:?}");
    }
}

#[test]
fn streams_without_timestamps() {
    let setup = Setup { settings: "net.ipv4.tcp_timestamps=0", ..Setup::default() };
    let exchange = Exchange { setup, opener: Opener::Kernel, ..Exchange::default() };
    let Some((context, counters)) = exchange.run() else { return };
    assert!(context.timestamps.is_none() && context.sack && counters.send.recoveries > 0);
}

/// Such a kernel cannot determine which segments are lost. Each time that it sends a segment
/// unnecessarily, it doubles its wait, so the window is small.
#[test]
fn streams_without_selective_acknowledgements() {
    const SACK: &str = "net.ipv4.tcp_sack=0 net.ipv4.tcp_congestion_control=reno";
    const BOTH: &str =
        "net.ipv4.tcp_sack=0 net.ipv4.tcp_timestamps=0 net.ipv4.tcp_congestion_control=reno";
    let params = Params { window: 32 << 10, buffer: 32 << 10, ..params() };
    for settings in [SACK, BOTH] {
        let setup = Setup { settings, ..Setup::default() };
        let exchange = Exchange { setup, params, ..Exchange::default() };
        let Some((context, counters)) = exchange.run() else { return };
        assert!(!context.sack && counters.send.recoveries > 0);
    }
}

#[test]
fn streams_without_scaled_windows() {
    let setup = Setup { settings: "net.ipv4.tcp_window_scaling=0", ..Setup::default() };
    let Some((context, _)) = Exchange { setup, ..Exchange::default() }.run() else { return };
    assert_eq!((context.send_scale, context.receive_scale), (0, 0));
}

#[test]
fn streams_with_long_frames_and_over_ipv6() {
    for (mtu, v6) in [(9000, false), (9000, true), (1500, true)] {
        let setup = Setup { mtu, v6, ..Setup::default() };
        let Some((context, _)) = Exchange { setup, ..Exchange::default() }.run() else { return };
        assert_eq!(context.mss, mtu - if v6 { 60 } else { 40 });
    }
}

/// The kernel has little buffer memory, and its reader begins late: its window closes.
#[test]
fn streams_to_a_slow_reader() {
    let setup = Setup { settings: "net.ipv4.tcp_rmem='4096 8192 8192'", ..Setup::default() };
    let pace = Pace { before: Duration::from_millis(400), between: Duration::from_millis(1) };
    for faults in [Faults::default(), FAULTS] {
        let exchange = Exchange { setup, pace, faults, len: MB / 2, ..Exchange::default() };
        let Some((_, counters)) = exchange.run() else { return };
        assert!(counters.send.window_probes > 0, "{counters:?}");
    }
}

/// The engine has little buffer memory, and its receiver holds bytes back and refuses some.
#[test]
fn streams_from_a_kernel_that_must_wait() {
    let params = Params { window: 16 << 10, buffer: 12 << 10, ..params() };
    for faults in [Faults::default(), FAULTS] {
        let receiver = [128, 60, 5];
        let exchange = Exchange { params, faults, receiver, len: MB / 2, ..Exchange::default() };
        if exchange.run().is_none() {
            return;
        }
    }
}
