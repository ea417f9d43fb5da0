//! Keys that are valid for one message.
//!
//! The first segment in order that names such a key binds the entry to its message. A segment that
//! arrives out of order is placed without this, because its message is not known yet. If it is the
//! last segment of its message, the entry stores the position after it in the stream, and becomes
//! invalid when the stream has come to that position. In order, it becomes invalid when the last
//! byte of the message has been placed. Any other message that names the key meanwhile is refused,
//! and makes the entry invalid at once.

use super::Tpt;
use super::denied::Denied;
use super::entry::{Cold, Owner, Slot};
use super::message::{Message, Position, Stream};
use vrnic_abi::Key;

impl Tpt {
    /// Binds the entry of `key` to `message`, a segment of which has arrived in order.
    pub(super) fn touch(&self, slot: Slot<'_>, key: Key, message: Message) -> Result<(), Denied> {
        let mut cold = slot.back.cold.lock();
        if cold.key != key || slot.entry.load().is_none() {
            // The key has become invalid since it was looked up.
            return Err(Denied::Invalid);
        }
        let other_stream = cold.touched.is_some_and(|last| last.stream != message.stream());
        if other_stream || cold.bound_to.is_some_and(|by| by != message) {
            self.die(slot, &mut cold);
            return Err(Denied::Touched);
        }
        cold.bound_to = Some(message);
        Ok(())
    }

    /// Checks that no other message has touched the entry of `key`, for a last segment in order
    /// that ends at a position of its stream.
    ///
    /// # Errors
    /// [`Denied::Touched`]. The entry is invalid then.
    #[cold]
    pub fn touch_last(&self, key: Key, last: Position) -> Result<(), Denied> {
        let Some(slot) = self.slot(key.index()) else { return Ok(()) };
        let mut cold = slot.back.cold.lock();
        if cold.key != key || cold.touched.is_none_or(|by| by == last) {
            return Ok(());
        }
        self.die(slot, &mut cold);
        Err(Denied::Touched)
    }

    /// Returns whether a segment of `stream` that has arrived out of order may be placed by `key`.
    /// If it is the last one of its message, `last` is the position after it, which the entry
    /// stores.
    #[cold]
    pub fn touch_ahead(&self, key: Key, stream: Stream, last: Option<Position>) -> bool {
        let Some(slot) = self.slot(key.index()) else { return false };
        let mut cold = slot.back.cold.lock();
        if cold.key != key || slot.entry.load().is_none() {
            return false;
        }
        let other = cold.bound_to.is_some_and(|by| by.stream() != stream);
        let free = match (cold.touched, last) {
            (None, _) => !other,
            (Some(by), None) => !other && by.stream == stream,
            (Some(by), Some(last)) => !other && by == last,
        };
        if free && last.is_some() {
            cold.touched = last;
        }
        free
    }

    /// Invalidates the entry of `key` if `message`, whose end at `last` the stream has reached, is
    /// the one that [`Self::touch_ahead`] has stored. Returns none if it is not.
    ///
    /// # Errors
    /// [`Denied::Touched`] if another message has used the key, too.
    pub fn reach(&self, key: Key, message: Message, last: Position) -> Option<Result<(), Denied>> {
        let slot = self.slot(key.index())?;
        if !slot.entry.last()?.one_touch {
            return None;
        }
        let mut cold = slot.back.cold.lock();
        if cold.key != key || cold.touched != Some(last) {
            return None;
        }
        let twice = cold.bound_to.is_some_and(|by| by != message);
        cold.touched = None;
        // A second access may have made it invalid before.
        if slot.entry.load().is_some() {
            self.die(slot, &mut cold);
        }
        Some(if twice { Err(Denied::Touched) } else { Ok(()) })
    }

    /// Invalidates the entry of `key` if it is bound to `message`, all of whose bytes have been
    /// placed. Returns false if it is not.
    pub fn end_message(&self, key: Key, message: Message) -> bool {
        let Some(slot) = self.slot(key.index()) else { return false };
        let mut cold = slot.back.cold.lock();
        let bound = cold.key == key && cold.bound_to == Some(message);
        if !bound || slot.entry.load().is_none() {
            return false;
        }
        self.die(slot, &mut cold);
        true
    }

    /// Invalidates an entry whose message has ended, or that two messages have used, or whose
    /// region was revoked. The position of a last segment that was placed before stays, so that its
    /// message still ends.
    pub(super) fn die(&self, slot: Slot<'_>, cold: &mut Cold) {
        if slot.entry.load().is_none() {
            return;
        }
        slot.entry.invalidate();
        cold.bound_to = None;
        match cold.owner {
            Owner::Window1 | Owner::Window2 => self.release_region(cold),
            Owner::Fast => {
                // A region that is valid for one message has no windows.
                slot.back.close();
            }
            _ => {}
        }
    }
}
