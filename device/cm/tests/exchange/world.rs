//! Two adapters with a connection manager each.

use std::time::Duration;

use vrnic_cm::manager::calls::Connect;
use vrnic_cm::manager::receive::Arrival;
use vrnic_cm::manager::{ConnectionId, Manager, Outgoing};
use vrnic_cm::parameters::{Ece, Path, Qp, Transport};
use vrnic_cm::state::Event;
use vrnic_packet::Nanos;

/// The service that tests use.
pub(crate) const SERVICE: u64 = 0x106_1d2f;
/// The most connections of an adapter.
pub(crate) const MOST: usize = 64;

/// What the network does to messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Of how many messages in a hundred each is lost.
    pub(crate) lost: u32,
    /// Of how many messages in a hundred each arrives twice.
    pub(crate) doubled: u32,
    /// The longest time that a message takes.
    pub(crate) delay: Duration,
}

/// The adapters and the messages between them.
pub(crate) struct World {
    pub(crate) now: Nanos,
    pub(crate) managers: [Manager; 2],
    travels: Vec<(Nanos, Outgoing)>,
    faults: Faults,
    random: fastrand::Rng,
}

/// Returns the GID of an adapter.
pub(crate) fn gid(side: usize) -> [u8; 16] {
    [side as u8 + 1; 16]
}

/// Returns the way from an adapter to the other one.
pub(crate) fn path(side: usize) -> Path {
    let (source, dest) = (gid(side), gid(1 - side));
    Path { source, dest, hop_limit: 64, mtu: 5, lifetime: 16, ..Path::default() }
}

/// Returns a queue pair.
pub(crate) fn qp(qpn: u32) -> Qp {
    Qp {
        qpn,
        psn: qpn + 1,
        responder_resources: 3,
        initiator_depth: 5,
        retry_count: 7,
        rnr_retry_count: 6,
        ece: Ece { vendor: 0x15b3, options: 3 },
        ..Qp::default()
    }
}

impl World {
    pub(crate) fn new(faults: Faults, seed: u64) -> Self {
        Self {
            now: Nanos(1),
            managers: [0, 1].map(|side| Manager::new(side + 1, MOST, 7)),
            travels: Vec::new(),
            faults,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Requests a connection from an adapter to the other one.
    pub(crate) fn connect(&mut self, side: usize, qpn: u32, private: &[u8]) -> ConnectionId {
        let (service, transport) = (SERVICE, Transport::Rc);
        let connect = Connect { service, path: path(side), transport, qp: qp(qpn), private };
        self.managers[side].connect(self.now, &connect).expect("room")
    }

    fn roll(&mut self, percent: u32) -> bool {
        self.random.u32(0..100) < percent
    }

    /// Sends what the adapters have to send.
    fn send(&mut self) {
        for side in 0..2 {
            while let Some(out) = self.managers[side].message() {
                let copies = 1 + usize::from(self.roll(self.faults.doubled));
                for _ in 0..copies {
                    if self.roll(self.faults.lost) {
                        continue;
                    }
                    let most = u64::try_from(self.faults.delay.as_nanos()).expect("a short time");
                    let delay = Duration::from_nanos(self.random.u64(0..=most));
                    self.travels.push((self.now.plus(delay), out));
                }
            }
        }
    }

    /// Lets the next message arrive, or the next time come. Returns false if there is neither.
    pub(crate) fn step(&mut self) -> bool {
        self.send();
        let next = self.travels.iter().map(|(at, _)| *at).min();
        let due = self.managers.iter().filter_map(Manager::deadline).min();
        let Some(at) = next.into_iter().chain(due).min() else { return false };
        self.now = self.now.max(at);
        if next == Some(at) {
            let place = self.travels.iter().position(|(time, _)| *time == at).expect("a message");
            let (_, out) = self.travels.remove(place);
            let side = usize::from(out.path.dest == gid(1));
            let from = Arrival { source: out.path.source, dest: out.path.dest };
            self.managers[side].receive(self.now, from, &out.mad);
        }
        self.managers.iter_mut().for_each(|manager| manager.expire(self.now));
        self.send();
        true
    }

    /// Lets all messages arrive that are on their way, but no other time come.
    pub(crate) fn carry(&mut self) {
        self.send();
        while !self.travels.is_empty() {
            let (_, out) = self.travels.remove(0);
            let side = usize::from(out.path.dest == gid(1));
            let from = Arrival { source: out.path.source, dest: out.path.dest };
            self.managers[side].receive(self.now, from, &out.mad);
            self.send();
        }
    }

    /// Lets a time pass.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now.plus(time);
        loop {
            self.send();
            let next = self.travels.iter().map(|(at, _)| *at).min();
            let due = self.managers.iter().filter_map(Manager::deadline).min();
            let soon = next.into_iter().chain(due).min().is_some_and(|at| at <= end);
            if !soon || !self.step() {
                break;
            }
        }
        self.now = end;
    }

    /// Takes the next event of an adapter.
    pub(crate) fn event(&mut self, side: usize) -> Option<(ConnectionId, Event)> {
        self.managers[side].event()
    }

    /// Returns a connection from adapter 0 to adapter 1, at both ends.
    pub(crate) fn established(&mut self, qpns: [u32; 2]) -> [ConnectionId; 2] {
        self.managers[1].listen(SERVICE);
        let client = self.connect(0, qpns[0], &[]);
        self.carry();
        let (server, _) = self.event(1).expect("a request");
        self.managers[1].accept(self.now, server, &qp(qpns[1]), &[]).expect("a request");
        self.carry();
        assert!(matches!(self.event(0), Some((id, Event::RepReceived { .. })) if id == client));
        self.managers[0].ready(client).expect("a reply");
        self.carry();
        assert_eq!(self.event(1), Some((server, Event::RtuReceived)));
        self.managers[1].unlisten(SERVICE);
        [client, server]
    }
}
