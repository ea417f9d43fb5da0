//! Two ends, the link between them, virtual time.

use std::time::Duration;

use vrnic_simlink::{Faults, Link};
use vrnic_tcp::context::{Algorithm, Tick, TimestampState};
use vrnic_tcp::{Context, Params, SeqNum, State};

use crate::host::Host;

/// The options that both ends have negotiated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) sack: bool,
    pub(crate) timestamps: bool,
    pub(crate) scale: u8,
    pub(crate) params: Params,
}

impl Default for Options {
    fn default() -> Self {
        let params = Params {
            congestion: Algorithm::Cubic,
            min_rto: Duration::from_millis(10),
            buffer: 64 << 10,
            window: 256 << 10,
            ..Params::default()
        };
        Self { sack: true, timestamps: true, scale: 7, params }
    }
}

/// First numbers of both directions. The first one wraps soon.
const FIRST: [u32; 2] = [0xffff_f000, 7];

/// Returns the state in which an end is taken over.
pub(crate) fn context(own: usize, options: &Options) -> Context {
    let peer = 1 - own;
    let state = |own: usize| [0xffff_fff0, 1000][own];
    let timestamps = TimestampState {
        value: state(own),
        tick: [Tick::Millis, Tick::Micros][own],
        recent: state(peer),
    };
    Context {
        send_next: SeqNum(FIRST[own]),
        receive_next: SeqNum(FIRST[peer]),
        send_window: 60_000,
        max_send_window: 60_000,
        receive_window: 60_000,
        send_scale: options.scale,
        receive_scale: options.scale,
        peer_closed: false,
        mss: 1460,
        sack: options.sack,
        timestamps: options.timestamps.then_some(timestamps),
        round_trip: None,
    }
}

/// Two ends and the link between them.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) hosts: [Host; 2],
    /// The link from each host to the other.
    pub(crate) links: [Link; 2],
    pub(crate) now: u64,
}

impl Pair {
    pub(crate) fn new(seed: u64, options: Options) -> Self {
        let host = |number: u8| {
            let context = context(usize::from(number) - 1, &options);
            Host::new(number, context, &options.params)
        };
        let link = |seed| Link::new(seed, 50_000, 10);
        Self { hosts: [host(1), host(2)], links: [link(seed * 2), link(seed * 2 + 1)], now: 1 }
    }

    pub(crate) fn faults(&mut self, faults: Faults) {
        for link in &mut self.links {
            link.faults(faults);
        }
    }

    /// Delivers frames that have arrived, lets both ends send, and moves the clock to the next
    /// event. Returns whether there is one.
    pub(crate) fn step(&mut self) -> bool {
        for (own, host) in self.hosts.iter_mut().enumerate() {
            while let Some(frame) = self.links[1 - own].receive(self.now) {
                host.frame(self.now, &frame);
            }
            host.poll(self.now, |frame| self.links[own].send(self.now, frame));
        }
        let arrivals = self.links.iter().filter_map(Link::next_arrival);
        let deadlines = self.hosts.iter().filter_map(Host::deadline);
        let held = self.hosts.iter().any(|host| host.sink.held).then_some(self.now + 100_000);
        match arrivals.chain(deadlines.map(|at| at.0)).chain(held).min() {
            Some(next) => {
                self.now = next.max(self.now + 1);
                true
            }
            None => false,
        }
    }

    /// Runs until `done` returns true.
    pub(crate) fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        for _ in 0..3_000_000 {
            if done(self) {
                return;
            }
            if !self.step() {
                break;
            }
        }
        assert!(done(self), "no progress at {} ns: {:#?}", self.now, self.hosts);
    }

    /// Sends bytes in both directions. Waits until all have arrived and are acknowledged.
    pub(crate) fn exchange(&mut self, lengths: [u64; 2]) {
        for (host, len) in self.hosts.iter_mut().zip(lengths) {
            host.source.end += len;
        }
        self.run_until(|pair| {
            (0..2).all(|own| {
                let end = pair.hosts[own].source.end;
                pair.hosts[1 - own].sink.next == end
                    && pair.hosts[own].connection.acknowledged().0 == end
            })
        });
    }

    /// Closes both directions. Waits for the end of both connections.
    pub(crate) fn close(&mut self) {
        for host in &mut self.hosts {
            host.connection.close();
        }
        self.run_until(|pair| {
            let closed = |host: &Host| host.connection.state() == State::Closed;
            pair.hosts.iter().all(closed)
        });
    }
}
