//! Limits of a turn, and times, which several transports have.

use std::time::Duration;

/// Maximum number of frames that a QP sends in one turn, answers and requests each, and that are
/// taken in one poll. Answers to them are sent together.
pub(crate) const MAX_FRAMES: usize = 64;
/// Time before a QP tries again when the network has no room for its frames.
pub(crate) const NO_ROOM_PAUSE: Duration = Duration::from_micros(10);
/// Number of bytes of a message whose pages must be present when it begins as packets, if absent
/// pages of it are not waited for as well later.
pub(crate) const PRESENT_AT_FIRST: u64 = 1 << 20;
/// Time before a QP asks again for an answer that would go to absent pages.
pub(crate) const PAGES_PAUSE: Duration = Duration::from_micros(100);
/// Time before a QP executes an answer whose bytes the host is writing, if the host does not know
/// when it has.
pub(crate) const LATE_PAUSE: Duration = Duration::from_micros(10);
/// Longest time before a QP tries again whose memory the host reads or writes.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_millis(1);
/// Maximum number of times in a turn for which a QP waits until an invalidated key is no longer
/// used.
pub(crate) const MAX_KEY_WAITS: u32 = 16;
/// Time between two parts of a message whose blocks come in another order.
pub(crate) const BLOCKS_PAUSE: Duration = Duration::from_micros(20);
/// Number of members of a multicast group that are looked up at once.
pub(crate) const MEMBERS_AT_ONCE: usize = 64;
