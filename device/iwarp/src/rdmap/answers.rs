//! Outstanding READs and atomics, in the order in which the peer answers them.

use std::collections::VecDeque;

use crate::wire::ddp::{Msn, Tagged};
use crate::wire::terminate::Cause;

/// An outstanding READ or atomic.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// The number of the work request, or `None` for the first message that the initiator sends on
    /// its own.
    item: Option<u64>,
    expected: Expected,
}

#[derive(Clone, Copy, Debug)]
enum Expected {
    /// Responses to this place with `len` octets, of which `got` have arrived.
    Read { sink: Tagged, len: u32, got: u32 },
    /// The response to the atomic with this number.
    Atomic(u32),
}

/// The outstanding READs and atomics.
#[derive(Debug)]
pub(super) struct Answers {
    asked: VecDeque<Asked>,
    /// The number of the next response of an atomic.
    response: Msn,
}

impl Answers {
    /// Creates an empty queue.
    pub(super) const fn new() -> Self {
        Self { asked: VecDeque::new(), response: Msn::FIRST }
    }

    /// Gives memory back if the queue is empty.
    pub(super) fn shrink(&mut self) {
        if self.asked.is_empty() {
            self.asked = VecDeque::new();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.asked.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// Appends the READ of a work request, or a READ without one.
    pub(super) fn ask_read(&mut self, item: Option<u64>, sink: Tagged, len: u32) {
        self.asked.push_back(Asked { item, expected: Expected::Read { sink, len, got: 0 } });
    }

    /// Appends the atomic of a work request.
    pub(super) fn ask_atomic(&mut self, item: u64) {
        // CAST: the response returns the low bits of the number.
        let expected = Expected::Atomic(item as u32);
        self.asked.push_back(Asked { item: Some(item), expected });
    }

    /// Returns the work request whose answer is next.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.asked.front()?.item
    }

    /// Processes `new` octets of the response of a READ, which must be the next ones. Returns the
    /// work request, and the number of octets that arrived before.
    ///
    /// # Errors
    /// The cause of the end of the stream.
    pub(super) fn read(
        &mut self,
        at: Tagged,
        last: bool,
        new: u32,
    ) -> Result<(Option<u64>, u32), Cause> {
        let asked = self.asked.front_mut().ok_or(Cause::Opcode)?;
        let Expected::Read { sink, len, got } = &mut asked.expected else {
            return Err(Cause::Opcode);
        };
        let end = new.checked_add(*got).filter(|end| end <= len).ok_or(Cause::TaggedBounds)?;
        let place = Tagged { stag: sink.stag, to: sink.to.wrapping_add(u64::from(*got)) };
        // The place of a segment without payload is not checked (RFC 5041, section 7.1).
        if new > 0 && at != place {
            let wrong = at.stag != place.stag;
            return Err(if wrong { Cause::TaggedInvalidStag } else { Cause::TaggedBounds });
        }
        if last != (end == *len) {
            return Err(Cause::TaggedBounds);
        }
        Ok((asked.item, std::mem::replace(got, end)))
    }

    /// Takes back the octets of the last call of [`Self::read`], which are passed again.
    pub(super) fn take_back(&mut self, octets: u32) {
        if let Some(Asked { expected: Expected::Read { got, .. }, .. }) = self.asked.front_mut() {
            *got = got.saturating_sub(octets);
        }
    }

    /// Finds the READ to which octets that arrived out of order belong, if that is certain. Returns
    /// its work request, and the number of octets before them.
    pub(super) fn read_ahead(&self, at: Tagged, last: bool, octets: &[u8]) -> Option<(u64, u32)> {
        let place = |asked: &Asked| {
            let Expected::Read { sink, len, got } = asked.expected else { return None };
            let offset = u32::try_from(at.to.wrapping_sub(sink.to)).ok()?;
            let end = offset.checked_add(u32::try_from(octets.len()).ok()?)?;
            let fits = sink.stag == at.stag && got <= offset && end <= len && last == (end == len);
            fits.then_some((asked.item?, offset))
        };
        let mut places = self.asked.iter().filter_map(place);
        let found = places.next()?;
        places.next().is_none().then_some(found)
    }

    /// Processes the response of an atomic. Returns the work request.
    ///
    /// # Errors
    /// The cause of the end of the stream.
    pub(super) fn atomic(&mut self, msn: Msn, id: u32) -> Result<Option<u64>, Cause> {
        let asked = self.asked.front().ok_or(Cause::Opcode)?;
        match asked.expected {
            Expected::Atomic(_) if msn != self.response => Err(Cause::MsnRange),
            Expected::Atomic(expected) if expected == id => {
                self.response = msn.next();
                Ok(asked.item)
            }
            _ => Err(Cause::Opcode),
        }
    }

    /// Removes the oldest READ or atomic, whose answer is complete. Returns its work request.
    pub(super) fn answered(&mut self) -> Option<u64> {
        self.asked.pop_front()?.item
    }
}
