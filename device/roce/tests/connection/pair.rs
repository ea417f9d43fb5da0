//! Two ends, the link between them, virtual time.

use vrnic_packet::Nanos;
use vrnic_roce::Psn;
use vrnic_roce::requester::{self, Recovery, Requester};
use vrnic_roce::responder::unreliable::UnreliableResponder;
use vrnic_roce::responder::{self, Responder};
use vrnic_roce::time::AckTimeout;
use vrnic_roce::wire::opcode::Transport;
use vrnic_roce::wire::syndrome::RnrTimer;
use vrnic_roce::wire::{Mtu, Qpn};
use vrnic_simlink::{Faults, Link};

use crate::host::{Host, Receiving};

/// Attributes of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) transport: Transport,
    pub(crate) mtu: Mtu,
    /// First numbers of both directions.
    pub(crate) psns: [u32; 2],
    pub(crate) timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) window: u32,
    pub(crate) hold: u32,
    pub(crate) recovery: Recovery,
    pub(crate) congestion_control: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            transport: Transport::Rc,
            mtu: Mtu::M1024,
            psns: [0xff_fff0, 5],
            timeout: 8,
            retry_count: 7,
            rnr_retry: 7,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            window: 128,
            hold: 0,
            recovery: Recovery::GoBackN,
            congestion_control: false,
        }
    }
}

impl Options {
    /// Returns a requester whose packets go to the QP `destination`, and begin with this number.
    pub(crate) fn requester(&self, destination: Qpn, first_psn: u32) -> Requester {
        Requester::new(requester::Config {
            transport: self.transport,
            destination,
            mtu: self.mtu,
            first_psn: Psn::new(first_psn),
            timeout: AckTimeout::new(self.timeout),
            retry_count: self.retry_count,
            rnr_retry: self.rnr_retry,
            max_rd_atomic: self.max_rd_atomic,
            window: self.window,
            recovery: self.recovery,
            congestion_control: self.congestion_control,
            capacity: 256,
        })
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
    /// Connects two hosts.
    pub(crate) fn new(seed: u64, options: Options) -> Self {
        let host = |number: u8| {
            let own = usize::from(number) - 1;
            let destination = Qpn::new(0x10 + 3 - u32::from(number));
            let requester = options.requester(destination, options.psns[own]);
            let first_psn = Psn::new(options.psns[1 - own]);
            let receiving = if options.transport == Transport::Uc {
                Receiving::Unreliable(Box::new(UnreliableResponder::new(options.mtu, first_psn)))
            } else {
                Receiving::Reliable(Box::new(Responder::new(responder::Config {
                    transport: options.transport,
                    destination,
                    mtu: options.mtu,
                    first_psn,
                    min_rnr_timer: RnrTimer::new(2),
                    max_dest_rd_atomic: options.max_dest_rd_atomic,
                    hold: options.hold,
                })))
            };
            Host::new(number, requester, receiving)
        };
        let link = |seed| Link::new(seed, 5_000, 40);
        Self { hosts: [host(1), host(2)], links: [link(seed * 2), link(seed * 2 + 1)], now: 1 }
    }

    /// Sets the faults of both directions.
    pub(crate) fn faults(&mut self, faults: Faults) {
        for link in &mut self.links {
            link.faults(faults);
        }
    }

    /// Delivers frames that have arrived, lets both hosts send, and moves the clock to the next
    /// event. Returns whether there is one.
    pub(crate) fn step(&mut self) -> bool {
        let now = Nanos(self.now);
        for (own, host) in self.hosts.iter_mut().enumerate() {
            while let Some(frame) = self.links[1 - own].receive(self.now) {
                host.frame(now, &frame);
            }
            host.poll(now, |frame| self.links[own].send(self.now, frame));
        }
        let arrivals = self.links.iter().filter_map(Link::next_arrival);
        let deadlines = self.hosts.iter().filter_map(Host::deadline);
        match arrivals.chain(deadlines).min() {
            Some(next) => {
                self.now = next.max(self.now + 1);
                true
            }
            None => false,
        }
    }

    /// Runs until both hosts have completed this many work requests, or no event is left.
    ///
    /// # Panics
    /// If this takes too long.
    pub(crate) fn run(&mut self, completions: [usize; 2]) {
        let done =
            |pair: &Self| (0..2).all(|own| pair.hosts[own].completions.len() >= completions[own]);
        for _ in 0..2_000_000 {
            if done(self) || !self.step() {
                return;
            }
        }
        panic!("no end: {self:?}");
    }

    /// Runs for some nanoseconds.
    pub(crate) fn run_for(&mut self, nanos: u64) {
        let end = self.now + nanos;
        while self.now < end && self.step() {}
    }
}
