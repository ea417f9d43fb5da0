//! Processing of received segments, in the order of RFC 9293, 3.10.7.4.

use vrnic_packet::Nanos;

use super::Connection;
use super::close::End;
use crate::discard::Discard;
use crate::receive::Failed;
use crate::send::Ack;
use crate::seq::StreamPos;
use crate::stream::Sink;
use crate::wire::{Flags, Header, Segment};

/// The answer to a segment that is dropped.
enum Drop {
    /// The segment is not answered.
    Silent(Discard),
    /// An acknowledgement, from which a peer that is out of step learns the state of the
    /// connection.
    Answer(Discard),
    /// An acknowledgement, if not too many have been sent (RFC 5961).
    Challenge(Discard),
}

impl Connection {
    /// Processes a segment of this connection, whose addresses, ports and checksum have been
    /// checked.
    pub fn receive(&mut self, now: Nanos, segment: &Segment<'_>, sink: &mut impl Sink) {
        if self.ending.is_over() {
            self.receive.discards.count(Discard::Ended);
            self.reset_again(now, &segment.header);
            return;
        }
        if let Err(drop) = self.admit(now, segment) {
            self.refuse(now, &drop);
            return;
        }
        let header = &segment.header;
        match self.admit_ack(header) {
            Ok(Some(at)) => {
                self.take_timestamp(now, header);
                self.acknowledge(now, at, segment);
            }
            Ok(None) => {}
            Err(drop) => {
                self.refuse(now, &drop);
                return;
            }
        }
        self.keepalive.heard(now);
        sink.progress(self.acknowledged(), self.sent());
        let fin = header.flags.contains(Flags::FIN);
        if !segment.payload.is_empty() || fin {
            let result = self.receive.data(now, header.seq, segment.payload, fin, sink);
            self.after_delivery(now, result);
        } else {
            self.after_delivery(now, Ok(()));
        }
    }

    /// Resets the peer's end again with the number that the peer expects. The peer has not accepted
    /// the first reset, which was lost or came before bytes that the peer has not received (RFC
    /// 9293, 3.10.7.1).
    fn reset_again(&mut self, now: Nanos, header: &Header) {
        let asks = header.flags.contains(Flags::ACK) && !header.flags.contains(Flags::RST);
        if asks && self.ending.was_reset() && self.challenges.allow(now) {
            self.ending.reset_due = Some(header.ack);
        }
    }

    fn refuse(&mut self, now: Nanos, drop: &Drop) {
        let (Drop::Silent(reason) | Drop::Answer(reason) | Drop::Challenge(reason)) = *drop;
        self.receive.discards.count(reason);
        self.receive.acks.due |= match drop {
            Drop::Silent(_) => false,
            Drop::Answer(_) => true,
            Drop::Challenge(_) => self.challenges.allow(now),
        };
    }

    /// Checks everything that precedes the acknowledgement number in the RFC's order.
    fn admit(&mut self, now: Nanos, segment: &Segment<'_>) -> Result<(), Drop> {
        let header = &segment.header;
        let reset = header.flags.contains(Flags::RST);
        if !self.is_acceptable(segment) {
            return Err(if reset {
                Drop::Silent(Discard::Window)
            } else {
                self.stray(now, segment)
            });
        }
        if !reset {
            self.admit_timestamp(now, header, segment.payload.is_empty())?;
        }
        let exact = header.seq == self.receive.number();
        if reset && exact {
            self.ending.peer_reset();
        }
        match header.flags {
            flags if flags.contains(Flags::RST) && exact => Err(Drop::Silent(Discard::Ended)),
            flags if flags.contains(Flags::RST) => Err(Drop::Challenge(Discard::BlindReset)),
            flags if flags.contains(Flags::SYN) => Err(Drop::Challenge(Discard::Syn)),
            flags if !flags.contains(Flags::ACK) => Err(Drop::Silent(Discard::NoAck)),
            _ => Ok(()),
        }
    }

    /// Returns whether a segment overlaps the window. A segment that begins directly after a full
    /// window is accepted for its acknowledgement, as in Linux.
    fn is_acceptable(&self, segment: &Segment<'_>) -> bool {
        let Header { seq, flags, .. } = segment.header;
        let ahead = seq.ahead_of(self.receive.number());
        let len = segment.payload.len() as i64 + i64::from(flags.contains(Flags::FIN));
        let old = ahead < 0 && ahead + len <= 0;
        !old && ahead <= i64::try_from(self.receive.room()).unwrap_or(i64::MAX)
    }

