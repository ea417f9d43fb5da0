//! Keys that are valid for one message.
//!
//! The first segment that names such a key binds the entry to its message. Segments of other
//! messages are refused from then on. The entry becomes invalid when the last byte of the message
//! has been placed, and all bytes before it.

use super::Tpt;
use super::denied::Denied;
use super::entry::{Cold, Owner, Slot};
use super::message::Message;
use vrnic_abi::Key;

impl Tpt {
    /// Binds the entry of `key` to `message`.
    pub(super) fn touch(slot: Slot<'_>, key: Key, message: Message) -> Result<(), Denied> {
        let mut cold = slot.back.cold.lock();
        if cold.key != key || slot.entry.load().is_none() {
            // It has become invalid since it was looked up.
            return Err(Denied::Invalid);
        }
        match cold.bound_to {
            Some(by) if by != message => Err(Denied::Touched),
            _ => {
                cold.bound_to = Some(message);
                Ok(())
            }
        }
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

    /// Invalidates an entry whose message has ended.
    fn die(&self, slot: Slot<'_>, cold: &mut Cold) {
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
