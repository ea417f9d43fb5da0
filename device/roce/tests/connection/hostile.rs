//! Any packet in any state: random and forged packets beside a connection's own.
//!
//! [`any_packets`] is the body of a fuzz target: all that it does follows from its bytes.

use vrnic_roce::psn::Psn;
use vrnic_roce::requester::{Outcome, Work};
use vrnic_roce::time::Time;
use vrnic_roce::wire::headers::{AtomicEth, Feth, Reth};
use vrnic_roce::wire::opcode::Transport;
use vrnic_roce::wire::{
    Aeth, Body, Head, Packet, Part, ReadPart, Request, Response, Rkey, SendEnd, Syndrome,
};
use vrnic_roce::{Discard, Msn};

use crate::host::{BASE, Host, KEY, MEMORY, remote, work};
use crate::pair::{Options, Pair};

/// Numbers taken from bytes; zeroes at the end.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u32 {
        u32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    fn below(&mut self, end: u8) -> u8 {
        self.byte() % end
    }

    /// A length that is often at a border.
    fn length(&mut self) -> u32 {
        match self.below(8) {
            0 => 0,
            1 => 1,
            2 => 256,
            3 => 257,
            4 => 1 << 31,
            5 => u32::from(self.byte()) * 16,
            6 => 512,
            _ => self.word(),
        }
    }

    fn reth(&mut self) -> Reth {
        let addr = BASE.wrapping_add(u64::from(self.word() % (2 * MEMORY as u32)));
        let key = if self.below(4) == 0 { Rkey(9) } else { KEY };
        Reth { addr, key, length: self.length() }
    }

    fn aeth(&mut self) -> Aeth {
        let syndrome = loop {
            let byte = self.byte();
            match Syndrome::from_byte(byte) {
                Ok(syndrome) => break syndrome,
                Err(_) => continue,
            }
        };
        Aeth { syndrome, msn: Msn::new(self.word()) }
    }

    fn request(&mut self) -> Request {
        let (first, last) = (self.below(2) == 0, self.below(2) == 0);
        match self.below(8) {
            0..=2 => {
                let end = match self.below(3) {
                    0 => SendEnd::Plain,
                    1 => SendEnd::Imm([1; 4]),
                    _ => SendEnd::Invalidate(Rkey(self.word())),
                };
                Request::Send(Part::new(first.then_some(()), last.then_some(end)))
            }
            3 | 4 => {
                let imm = (self.below(2) == 0).then_some([2; 4]);
                let start = first.then(|| self.reth());
                Request::Write(Part::new(start, last.then_some(imm)))
            }
            5 => Request::Read(self.reth()),
            6 => {
                let Reth { addr, key, .. } = self.reth();
                let atomic = AtomicEth { addr, key, swap_or_add: 1, compare: 0 };
                if first { Request::FetchAdd(atomic) } else { Request::CompareSwap(atomic) }
            }
            _ if first => Request::AtomicWrite(self.reth()),
            _ => Request::Flush(Feth(self.word()), self.reth()),
        }
    }

    fn response(&mut self) -> Response {
        match self.below(6) {
            0 => Response::Read(ReadPart::First(self.aeth())),
            1 => Response::Read(ReadPart::Middle),
            2 => Response::Read(ReadPart::Last(self.aeth())),
            3 => Response::Read(ReadPart::Only(self.aeth())),
            4 => Response::Atomic(self.aeth(), 5),
            _ => Response::Acknowledge(self.aeth()),
        }
    }

    /// A packet whose number is near `at`.
    fn packet(&mut self, at: Psn, to: &Host) -> (Head, Body, usize) {
        let psn = match self.below(4) {
            0 => at,
            1 => at.plus(u32::from(self.below(8))),
            2 => at.minus(u32::from(self.below(8))),
            _ => Psn::new(self.word()),
        };
        let transport = if self.below(16) == 0 { Transport::Xrc } else { Transport::Rc };
        let mut head = Head::new(transport, to.qpn, psn);
        head.ack_request = self.below(2) == 0;
        let body = match self.below(12) {
            0 => Body::Congestion,
            1..=6 => Body::Request(self.request()),
            _ => Body::Response(self.response()),
        };
        let length = (self.length() as usize).min(1024);
        let length = [length, 8, 0].into_iter().find(|length| body.allows(*length)).unwrap_or(0);
        (head, body, length)
    }
}

