//! Packets and decisions that are made from bytes, so that a fuzzer can control a run.

use std::net::{Ipv4Addr, Ipv6Addr};

use vrnic_packet::ip::{self, Addresses};
use vrnic_packet::{Ethernet, MacAddr};
use vrnic_roce::wire::headers::{AtomicEth, Deth, Feth, Reth};
use vrnic_roce::wire::opcode::Transport;
use vrnic_roce::wire::{
    Aeth, Body, Datagram, Head, Part, Path, Qpn, ReadPart, Request, Response, Rkey, SendEnd,
    Syndrome,
};
use vrnic_roce::{Msn, Psn};

/// A packet without its payload, which the protocol ignores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) head: Head,
    pub(crate) body: Body,
    /// Bytes of payload.
    pub(crate) length: usize,
}

/// The bytes for further choices. Zeroes follow the last byte.
#[derive(Debug)]
pub(crate) struct Choices<'a>(pub(crate) &'a [u8]);

impl Choices<'_> {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(crate) fn word(&mut self) -> u32 {
        u32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    pub(crate) fn below(&mut self, end: u8) -> u8 {
        self.byte() % end
    }

    /// Returns true once in `times` calls on average.
    pub(crate) fn once_in(&mut self, times: u8) -> bool {
        self.below(times) == 0
    }

    /// Returns a length that is often a limit.
    pub(crate) fn length(&mut self) -> u32 {
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
        Reth { addr: u64::from(self.word()) << 3, key: Rkey(9), length: self.length() }
    }

    fn aeth(&mut self) -> Aeth {
        let syndrome = Syndrome::from_byte(self.byte() & 0x7f);
        let syndrome = syndrome.unwrap_or(Aeth::ack(Msn::default()).syndrome);
        Aeth { syndrome, msn: Msn::new(u32::from(self.byte())) }
    }

    fn request(&mut self) -> Request {
        let (first, last) = (self.once_in(2), self.once_in(2));
        match self.below(8) {
            0..=2 => {
                let end = match self.below(3) {
                    0 => SendEnd::Plain,
                    1 => SendEnd::Imm([1; 4]),
                    _ => SendEnd::Invalidate(Rkey(7)),
                };
                Request::Send(Part::new(first.then_some(()), last.then_some(end)))
            }
            3 | 4 => {
                let imm = self.once_in(2).then_some([2; 4]);
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

    /// Returns a packet, mostly of this transport, sometimes of another one.
    pub(crate) fn shape(&mut self, transport: Transport, psn: Psn) -> Shape {
        let body = match self.below(16) {
            0 => Body::Congestion,
            1 => {
                let deth = Deth { qkey: self.word(), source: Qpn::new(self.word()) };
                Body::Datagram(Datagram { deth, imm: self.once_in(2).then_some([3; 4]) })
            }
            2..=8 => Body::Request(self.request()),
            _ => Body::Response(self.response()),
        };
        let transport = match body {
            Body::Congestion => Transport::Cnp,
            Body::Datagram(_) => Transport::Ud,
            Body::Request(Request::Send(Part::First(())) | Request::Write(_))
                if self.once_in(16) =>
            {
                Transport::Uc
            }
            _ if self.once_in(16) => Transport::Xrc,
            _ => transport,
        };
        let mut head = Head::new(transport, Qpn::new(0x11), psn);
        head.ack_request = self.once_in(2);
        head.solicited = self.once_in(8);
        let length = (self.length() as usize).min(1024);
        let length = [length, 8, 0].into_iter().find(|length| body.allows(*length)).unwrap_or(0);
        Shape { head, body, length }
    }

    /// Returns the number of a packet, which is often near `at`.
    pub(crate) fn psn(&mut self, at: Psn) -> Psn {
        match self.below(4) {
            0 => at,
            1 => at.plus(u32::from(self.below(8))),
            2 => at.minus(u32::from(self.below(8))),
            _ => Psn::new(self.word()),
        }
    }

    /// Returns a path to a peer.
    pub(crate) fn path(&mut self) -> Path {
        let byte = self.byte();
        let v6 = byte & 1 != 0;
        let addresses = if v6 {
            Addresses::V6 {
                source: Ipv6Addr::from(u128::from(self.word())),
                destination: Ipv6Addr::from(u128::from(self.word()) << 64),
            }
        } else {
            Addresses::V4 {
                source: Ipv4Addr::from(self.word()),
                destination: Ipv4Addr::from(self.word()),
            }
        };
        let flow_label = if v6 { u32::from(byte) << 8 } else { 0 };
        let network = ip::Header {
            addresses,
            traffic_class: self.byte(),
            hop_limit: self.byte(),
            flow_label,
        };
        let vlan = (byte & 2 != 0).then_some(u16::from(byte));
        let ethernet = Ethernet { destination: MacAddr([byte; 6]), source: MacAddr([2; 6]), vlan };
        Path { ethernet, network, source_port: 0xc000 | u16::from(byte) }
    }
}
