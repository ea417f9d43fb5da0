//! Answers whose bytes are not written when the engine takes them.

use std::time::Duration;

/// The reason for which the bytes of an answer are not written when the engine takes it.
pub(super) enum Deferral {
    /// Pages of the memory are absent, and have been requested, or the host has no room for the
    /// bytes.
    Absent,
    /// The host has taken over the bytes of the whole message, and has not written all of them, or
    /// not all blocks have been placed. The answer is looked at again after this time.
    Awaited(Duration),
    /// The bytes are kept, or the host has taken them over. If they are the last ones, all bytes of
    /// the message have been written.
    TakenOver,
    /// The host could not write bytes of the message.
    Refused,
}
