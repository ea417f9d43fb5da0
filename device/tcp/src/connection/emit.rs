//! Generation of the segments to send.

use arrayvec::ArrayVec;
use vrnic_packet::Nanos;

use super::Connection;
use super::close::End;
use crate::send::Plan;
use crate::seq::{SeqNum, StreamPos};
use crate::stream::{Source, Undone};
use crate::wire::{Flags, Header, Options, SackBlock, Timestamps};

/// A segment to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The header of the segment.
    pub header: Header,
    /// Number of bytes of data. They have been written to the beginning of the caller's buffer.
    pub len: usize,
}

impl Connection {
    /// Returns the next segment, and writes its data to `into`. Returns `None` if there is nothing
    /// to send now. The data of a segment never exceeds the length of `into`.
    pub fn transmit(
        &mut self,
        now: Nanos,
        source: &mut impl Source,
        into: &mut [u8],
    ) -> Option<Transmit> {
        if self.ending.is_over() {
            return self.reset_segment(now);
        }
        // Selective acknowledgements are sent without data, so that the size of segments with data
        // does not depend on them.
        if self.receive.acks.due && self.sack && self.receive.has_blocks() {
            return Some(self.acknowledgement(now, self.send.next));
        }
        // A peer without SACK counts duplicate acknowledgements instead (RFC 5681, 3.2). It gets
        // one for each segment out of order, after the acknowledgement that reports progress.
        let repeated = self.last_ack == self.receive.next();
        if !self.sack && self.receive.acks.takes_repeat(repeated) {
            return Some(self.acknowledgement(now, self.send.next));
        }
        let fin = self.ending.wants_fin();
        match self.send.plan(now, source, into.len(), fin) {
            Some(plan) => self.emit(now, plan, source, into),
            None if self.receive.acks.due => Some(self.acknowledgement(now, self.send.next)),
            None => self.take_keepalive().then(|| self.probe(now)),
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
                return Some(self.probe(now));
            }
        };
        let read = into.get_mut(..len).ok_or(Undone::Gone);
        match read.and_then(|into| source.read(start, into)) {
            Ok(()) => {}
            Err(Undone::Gone) => {
                self.reset(End::Gone);
                return self.reset_segment(now);
            }
            Err(Undone::Later) => {
                let due = self.receive.acks.due;
                return due.then(|| self.acknowledgement(now, self.send.next));
            }
        }
        self.send.sent(now, plan);
        let last = start.plus(len as u64) == source.end();
        let flags = if last { Flags::PSH } else { Flags::empty() };
        Some(Transmit { header: self.header(now, self.send.number(start), flags), len })
    }

    /// Returns a segment with a number before the first unacknowledged byte, which the peer must
    /// answer (RFC 9293, 3.8.4 and 3.8.6.1).
    fn probe(&mut self, now: Nanos) -> Transmit {
        let number = self.send.number(self.send.una).plus(u32::MAX);
        Transmit { header: self.header(now, number, Flags::empty()), len: 0 }
    }

    /// Returns a segment without data, with all pending reports.
    fn acknowledgement(&mut self, now: Nanos, at: StreamPos) -> Transmit {
        self.acknowledgements += 1;
        let max_blocks = if self.clock.is_some() { 3 } else { 4 };
        let blocks: ArrayVec<SackBlock, 4> =
            if self.sack { self.receive.blocks(max_blocks) } else { ArrayVec::new() };
        let mut header = self.header(now, self.send.number(at), Flags::empty());
        header.options.sack = blocks;
        Transmit { header, len: 0 }
    }

    fn reset_segment(&mut self, now: Nanos) -> Option<Transmit> {
        let number = self.ending.reset_due.take()?;
        Some(Transmit { header: self.header(now, number, Flags::RST), len: 0 })
    }

    /// Returns the header of a segment, which acknowledges everything that has arrived.
    fn header(&mut self, now: Nanos, seq: SeqNum, flags: Flags) -> Header {
        self.receive.acks.sent();
        self.last_ack = self.receive.next();
        let timestamps =
            self.clock.map(|clock| Timestamps { value: clock.value(now), echo: clock.recent });
        Header {
            seq,
            ack: self.receive.number(),
            flags: flags | Flags::ACK,
            window: self.receive.advertise(self.send.mss),
            options: Options { timestamps, sack: ArrayVec::new() },
        }
    }
}
