//! The engine on a TAP device, with faults in both directions, in real time.

use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use vrnic_simlink::{Fate, Faults, Link};
use vrnic_tcp::connection::Event;
use vrnic_tcp::{Context, Params};

use crate::handshake;
use crate::host::Host;
use crate::network::{Network, Tap};

/// Time limit of a test.
const LIMIT: Duration = Duration::from_secs(60);
/// Maximum time of a turn in nanoseconds, after which threads of the kernel's side are checked
/// again.
const TURN: u64 = 1_000_000;
/// Indices of the links to the kernel and from it.
const OUT: usize = 0;
const IN: usize = 1;
/// The number of the engine among the hosts. The kernel has number 2.
const NUMBER: u8 = 1;

/// The end of a connection that starts the handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Opener {
    Engine,
    Kernel,
}

/// The engine's end of a connection.
#[derive(Debug)]
pub(crate) struct Station<'a> {
    pub(crate) host: Host,
    pub(crate) context: Context,
    tap: &'a Tap,
    links: [Link; 2],
    since: Instant,
}

impl<'a> Station<'a> {
    /// Opens a connection to the kernel. Frames take `latency` nanoseconds in each direction.
    pub(crate) fn open(
        network: &'a Network,
        opener: Opener,
        params: &Params,
        latency: u64,
    ) -> (Self, TcpStream) {
        let ((path, context), stream) = match opener {
            Opener::Engine => {
                let listener = network.listen();
                let opened = handshake::connect(network);
                (opened, listener.accept().expect("a connection").0)
            }
            Opener::Kernel => thread::scope(|scope| {
                let stream = scope.spawn(|| network.connect());
                let opened = handshake::accept(network);
                (opened, stream.join().expect("a connection"))
            }),
        };
        for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
            set(&stream, Some(LIMIT)).expect("a limit");
        }
        let mut host = Host::new(NUMBER, context, params);
        host.path = path;
        let links = [11, 12].map(|seed| Link::new(seed, latency, 10));
        (Self { host, context, tap: &network.tap, links, since: Instant::now() }, stream)
    }

    pub(crate) fn faults(&mut self, faults: Faults) {
        for link in &mut self.links {
            link.faults(faults);
        }
    }

    /// Drops all frames from now on.
    pub(crate) fn cut(&mut self) {
        self.links.iter_mut().for_each(|link| link.rule(|_| Fate::Drop));
    }

    fn now(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_nanos()).expect("a short test")
    }

    /// Sends the segments that the connection has to send.
    pub(crate) fn flush(&mut self) {
        let now = self.now();
        let out = &mut self.links[OUT];
        self.host.poll(now, |frame| out.send(now, frame));
        while let Some(frame) = self.links[OUT].receive(now) {
            self.tap.send(&frame);
        }
    }

    /// Passes frames in both directions, and waits for the next frames.
    fn turn(&mut self) {
        let now = self.now();
        while let Some(frame) = self.tap.receive() {
            self.links[IN].send(now, &frame);
        }
        while let Some(frame) = self.links[IN].receive(now) {
            self.host.frame(now, &frame);
        }
        self.flush();
        let arrivals = self.links.iter().filter_map(Link::next_arrival);
        let deadline = self.host.connection.deadline().map(|at| at.0);
        let now = self.now();
        let next = arrivals.chain(deadline).fold(now + TURN, u64::min);
        self.tap.wait(Duration::from_nanos(next.saturating_sub(now)));
    }

    /// Runs until `done` returns true.
    #[track_caller]
    pub(crate) fn run_until(&mut self, done: impl Fn(&Host) -> bool) {
        while !done(&self.host) {
            let connection = &self.host.connection;
            assert!(self.since.elapsed() < LIMIT, "no progress: {connection:#?}");
            self.turn();
        }
    }

    /// Runs until `work` in another thread has ended.
    #[track_caller]
    pub(crate) fn run<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let thread = thread::spawn(work);
        self.run_until(|_| thread.is_finished());
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Runs until this event has come.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, event: Event) {
        self.run_until(|host| host.events.contains(&event));
    }

    /// Makes bytes ready to be sent. Runs until work in another thread has ended, all of these
    /// bytes are acknowledged, and the kernel's bytes before `position` have arrived.
    #[track_caller]
    pub(crate) fn exchange<T: Send + 'static>(
        &mut self,
        len: u64,
        position: u64,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        self.host.source.end += len;
        let result = self.run(work);
        self.run_until(|host| {
            host.sink.next == position && host.connection.acknowledged().0 == host.source.end
        });
        result
    }
}
