//! The receiving direction: passes bytes in order to the sink, and records others in the pane
//! table.
//!
//! ```text
//!      delivered            received                                edge
//!   ───────┼───────────────────┼────────────────────────────────────────┼─────
//!   taken  │ acknowledged, but │ to come; panes hold what arrived early │ not promised
//!          │ the sink holds    │                                        │
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | `panes` | ranges that have arrived out of order |
//! | `store` | their bytes |
//! | `acks` | the time of an acknowledgement |

mod acks;
mod panes;
mod store;

use std::sync::Arc;

use arrayvec::ArrayVec;
use vrnic_packet::Nanos;

use self::acks::Acks;
use self::panes::{Kind, Pane, Panes, Range};
use self::store::Store;
use crate::budget::Budget;
use crate::context::{Context, Params};
use crate::discard::{Discard, Discards};
use crate::seq::{Origin, SeqNum, StreamPos};
use crate::stream::{Delivery, Offered, Sink, Then};
use crate::wire::SackBlock;

/// The maximum value of the window field.
const FIELD_MAX: u64 = 65_535;
/// The maximum window scale (RFC 7323, 2.3).
pub(crate) const SCALE_MAX: u8 = 14;

/// The receiving direction of a connection.
#[derive(Debug)]
pub(crate) struct Receiver {
    origin: Origin,
    delivered: StreamPos,
    received: StreamPos,
    /// The position after the last byte that the peer may send.
    edge: StreamPos,
    window: u64,
    scale: u8,
    panes: Panes,
    store: Store,
    /// The position of the peer's end, if its segment has arrived.
    end: Option<StreamPos>,
    /// True if the sink takes nothing until it is asked again.
    held: bool,
    /// Bytes that have arrived again and must be reported (RFC 2883).
    duplicate: Option<SackBlock>,
    pub(crate) acks: Acks,
    pub(crate) discards: Discards,
}

/// The sink has refused bytes that were already acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed;

/// The next step for the rest of a delivery.
enum Step {
    Done,
    Stored,
    Dropped,
}

impl Receiver {
    pub(crate) fn new(context: &Context, params: &Params) -> Self {
        let scale = context.receive_scale.min(SCALE_MAX);
        // The end of the stream has position 0 if the peer has closed its direction.
        let end = context.peer_closed.then_some(StreamPos(0));
        let next = StreamPos(u64::from(context.peer_closed));
        let Context { receive_next, receive_window, .. } = context;
        Self {
            // CAST: zero or one.
            origin: Origin(SeqNum(receive_next.0.wrapping_sub(next.0 as u32))),
            delivered: StreamPos(0),
            received: StreamPos(0),
            edge: next.plus((*receive_window).into()),
            window: u64::from(params.window).min(FIELD_MAX << scale),
            scale,
            panes: Panes::default(),
            store: Store::new(params.buffer),
            end,
            held: false,
            duplicate: None,
            acks: Acks::new(params.ack_delay),
            discards: Discards::default(),
        }
    }

    /// Takes the memory of the store from a budget from now on.
    pub(crate) fn use_budget(&mut self, budget: &Arc<Budget>) {
        self.store.use_budget(budget);
    }

    /// Drops all bytes that were not delivered.
    pub(crate) fn discard(&mut self) {
        self.panes = Panes::default();
        self.store.clear();
    }

    /// Gives memory back that is not in use.
    pub(crate) fn shrink(&mut self) {
        self.store.shrink();
    }

    /// Returns the number of bytes of memory for stored bytes.
    pub(crate) const fn kept(&self) -> usize {
        self.store.kept()
    }

    /// Returns the number of bytes that are taken from the budget.
    pub(crate) const fn charged(&self) -> usize {
        self.store.charged()
    }

    /// Returns the position of the next byte that has not arrived, or the position after the
    /// peer's end.
    pub(crate) fn next(&self) -> StreamPos {
        self.received.plus(u64::from(self.end == Some(self.received)))
    }

    /// Returns the position after the last byte that has arrived in order.
    pub(crate) const fn received(&self) -> StreamPos {
        self.received
    }

    /// Returns the number to acknowledge.
    pub(crate) fn number(&self) -> SeqNum {
        self.origin.number(self.next())
    }

