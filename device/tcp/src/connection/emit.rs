//! Segments to send.

use arrayvec::ArrayVec;

use super::Connection;
use super::close::End;
use crate::send::Plan;
use crate::seq::{SeqNum, StreamPos};
use crate::stream::{Gone, Source};
use crate::time::Nanos;
use crate::wire::{Flags, Header, Options, SackBlock, Timestamps};

/// A segment to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Its header.
    pub header: Header,
    /// Bytes of data. They have been written to the beginning of the caller's buffer.
    pub len: usize,
}

impl Connection {
    /// Returns the next segment, whose data is written to `into`; `None` if there is nothing to
    /// send now. Segments have no more data than `into` has room for.
    pub fn transmit(
        &mut self,
        now: Nanos,
        source: &mut impl Source,
        into: &mut [u8],
    ) -> Option<Transmit> {
        if self.ending.is_over() {
            return self.reset_segment(now);
        }
        // Selective acknowledgements travel alone, so that the size of segments with data does not
        // depend on them.
        if self.receive.acks.due && self.sack && self.receive.has_blocks() {
            return Some(self.acknowledgement(now, self.send.next));
        }
        // A peer without them counts acknowledgements instead (RFC 5681, 3.2): one for each segment
        // out of order, behind the one that tells of progress.
        let repeated = self.last_ack == self.receive.next();
        if !self.sack && self.receive.acks.takes_repeat(repeated) {
            return Some(self.acknowledgement(now, self.send.next));
        }
        let fin = self.ending.wants_fin();
        match self.send.plan(now, source, into.len(), fin) {
            Some(plan) => self.emit(now, plan, source, into),
            None if self.receive.acks.due => Some(self.acknowledgement(now, self.send.next)),
            None => None,
        }
    }

    fn emit(
        &mut self,
        now: Nanos,
        plan: Plan,
        source: &mut impl Source,
        into: &mut [u8],
    ) -> Option<Transmit> {
        let (start, len) = match plan {
            Plan::Again { start, len, .. } | Plan::New { start, len } => (start, len),
            Plan::Fin { start, .. } => {
                self.ending.fin = Some(start);
                self.send.sent(now, plan);
                let header = self.header(now, self.send.number(start), Flags::FIN);
                return Some(Transmit { header, len: 0 });
            }
            Plan::Probe => {
                self.send.sent(now, plan);
                // One before the first unacknowledged byte: the peer must answer (RFC 9293,
                // 3.8.6.1).
                let header = self.header(
                    now,
                    self.send.number(self.send.una).plus(u32::MAX),
                    Flags::empty(),
                );
                return Some(Transmit { header, len: 0 });
            }
        };
        let read = into.get_mut(..len).ok_or(Gone).and_then(|into| source.read(start, into));
        if read.is_err() {
            self.reset(End::Gone);
            return self.reset_segment(now);
        }
        self.send.sent(now, plan);
        let last = start.plus(len as u64) == source.end();
        let flags = if last { Flags::PSH } else { Flags::empty() };
        Some(Transmit { header: self.header(now, self.send.number(start), flags), len })
    }

    /// A segment without data, with all that there is to report.
    fn acknowledgement(&mut self, now: Nanos, at: StreamPos) -> Transmit {
        self.acknowledgements += 1;
        let most = if self.clock.is_some() { 3 } else { 4 };
        let blocks: ArrayVec<SackBlock, 4> =
            if self.sack { self.receive.blocks(most) } else { ArrayVec::new() };
        let mut header = self.header(now, self.send.number(at), Flags::empty());
        header.options.sack = blocks;
        Transmit { header, len: 0 }
    }

    fn reset_segment(&mut self, now: Nanos) -> Option<Transmit> {
        let number = self.ending.reset_due.take()?;
        Some(Transmit { header: self.header(now, number, Flags::RST), len: 0 })
    }

    /// The header of a segment, which acknowledges everything that has arrived.
    fn header(&mut self, now: Nanos, seq: SeqNum, flags: Flags) -> Header {
        self.receive.acks.sent();
        self.last_ack = self.receive.next();
        let timestamps =
            self.clock.map(|clock| Timestamps { value: clock.value(now), echo: clock.recent });
        Header {
            seq,
            ack: self.receive.number(),
            flags: flags | Flags::ACK,
            window: self.receive.advertise(),
            options: Options { timestamps, sack: ArrayVec::new() },
        }
    }
}
