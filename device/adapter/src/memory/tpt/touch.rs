//! Keys that are good for one message.
//!
//! The first segment that names such a key marks the entry with its message; segments of another
//! message are refused from then on. The entry dies when the last byte of the message has been
//! placed *in order*. Where a last segment comes before an earlier one, its end is remembered as a
//! sequence number of the stream, and the entry dies when the stream has caught up with it.

use super::Tpt;
use super::denied::Denied;
use super::entry::{Cold, Owner, Slot};
use super::message::{Message, Touch};
use vrnic_abi::Key;

/// State of an entry after bytes have been placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// It goes on; the message has not ended.
    Alive,
    /// The message's last segment has come, but not all before it: [`Tpt::placed`] is due again
    /// when the stream has moved on.
    Waiting,
    /// It was this message's, which has ended: the key is invalid.
    Dead,
}

/// Returns whether a stream at `position` has come to `end`; positions are modulo 2³².
fn reached(position: u32, end: u32) -> bool {
    position.wrapping_sub(end) < 1 << 31
}

impl Tpt {
    /// Marks the entry of `key` as touched by `message`.
    pub(super) fn touch(slot: Slot<'_>, key: Key, message: Message) -> Result<(), Denied> {
        let mut cold = slot.back.cold.lock();
        if cold.key != key || slot.entry.load().is_none() {
            // It has died since it was looked at.
            return Err(Denied::Invalid);
        }
        match cold.touch.by {
            Some(by) if by != message => Err(Denied::Touched),
            _ => {
                cold.touch.by = Some(message);
                Ok(())
            }
        }
    }

    /// Bytes of `message` that named `key` have been placed. `end` is the position of the stream
    /// behind them if they were the message's last; `position` is up to where the stream is whole
    /// now.
    pub fn placed(&self, key: Key, message: Message, end: Option<u32>, position: u32) -> Placed {
        let Some(slot) = self.slot(key.index()) else { return Placed::Alive };
        let mut cold = slot.back.cold.lock();
        let touched = cold.key == key && cold.touch.by == Some(message);
        if !touched || slot.entry.load().is_none() {
            return Placed::Alive;
        }
        cold.touch.end = cold.touch.end.or(end);
        match cold.touch.end {
            None => Placed::Alive,
            Some(end) if !reached(position, end) => Placed::Waiting,
            Some(_) => {
                self.die(slot, &mut cold);
                Placed::Dead
            }
        }
    }

    /// The message of an entry has ended, and the entry's use with it.
    fn die(&self, slot: Slot<'_>, cold: &mut Cold) {
        slot.entry.invalidate();
        cold.touch = Touch::default();
        match cold.owner {
            Owner::Window1 | Owner::Window2 => self.release_region(cold),
            Owner::Fast => {
                // A region that dies at a touch has no windows.
                slot.back.close();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_wrap() {
        assert!(reached(5, 5) && reached(6, 5) && !reached(4, 5));
        assert!(reached(3, u32::MAX - 3) && !reached(u32::MAX - 3, 3));
    }
}