    /// Returns the position of a number near the next one, or `None` if it is before position 0.
    pub(crate) fn position(&self, number: SeqNum) -> Option<StreamPos> {
        self.origin.position(number, self.received)
    }

    /// Returns the number of bytes that the peer may send.
    pub(crate) fn room(&self) -> u64 {
        self.edge.since(self.next())
    }

    /// Returns whether the sink has placed bytes before which some are missing.
    pub(crate) fn has_placed(&self) -> bool {
        self.panes.any_placed()
    }

    /// Returns whether all bytes before the peer's end have been delivered, and the sink does not
    /// hold back.
    pub(crate) fn finished(&self) -> bool {
        self.end == Some(self.delivered) && !self.held
    }

    /// Returns the window field of the next segment. The promised window grows when the sink has
    /// taken bytes for a segment of `mss` bytes or half of the window, so that a peer has no cause
    /// to send short segments (RFC 9293, 3.8.6.2.2). It is never reduced: it is rounded up to the
    /// unit of the scale (RFC 7323, 2.4).
    pub(crate) fn advertise(&mut self, mss: usize) -> u16 {
        let edge = self.delivered.plus(self.window);
        if edge.since(self.edge) >= (mss as u64).min(self.window / 2) {
            self.edge = self.edge.max(edge);
        }
        let field = self.room().div_ceil(1 << self.scale).min(FIELD_MAX);
        self.edge = self.edge.max(self.next().plus(field << self.scale));
        // CAST: it is at most 65,535.
        field as u16
    }

    /// Returns whether there are blocks to report in selective acknowledgements.
    pub(crate) fn has_blocks(&self) -> bool {
        self.duplicate.is_some() || !self.panes.is_empty()
    }

    /// Takes at most `limit` blocks to report, the duplicate first.
    pub(crate) fn blocks(&mut self, limit: usize) -> ArrayVec<SackBlock, 4> {
        let number = |range: Range| SackBlock {
            start: self.origin.number(range.start),
            end: self.origin.number(range.end),
        };
        let panes = self.panes.blocks(self.received);
        self.duplicate.take().into_iter().chain(panes.into_iter().map(number)).take(limit).collect()
    }

    /// Records the bytes of a segment that had all arrived before.
    pub(crate) fn note_duplicate(&mut self, start: SeqNum, len: u32) {
        self.duplicate = Some(SackBlock { start, end: start.plus(len) });
        self.acks.due = true;
    }

    /// Processes the bytes of an acceptable segment that starts at `seq`.
    pub(crate) fn data(
        &mut self,
        now: Nanos,
        seq: SeqNum,
        bytes: &[u8],
        fin: bool,
        sink: &mut impl Sink,
    ) -> Result<(), Failed> {
        let ahead = seq.ahead_of(self.origin.number(self.received));
        let old = usize::try_from(-ahead).unwrap_or(0);
        let at = self.received.plus(u64::try_from(ahead).unwrap_or(0));
        let fresh = bytes.get(old..).unwrap_or_default();
        if old > 0 && !bytes.is_empty() {
            // CAST: segments are shorter than 2³² bytes.
            self.note_duplicate(seq, old.min(bytes.len()) as u32);
        }
        if fresh.is_empty() && !bytes.is_empty() {
            self.discards.count(Discard::Duplicate);
        }
        let fresh = self.limit(at, fresh, fin && old <= bytes.len());
        if fresh.is_empty() {
            return Ok(());
        }
        let before = self.received;
        let gaps = !self.panes.is_empty();
        if at == self.delivered && !self.held {
            self.in_order(at, fresh, sink)?;
        } else {
            self.early(at, fresh, sink);
        }
        self.advance(sink)?;
        if self.received > before {
            self.acks.arrived(now, self.received.since(before));
        }
        self.acks.due |= gaps;
        if at > before {
            self.acks.arrived_early();
        }
        Ok(())
    }

