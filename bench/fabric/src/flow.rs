//! The two halves of a connection: a program that always writes, and the memory that it writes to.

use std::net::Ipv4Addr;

use vrnic_lanes::Class;
use vrnic_packet::ip::{self, Addresses};
use vrnic_packet::{Ethernet, MacAddr, Nanos};
use vrnic_roce::Psn;
use vrnic_roce::congestion::{Notifier, RateControl};
use vrnic_roce::requester::{self, Recovery, Remote, Requester, Work, WorkRequest};
use vrnic_roce::responder::{self, Responder, Step, Verdict};
use vrnic_roce::time::AckTimeout;
use vrnic_roce::wire::numbers::Srqn;
use vrnic_roce::wire::opcode::Transport;
use vrnic_roce::wire::syndrome::RnrTimer;
use vrnic_roce::wire::{Body, Frame, Head, Layout, Mtu, Packet, Path, Qpn, Rkey};

use crate::load::Load;
use crate::scenario::Scenario;

/// The bytes of a message.
const MESSAGE: u32 = 1 << 20;
/// Number of messages that wait to be sent.
const POSTED: u64 = 4;
const MTU: Mtu = Mtu::M1024;
/// ECN-capable.
const CAPABLE: u8 = 2;
/// DSCP 26 is that of RoCE, 8 is class selector 1, and 48 is that of congestion notifications.
const DSCPS: [(Class, u8); 2] = [(Class::ROCE, 26), (crate::scenario::OTHER, 8)];
const DSCP_NOTIFICATION: u8 = 48;
/// The time-out of a connection: 8.4 ms, which is longer than any wait in a queue.
const TIMEOUT: AckTimeout = AckTimeout::new(11);

/// The numbers of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    pub(crate) qpn: Qpn,
    pub(crate) sender: usize,
    pub(crate) receiver: usize,
    pub(crate) class: Class,
}

/// Returns the address of a host.
pub(crate) const fn mac(host: usize) -> MacAddr {
    // CAST: there are few hosts.
    MacAddr([0x02, 0, 0, 0, 0, host as u8])
}

/// Returns the host with this address.
pub(crate) fn host_of(mac: MacAddr) -> usize {
    let [.., last] = mac.0;
    last.into()
}

fn path(numbers: &Numbers, from: usize, to: usize) -> Path {
    // CAST: there are few hosts.
    let address = |host: usize| Ipv4Addr::new(10, 9, 0, host as u8 + 1);
    let dscp = DSCPS.iter().find(|(class, _)| *class == numbers.class).map_or(0, |(_, dscp)| *dscp);
    Path {
        ethernet: Ethernet { destination: mac(to), source: mac(from), vlan: None },
        network: ip::Header {
            addresses: Addresses::V4 { source: address(from), destination: address(to) },
            traffic_class: dscp << 2 | CAPABLE,
            hop_limit: 64,
            flow_label: 0,
        },
        source_port: 0xc000,
    }
}

/// Builds a frame whose payload is zero.
fn build(path: &Path, head: &Head, body: &Body, payload: usize) -> Load {
    let mut bytes = vec![0; vrnic_roce::wire::build::FRAME_MAX];
    let layout = Layout::write(&mut bytes, path, head, body, payload).expect("room for a frame");
    let end = layout.seal(&mut bytes).expect("the same buffer");
    bytes.truncate(end);
    Load(bytes)
}

/// The sending half.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) numbers: Numbers,
    path: Path,
    requester: Requester,
    start: Nanos,
    posted: u64,
    completed: u64,
}