    /// Handles a segment outside of the window: reports it as a duplicate, or answers it.
    fn stray(&mut self, now: Nanos, segment: &Segment<'_>) -> Drop {
        let Header { seq, flags, .. } = segment.header;
        if flags.contains(Flags::SYN) {
            return Drop::Challenge(Discard::Syn);
        }
        let fin = flags.contains(Flags::FIN);
        if fin {
            self.ending.linger(now);
        }
        let old = seq.ahead_of(self.receive.number()) < 0;
        match u32::try_from(segment.payload.len()) {
            Ok(len @ 1..) if old => {
                self.receive.note_duplicate(seq, len);
                Drop::Answer(Discard::Duplicate)
            }
            Ok(1..) => Drop::Answer(Discard::Window),
            _ if fin => Drop::Answer(Discard::Duplicate),
            _ => Drop::Challenge(Discard::Window),
        }
    }

    /// Applies the protection against wrapped sequence numbers (RFC 7323, 5).
    fn admit_timestamp(&self, now: Nanos, header: &Header, bare: bool) -> Result<(), Drop> {
        let Some(clock) = &self.clock else { return Ok(()) };
        let Some(timestamps) = header.options.timestamps else {
            return Err(Drop::Silent(Discard::NoTimestamp));
        };
        if clock.is_old(now, timestamps.value) {
            let reason = Discard::OldTimestamp;
            return Err(if bare { Drop::Challenge(reason) } else { Drop::Answer(reason) });
        }
        Ok(())
    }

    /// Records the timestamp of a segment that has passed all checks. A segment that starts after
    /// the last acknowledgement is ignored, because its timestamp would hide the delay of that
    /// acknowledgement (RFC 7323, 4.3).
    fn take_timestamp(&mut self, now: Nanos, header: &Header) {
        let start = self.receive.position(header.seq);
        let (Some(clock), Some(timestamps)) = (&mut self.clock, header.options.timestamps) else {
            return;
        };
        if start.is_none_or(|start| start <= self.last_ack) && clock.recent != timestamps.value {
            clock.update(now, timestamps.value);
        }
    }

    /// Checks the acknowledgement number (RFC 5961, 5). Returns its position, or `None` if it is
    /// older than the newest one.
    fn admit_ack(&self, header: &Header) -> Result<Option<StreamPos>, Drop> {
        let ahead = header.ack.ahead_of(self.send.number(self.send.una));
        let in_flight = self.send.next.since(self.send.una);
        match u64::try_from(ahead) {
            Ok(ahead) if ahead > in_flight => Err(Drop::Challenge(Discard::Acknowledgement)),
            Ok(ahead) => Ok(Some(self.send.una.plus(ahead))),
            Err(_) if ahead.unsigned_abs() > self.send.max_window => {
                Err(Drop::Challenge(Discard::Acknowledgement))
            }
            Err(_) => Ok(None),
        }
    }

    fn acknowledge(&mut self, now: Nanos, at: StreamPos, segment: &Segment<'_>) {
        let Segment { header, payload } = segment;
        let Header { seq, ack, window, .. } = *header;
        let control = Flags::SYN | Flags::FIN;
        let plain = payload.is_empty() && !header.flags.intersects(control);
        let before = self.send.una;
        let echo = header.options.timestamps.map(|timestamps| timestamps.echo);
        let changed = self.send.update_window(at, seq, ack, window);
        self.send.acknowledge(&Ack {
            now,
            at,
            blocks: &header.options.sack,
            echo: self.clock.as_ref().zip(echo),
            bare: plain && !changed && at == before,
        });
    }

    /// Applies the effect of received bytes on the end of the connection.
    pub(super) fn after_delivery(&mut self, now: Nanos, result: Result<(), Failed>) {
        if result.is_err() {
            self.reset(End::Refused);
        }
        self.ending.progress(now, self.send.una, self.receive.finished());
        debug_assert!(!self.ending.is_over() || self.deadline().is_none());
    }
}
