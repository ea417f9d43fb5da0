//! Keys that are valid for one message.
//!
//! The first segment that names such a key binds the entry to its message. Segments of other
//! messages are refused from then on. The entry becomes invalid when the last byte of the message
//! has been placed *in order*. If a last segment arrives before an earlier one, its end is stored
//! as a sequence number of the stream, and the entry becomes invalid when the stream has reached
//! it.

use super::Tpt;
use super::denied::Denied;
use super::entry::{Cold, Owner, Slot};
use super::message::{Message, Touch};
use vrnic_abi::Key;

/// The state of an entry after bytes have been placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// It stays valid, because the message has not ended.
    Alive,
    /// The message's last segment has arrived, but not all segments before it. [`Tpt::placed`] must
    /// be called again when the stream has advanced.
    Waiting,
    /// The message has ended, and the key is invalid.
    Dead,
}

/// Returns whether a stream at `position` has reached `end`. Positions are modulo 2³².
fn reached(position: u32, end: u32) -> bool {
    position.wrapping_sub(end) < 1 << 31
}

impl Tpt {
    /// Binds the entry of `key` to `message`.
    pub(super) fn touch(slot: Slot<'_>, key: Key, message: Message) -> Result<(), Denied> {
        let mut cold = slot.back.cold.lock();
        if cold.key != key || slot.entry.load().is_none() {
            // It has become invalid since it was looked up.
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

    /// Records that bytes of `message` have been placed by `key`. `end` is the position of the
    /// stream behind them if they were the message's last bytes. The stream is complete up to
    /// `position`.
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

    /// Invalidates an entry whose message has ended.
    fn die(&self, slot: Slot<'_>, cold: &mut Cold) {
        slot.entry.invalidate();
        cold.touch = Touch::default();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_wrap() {
        assert!(reached(5, 5) && reached(6, 5) && !reached(4, 5));
        assert!(reached(3, u32::MAX - 3) && !reached(u32::MAX - 3, 3));
    }
}