impl Sending {
    pub(crate) fn new(numbers: Numbers, scenario: &Scenario, start: Nanos) -> Self {
        let mut requester = Requester::new(requester::Config {
            transport: Transport::Rc,
            destination: numbers.qpn,
            mtu: MTU,
            first_psn: Psn::new(numbers.qpn.get() << 8),
            timeout: TIMEOUT,
            retry_count: 7,
            rnr_retry: 7,
            max_rd_atomic: 1,
            window: scenario.window,
            recovery: Recovery::Leap,
            congestion_control: false,
            capacity: 16,
        });
        let dcqcn = scenario.dcqcn.filter(|_| numbers.class == Class::ROCE);
        let rate = dcqcn.map(|parameters| RateControl::new(parameters).expect("parameters"));
        requester.set_rate_control(rate);
        let path = path(&numbers, numbers.sender, numbers.receiver);
        Self { numbers, path, requester, start, posted: 0, completed: 0 }
    }

    /// Returns the next frame, if one may be sent now.
    pub(crate) fn next(&mut self, now: Nanos) -> Option<Load> {
        if now < self.start {
            return None;
        }
        while self.posted - self.completed < POSTED {
            let remote = Remote { addr: 0, key: Rkey(1) };
            let request = WorkRequest {
                id: self.posted,
                work: Work::Write(remote, None),
                length: MESSAGE,
                solicited: false,
                signaled: true,
                fence: false,
                srqn: Srqn::new(0),
            };
            self.requester.push(request).expect("room for a work request");
            self.posted += 1;
        }
        let transmit = self.requester.next(now)?;
        let payload = transmit.range.end - transmit.range.start;
        Some(build(&self.path, &transmit.head, &transmit.body, payload as usize))
    }

    pub(crate) fn receive(&mut self, now: Nanos, packet: &Packet<'_>) {
        let _late = self.requester.receive(now, packet);
        self.complete();
    }

    pub(crate) fn expire(&mut self, now: Nanos) {
        if self.requester.deadline().is_some_and(|at| at <= now) {
            self.requester.expire(now);
        }
        self.complete();
    }

    /// Returns the time at which the half has something to do.
    pub(crate) fn deadline(&self, now: Nanos) -> Option<Nanos> {
        if now < self.start { Some(self.start) } else { self.requester.deadline() }
    }

    pub(crate) fn counters(&self) -> &requester::Counters {
        self.requester.counters()
    }

    fn complete(&mut self) {
        while let Some(completion) = self.requester.next_completion() {
            assert_eq!(completion.outcome, requester::Outcome::Success, "{self:?}");
            self.completed += 1;
        }
    }
}

/// The receiving half.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) numbers: Numbers,
    path: Path,
    responder: Responder,
    pub(crate) notifier: Notifier,
    /// The bytes of messages that have arrived in order.
    pub(crate) bytes: u64,
}

impl Receiving {
    pub(crate) fn new(numbers: Numbers) -> Self {
        let responder = Responder::new(responder::Config {
            transport: Transport::Rc,
            destination: numbers.qpn,
            mtu: MTU,
            first_psn: Psn::new(numbers.qpn.get() << 8),
            min_rnr_timer: RnrTimer::new(1),
            max_dest_rd_atomic: 1,
            hold: 0,
        });
        let path = path(&numbers, numbers.receiver, numbers.sender);
        Self { numbers, path, responder, notifier: Notifier::default(), bytes: 0 }
    }

    /// Receives a packet. Returns the frames that answer it.
    pub(crate) fn receive(
        &mut self,
        now: Nanos,
        frame: &Frame<'_>,
        packet: &Packet<'_>,
    ) -> Vec<Load> {
        let mut answers = Vec::new();
        if self.notifier.arrived(now, frame.network.ecn()) {
            let mut path = self.path;
            path.network.traffic_class = DSCP_NOTIFICATION << 2;
            let head = Head::congestion(self.numbers.qpn);
            answers.push(build(&path, &head, &Body::Congestion, 0));
        }
        if let Ok(Step::Execute(arrival)) = self.responder.receive(packet) {
            self.bytes += u64::from(arrival.bytes);
            let _nak = self.responder.end(Verdict::Executed);
        }
        while let Some(reply) = self.responder.next_reply() {
            answers.push(build(&self.path, &reply.head, &reply.body, 0));
        }
        answers
    }
}