/// Checks conditions that must always hold.
fn check(host: &mut Host, posted: usize) {
    let ids: Vec<u64> = host.completions.iter().map(|done| done.id).collect();
    assert!(ids.len() <= posted && ids.iter().enumerate().all(|(at, id)| at as u64 == *id));
    let outcomes = host.completions.iter().map(|done| done.outcome);
    let mut ended = outcomes.skip_while(|outcome| *outcome == Outcome::Success).skip(1);
    assert!(ended.all(|outcome| outcome == Outcome::Flushed));
    let given = host.requests;
    let counters = host.responder().counters();
    let known = counters.executed + counters.duplicates + counters.held;
    let answered = counters.not_ready + counters.refusals;
    let dropped = counters.discards.total();
    // Held packets come again, and then have another end.
    assert!(known + answered + dropped >= given, "{given} requests, {counters:?}");
    assert_eq!(counters.discards.of(Discard::Busy), 0);
}

/// Runs a connection with random work among which packets are forged as `bytes` say.
pub(crate) fn any_packets(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let options = Options {
        mtu: vrnic_roce::wire::Mtu::M256,
        hold: if choices.below(2) == 0 { 0 } else { 255 },
        window: 16,
        retry_count: 2,
        ..Options::default()
    };
    let mut pair = Pair::new(u64::from(choices.word()), options);
    let mut posted = 0;
    let payload = [7; 1024];
    while !choices.0.is_empty() {
        let own = usize::from(choices.below(2));
        match choices.below(8) {
            0 => drop(pair.step()),
            1 if posted < 200 && !pair.hosts[0].requester.has_failed() => {
                let (length, id) = (u32::from(choices.byte()) * 8, posted as u64);
                let request = match choices.below(4) {
                    0 => work(id, Work::Send(SendEnd::Plain), length),
                    1 => work(id, Work::Write(remote(256 << 10), None), length),
                    2 => work(id, Work::Read(remote(0)), length),
                    _ => work(id, Work::FetchAdd { word: remote(192 << 10), add: 1 }, 8),
                };
                pair.hosts[0].post(request, BASE + (768 << 10));
                posted += 1;
            }
            _ => {
                let at = match &mut pair.hosts {
                    [host, _] if own == 0 => host.requester.psn().minus(4),
                    [_, peer] => peer.responder().expected(),
                };
                let host = &mut pair.hosts[own];
                let (head, body, length) = choices.packet(at, host);
                let payload = &payload[..length];
                let frame = |host: &Host| host.build(&head, &body, payload);
                host.packet(Time::from_nanos(pair.now), &Packet { head, body, payload }, &frame);
                host.complete();
            }
        }
        check(&mut pair.hosts[0], posted);
        check(&mut pair.hosts[1], 0);
    }
}

/// The number of packets that are forged; more with `VRNIC_ROCE_PACKETS`.
pub(crate) fn packets() -> usize {
    let count = std::env::var("VRNIC_ROCE_PACKETS").ok().and_then(|text| text.parse().ok());
    count.unwrap_or(100_000)
}

#[test]
fn any_packet_in_any_state() {
    let mut rng = fastrand::Rng::with_seed(4791);
    let mut bytes = vec![0; 2000];
    // A packet takes some twenty bytes.
    for _ in 0..packets() / 100 {
        rng.fill(&mut bytes);
        any_packets(&bytes);
    }
}