    /// Cuts bytes off at the edge of the window and at the peer's end, and records that end.
    fn limit<'a>(&mut self, at: StreamPos, bytes: &'a [u8], fin: bool) -> &'a [u8] {
        let room = usize::try_from(self.edge.since(at)).unwrap_or(usize::MAX);
        let within = bytes.get(..room).unwrap_or(bytes);
        let end = at.plus(within.len() as u64);
        if within.len() < bytes.len() {
            self.discards.count(Discard::Window);
            self.acks.due = true;
        } else if fin && self.end.is_none() && self.panes.end().is_none_or(|last| last <= end) {
            self.end = Some(end);
        }
        self.acks.due |= fin;
        let Some(last) = self.end.filter(|last| *last < end) else { return within };
        self.discards.count(Discard::BehindEnd);
        within.get(..usize::try_from(last.since(at)).unwrap_or(0)).unwrap_or_default()
    }

    /// Delivers bytes that are next in order, and the panes that follow them.
    fn in_order(
        &mut self,
        at: StreamPos,
        bytes: &[u8],
        sink: &mut impl Sink,
    ) -> Result<(), Failed> {
        // Each round but the last passes a pane.
        loop {
            let done = usize::try_from(self.delivered.since(at)).unwrap_or(usize::MAX);
            let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) else {
                return Ok(());
            };
            if self.held {
                self.early(self.delivered, rest, sink);
                return Ok(());
            }
            let gap =
                self.panes.first().map_or(u64::MAX, |pane| pane.range.start.since(self.delivered));
            let part = usize::try_from(gap).ok().and_then(|gap| rest.get(..gap)).unwrap_or(rest);
            let step = self.deliver(part, sink);
            self.store.pass(self.delivered);
            match step {
                Step::Done => self.advance(sink)?,
                Step::Stored => {}
                Step::Dropped => {
                    self.discards.count(Discard::Refused);
                    return Ok(());
                }
            }
        }
    }

    /// Passes the next bytes to the sink.
    fn deliver(&mut self, bytes: &[u8], sink: &mut impl Sink) -> Step {
        let (at, acknowledged) = (self.delivered, self.received > self.delivered);
        let delivered = sink.deliver(&Delivery { at, bytes, acknowledged });
        let taken = delivered.taken.min(bytes.len());
        self.delivered = self.delivered.plus(taken as u64);
        self.received = self.received.max(self.delivered);
        let whole = taken == bytes.len();
        match delivered.then {
            Then::Refuse if !whole => return Step::Dropped,
            Then::Acknowledge => self.acks.due = true,
            _ => {}
        }
        self.held = !whole || delivered.then == Then::Hold;
        if self.held { Step::Stored } else { Step::Done }
    }

    /// Passes the panes that are next in order, and finds the first missing byte.
    fn advance(&mut self, sink: &mut impl Sink) -> Result<(), Failed> {
        while !self.held {
            let Some(pane) = self.panes.first().filter(|p| p.range.start <= self.delivered) else {
                break;
            };
            let Range { start, end } = pane.range;
            match pane.kind {
                Kind::Placed => {
                    self.panes.remove_first();
                    (self.delivered, self.received) = (end, self.received.max(end));
                    self.store.pass(end);
                    match sink.filled(start, end) {
                        Then::Continue => {}
                        Then::Acknowledge => self.acks.due = true,
                        Then::Hold => self.held = true,
                        Then::Refuse => return Err(Failed),
                    }
                }
                Kind::Buffered => self.deliver_stored(end, sink)?,
            }
        }
        self.received = self.received.max(self.panes.contiguous(self.delivered));
        if self.store.is_used() && !self.panes.any_stored() {
            self.store.clear();
        }
        Ok(())
    }

    /// Passes the stored bytes of the first pane to the sink.
    fn deliver_stored(&mut self, end: StreamPos, sink: &mut impl Sink) -> Result<(), Failed> {
        let store = std::mem::replace(&mut self.store, Store::new(0));
        let mut step = Step::Done;
        while self.delivered < end && matches!(step, Step::Done) {
            step = self.deliver(store.read(self.delivered, end.since(self.delivered)), sink);
        }
        self.store = store;
        self.store.pass(self.delivered);
        if matches!(step, Step::Dropped) {
            self.discards.count(Discard::Refused);
            if self.received > self.delivered {
                return Err(Failed);
            }
        }
        if matches!(step, Step::Dropped) || self.delivered == end {
            self.panes.remove_first();
        } else {
            self.panes.trim_first(self.delivered);
        }
        Ok(())
    }

    /// Processes bytes out of order: the parts that have not arrived yet.
    fn early(&mut self, at: StreamPos, bytes: &[u8], sink: &mut impl Sink) {
        let whole = Range { start: at, end: at.plus(bytes.len() as u64) };
        let mut rest = whole;
        let mut any = false;
        while let Some(gap) = self.panes.gap(rest) {
            any = true;
            let from = usize::try_from(gap.start.since(at)).unwrap_or(usize::MAX);
            let to = usize::try_from(gap.end.since(at)).unwrap_or(usize::MAX);
            if let Some(part) = bytes.get(from..to)
                && let Err(reason) = self.place(gap, part, sink)
            {
                self.discards.count(reason);
            }
            rest.start = gap.end;
        }
        self.panes.touch(at);
        if !any {
            self.discards.count(Discard::Duplicate);
            let number = |at| self.origin.number(at);
            self.duplicate = Some(SackBlock { start: number(at), end: number(whole.end) });
        }
    }

    /// Places or stores bytes that have not arrived before.
    fn place(&mut self, range: Range, bytes: &[u8], sink: &mut impl Sink) -> Result<(), Discard> {
        // Bytes that the sink holds back are not offered, but delivered to it in order later.
        let offered = if !self.held && self.panes.has_room(range, Kind::Placed) {
            sink.offer(range.start, bytes)
        } else {
            Offered::Buffer
        };
        let kind = match offered {
            Offered::Placed => Kind::Placed,
            Offered::Buffer => Kind::Buffered,
            Offered::Refuse => return Err(Discard::Refused),
        };
        if kind == Kind::Buffered {
            if range.end.since(self.delivered) > self.store.len() {
                return Err(Discard::Buffer);
            }
            if self.panes.has_room(range, kind) && !self.store.make_room(range.start, range.end) {
                return Err(Discard::Buffer);
            }
        }
        if !self.panes.insert(range, kind) {
            return Err(Discard::Panes);
        }
        if kind == Kind::Buffered {
            self.store.write(range.start, bytes);
        }
        Ok(())
    }

    /// Asks a sink that has held bytes back to continue. The window may grow again.
    pub(crate) fn resume(&mut self, mss: usize, sink: &mut impl Sink) -> Result<(), Failed> {
        self.held = false;
        self.advance(sink)?;
        self.offer_window(mss);
        Ok(())
    }

    /// Sets the number of bytes that are promised to the peer when nothing is stored. A larger
    /// window is reported to the peer; what was promised before is never taken back.
    pub(crate) fn set_window(&mut self, window: u32, mss: usize) {
        self.window = u64::from(window).min(FIELD_MAX << self.scale);
        self.offer_window(mss);
    }

    /// Makes an acknowledgement due if it can promise more to the peer by so much that it is worth
    /// a segment.
    fn offer_window(&mut self, mss: usize) {
        let more = self.delivered.plus(self.window).since(self.edge);
        self.acks.due |= more >= (2 * mss as u64).min(self.window / 2) && more > 0;
    }

    /// Returns the position after the last byte that the sink has taken.
    pub(crate) const fn delivered(&self) -> StreamPos {
        self.delivered
    }

    /// Forgets the bytes that the sink has placed before others, so that the peer sends them again
    /// (RFC 2018, 8). Returns `false`, and forgets none, if some of them have been acknowledged.
    pub(crate) fn forget_placed(&mut self) -> bool {
        let acknowledged =
            |pane: &Pane| pane.kind == Kind::Placed && pane.range.start < self.received;
        if self.panes.all().iter().any(acknowledged) {
            return false;
        }
        self.panes.forget_placed();
        true
    }

    /// Checks the invariants.
    pub(crate) fn check(&self) {
        assert!(self.delivered <= self.received && self.next() <= self.edge.plus(1));
        let mut at = self.delivered;
        for Range { start, end } in self.panes.iter() {
            assert!(at <= start && start < end, "panes overlap");
            at = end;
        }
        assert!(self.received == self.panes.contiguous(self.delivered), "a byte was forgotten");
    }
}
