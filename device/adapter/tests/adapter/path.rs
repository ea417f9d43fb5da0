//! Two QPs that reach each other by one of the paths of messages.

use vrnic_abi::cq::{Cqe, Status};
use vrnic_abi::qp::Attr;
use vrnic_simlink::{Faults, Link};
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::stream;
use vrnic_testdriver::wr::Wr;

use crate::bus::Endpoint;
use crate::cable::Cable;
use crate::network::streams::pairs::Daemon;

/// A millisecond in nanoseconds.
pub(crate) const MS: u64 = 1_000_000;
/// Number of milliseconds in which a completion must come.
const LIMIT: usize = 10_000;

/// The path of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// RoCE, copied in a daemon.
    Copies,
    /// RoCE packets in a daemon.
    Packets,
    /// RoCE packets between two daemons.
    Cable,
    /// iWARP, copied in a daemon.
    StreamCopies,
    /// iWARP segments in a daemon.
    Stream,
    /// iWARP segments between two daemons.
    StreamCable,
}

impl Path {
    pub(crate) const ROCE: [Self; 3] = [Self::Copies, Self::Packets, Self::Cable];
    pub(crate) const ALL: [Self; 6] = [
        Self::Copies,
        Self::Packets,
        Self::Cable,
        Self::StreamCopies,
        Self::Stream,
        Self::StreamCable,
    ];

    fn is_stream(self) -> bool {
        matches!(self, Self::StreamCopies | Self::Stream | Self::StreamCable)
    }
}

/// The connection between the adapters.
enum Network {
    Daemon(Daemon),
    Cable(Box<Cable>),
}

/// Two QPs of two guests.
pub(crate) struct Ends {
    pub(crate) path: Path,
    network: Network,
    pub(crate) a: Endpoint,
    pub(crate) b: Endpoint,
}

impl Ends {
    /// Connects endpoints with these setups. A sender by RoCE waits for a receive without end.
    pub(crate) fn new(path: Path, a: Setup, b: Setup) -> Self {
        let ends = Self::apart(path, a, b);
        ends.connect(&ends.a, &ends.b);
        ends
    }

    /// Connects endpoints with these setups by RoCE, with a limited number of tries for which the
    /// peer has no receive.
    pub(crate) fn limited(path: Path, a: Setup, b: Setup) -> Self {
        let ends = Self::apart(path, a, b);
        Endpoint::connect_pair(&ends.a, &ends.b);
        ends
    }

    /// Creates endpoints with these setups, which are not connected.
    pub(crate) fn apart(path: Path, a: Setup, b: Setup) -> Self {
        let network = match path {
            Path::Cable | Path::StreamCable => {
                Network::Cable(Box::new(Cable::new(7, Faults::default())))
            }
            Path::Copies | Path::StreamCopies => Network::Daemon(Daemon::new(false)),
            Path::Packets | Path::Stream => Network::Daemon(Daemon::new(true)),
        };
        let (ga, gb) = match &network {
            Network::Daemon(daemon) => (&daemon.guests[0], &daemon.guests[1]),
            Network::Cable(cable) => (&cable.ga, &cable.gb),
        };
        let (a, b) = (Endpoint::new(ga, a), Endpoint::new(gb, b));
        Self { path, network, a, b }
    }

    /// Makes frames of A that leave together arrive together at the other end of the cable. Without
    /// this, B answers each request before the next one arrives.
    pub(crate) fn make_fast(&self) {
        if let Network::Cable(cable) = &self.network {
            *cable.links[0].borrow_mut() = Link::new(1, 2_000, 10_000);
        }
    }

    /// Connects two other endpoints of the same guests.
    pub(crate) fn connect(&self, a: &Endpoint, b: &Endpoint) {
        if self.path.is_stream() {
            stream::connect_pair(a, b);
            self.pass(2 * MS);
        } else {
            // Packets for which there is no entry are answered as those without a receive.
            let endless = |attr: &mut Attr| attr.rnr_retry = 7;
            a.connect(b.guest.mac(), b.qpn, endless);
            b.connect(a.guest.mac(), a.qpn, endless);
        }
    }

    /// Runs the adapters for this time.
    pub(crate) fn pass(&self, time: u64) {
        match &self.network {
            Network::Daemon(daemon) => daemon.pass(time),
            Network::Cable(cable) => cable.pass(time),
        }
    }

    /// Waits for B's next receive.
    pub(crate) fn received(&mut self) -> Cqe {
        for _ in 0..LIMIT {
            if let Some(cqe) = self.b.recv_cq.poll() {
                return cqe;
            }
            self.pass(MS);
        }
        panic!("no receive, {:?}", self.path);
    }

    /// Waits for A's next completion.
    pub(crate) fn sent(&mut self) -> Cqe {
        for _ in 0..LIMIT {
            if let Some(cqe) = self.a.send_cq.poll() {
                return cqe;
            }
            self.pass(MS);
        }
        panic!("no completion, {:?}", self.path);
    }

    /// Posts work requests of A, all at once or each after the end of the one before it. Returns
    /// the statuses of their completions.
    pub(crate) fn run(&mut self, requests: &[Wr], one_by_one: bool) -> Vec<Status> {
        let mut sent = Vec::new();
        for (request, count) in requests.iter().zip(1..) {
            self.a.store_send(request);
            if one_by_one || count == requests.len() {
                self.a.ring();
                while sent.len() < count {
                    sent.push(status(&self.sent()));
                }
            }
        }
        self.pass(10 * MS);
        sent.extend(std::iter::from_fn(|| self.a.send_cq.poll()).map(|cqe| status(&cqe)));
        sent
    }
}
