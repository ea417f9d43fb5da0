//! Frames that wait: for a time, or for later frames.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use vrnic_packet::Nanos;

/// The most frames that wait.
pub const FRAMES: usize = 16 << 10;
/// The most bytes of frames that wait.
pub const BYTES: usize = 32 << 20;

/// A frame that can wait.
pub trait Waits {
    /// Identifies a stream of frames, within which one frame may overtake another.
    type Stream: PartialEq;

    /// Returns its length in bytes.
    fn bytes(&self) -> usize;

    /// Returns the stream to which it belongs.
    fn stream(&self) -> Self::Stream;
}

/// The order in which frames are released. The number distinguishes frames with the same time.
type Place = (Nanos, u64);

/// Frames that wait.
#[derive(Debug)]
pub struct Delayed<F> {
    waiting: BTreeMap<Place, F>,
    /// Frames that wait for later frames to pass, and for how many.
    behind: Vec<(Place, u32)>,
    /// Frames that enough later frames have passed.
    passed: VecDeque<F>,
    next: u64,
    bytes: usize,
}

impl<F> Default for Delayed<F> {
    fn default() -> Self {
        let (waiting, behind) = (BTreeMap::new(), Vec::new());
        Self { waiting, behind, passed: VecDeque::new(), next: 0, bytes: 0 }
    }
}

impl<F: Waits> Delayed<F> {
    /// Lets a frame wait for a time.
    ///
    /// # Errors
    /// The frame, if too many frames or bytes wait.
    pub fn for_time(&mut self, frame: F, now: Nanos, time: Duration) -> Result<(), F> {
        self.push(frame, now.plus(time)).map(|_| ())
    }

    /// Lets a frame wait until this many later frames of its stream have passed ([`Self::passed`]),
    /// but no longer than `until`.
    ///
    /// # Errors
    /// The frame, if too many frames or bytes wait.
    pub fn for_frames(&mut self, frame: F, frames: u32, until: Nanos) -> Result<(), F> {
        let place = self.push(frame, until)?;
        self.behind.push((place, frames));
        Ok(())
    }

    fn push(&mut self, frame: F, until: Nanos) -> Result<Place, F> {
        let bytes = self.bytes.saturating_add(frame.bytes());
        if self.waiting.len() + self.passed.len() >= FRAMES || bytes > BYTES {
            return Err(frame);
        }
        let place = (until, self.next);
        self.next += 1;
        self.bytes = bytes;
        self.waiting.insert(place, frame);
        Ok(place)
    }

    /// Counts a frame of this stream as passing all frames that wait.
    pub fn passed(&mut self, stream: &F::Stream) {
        let Self { waiting, behind, passed, .. } = self;
        behind.retain_mut(|(place, frames)| {
            let Some(overtaken) = waiting.get(place) else { return false };
            if overtaken.stream() == *stream {
                *frames = frames.saturating_sub(1);
            }
            if *frames == 0 {
                passed.extend(waiting.remove(place));
            }
            *frames > 0
        });
    }

    /// Takes a frame whose wait is over. The frame whose wait ends first comes first.
    pub fn next(&mut self, now: Nanos) -> Option<F> {
        let due = |((until, _), _): (&Place, _)| *until <= now;
        let frame = match self.passed.pop_front() {
            Some(frame) => Some(frame),
            None if self.waiting.first_key_value().is_some_and(due) => self.pop(),
            None => None,
        }?;
        self.bytes = self.bytes.saturating_sub(frame.bytes());
        Some(frame)
    }

    fn pop(&mut self) -> Option<F> {
        self.waiting.pop_first().map(|(_, frame)| frame)
    }

    /// Returns the time at which the wait of the next frame is over.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        self.waiting.first_key_value().map(|((until, _), _)| *until)
    }

    /// Takes any frame, because the rules were cleared.
    pub fn flush(&mut self) -> Option<F> {
        let frame = self.passed.pop_front().or_else(|| self.pop())?;
        self.bytes = self.bytes.saturating_sub(frame.bytes());
        Some(frame)
    }

    /// Returns the number of frames that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len() + self.passed.len()
    }

    /// Returns whether no frames wait.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
