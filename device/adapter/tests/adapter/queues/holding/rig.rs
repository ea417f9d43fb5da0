//! Two connected QPs, by each path of messages.

use vrnic_abi::cq::Cqe;
use vrnic_abi::qp::Attr;
use vrnic_simlink::Faults;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::stream;

use crate::bus::Endpoint;
use crate::cable::Cable;
use crate::network::streams::pairs::Daemon;

/// A millisecond in nanoseconds.
pub(super) const MS: u64 = 1_000_000;

/// The path of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
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
    pub(super) const ALL: [Self; 6] = [
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

/// Two connected QPs.
pub(super) struct Rig {
    pub(super) path: Path,
    network: Network,
    pub(super) a: Endpoint,
    pub(super) b: Endpoint,
}

impl Rig {
    /// Connects endpoints with these setups.
    pub(super) fn new(path: Path, a: Setup, b: Setup) -> Self {
        let rig = Self::apart(path, a, b);
        rig.connect(&rig.a, &rig.b);
        rig
    }

    /// Connects endpoints with these setups by RoCE, with a limited number of tries for which the
    /// peer has no receive.
    pub(super) fn limited(path: Path, a: Setup, b: Setup) -> Self {
        let rig = Self::apart(path, a, b);
        Endpoint::connect_pair(&rig.a, &rig.b);
        rig
    }

    fn apart(path: Path, a: Setup, b: Setup) -> Self {
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

    /// Connects two other endpoints of the same guests.
    pub(super) fn connect(&self, a: &Endpoint, b: &Endpoint) {
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
    pub(super) fn pass(&self, time: u64) {
        match &self.network {
            Network::Daemon(daemon) => daemon.pass(time),
            Network::Cable(cable) => {
                let end = cable.now() + time;
                cable.run_until(|| cable.now() >= end);
            }
        }
    }

    /// Waits for B's next receive.
    pub(super) fn received(&mut self) -> Cqe {
        for _ in 0..2000 {
            if let Some(cqe) = self.b.recv_cq.poll() {
                return cqe;
            }
            self.pass(MS);
        }
        panic!("no receive, {:?}", self.path);
    }

    /// Waits for A's next completion.
    pub(super) fn sent(&mut self) -> Cqe {
        for _ in 0..2000 {
            if let Some(cqe) = self.a.send_cq.poll() {
                return cqe;
            }
            self.pass(MS);
        }
        panic!("no completion, {:?}", self.path);
    }
}
