//! Frames that wait: for a time, or for later frames.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use vrnic_packet::Nanos;

/// The most frames that wait.
pub const FRAMES: usize = 16 << 10;
/// The most bytes of frames that wait.
pub const BYTES: usize = 32 << 20;

/// A frame that can wait.
pub trait Waits {
    /// Identifies a stream of frames, within which one frame may overtake another.
    type Stream: Hash + Eq;

    /// Returns its length in bytes.
    fn bytes(&self) -> usize;

    /// Returns the stream to which it belongs.
    fn stream(&self) -> Self::Stream;
}

/// The order in which frames are released. The number distinguishes frames with the same time.
type Place = (Nanos, u64);

/// Frames that wait.
#[derive(Debug)]
pub struct Delayed<F: Waits> {
    waiting: BTreeMap<Place, Waiting<F>>,
    /// The streams of which frames wait for later ones.
    streams: HashMap<F::Stream, Stream>,
    /// Frames that enough later frames have passed.
    passed: VecDeque<F>,
    next: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Waiting<F> {
    frame: F,
    /// The count of its stream at which its wait is over, if it waits for later frames.
    due: Option<u64>,
}

/// A stream of which frames wait for later ones.
#[derive(Debug, Default)]
struct Stream {
    /// The number of frames that have passed since the first one has begun to wait.
    count: u64,
    /// The frames that wait, by the count at which their wait is over.
    behind: BTreeSet<(u64, Place)>,
}

impl<F: Waits> Default for Delayed<F> {
    fn default() -> Self {
        let (waiting, streams) = (BTreeMap::new(), HashMap::new());
        Self { waiting, streams, passed: VecDeque::new(), next: 0, bytes: 0 }
    }
}

impl<F: Waits> Delayed<F> {
    /// Lets a frame wait for a time.
    ///
    /// # Errors
    /// The frame, if too many frames or bytes wait.
    pub fn for_time(&mut self, frame: F, now: Nanos, time: Duration) -> Result<(), F> {
        let place = self.place(now.plus(time));
        self.keep(place, frame, None)
    }

    /// Lets a frame wait until this many later frames of its stream have passed ([`Self::passed`]),
    /// but no longer than `until`.
    ///
    /// # Errors
    /// The frame, if too many frames or bytes wait.
    pub fn for_frames(&mut self, frame: F, frames: u32, until: Nanos) -> Result<(), F> {
        let (place, stream) = (self.place(until), frame.stream());
        let count = self.streams.get(&stream).map_or(0, |stream| stream.count);
        let due = count.saturating_add(frames.max(1).into());
        self.keep(place, frame, Some(due))?;
        self.streams.entry(stream).or_default().behind.insert((due, place));
        Ok(())
    }

    const fn place(&mut self, until: Nanos) -> Place {
        self.next += 1;
        (until, self.next)
    }

    fn keep(&mut self, place: Place, frame: F, due: Option<u64>) -> Result<(), F> {
        let bytes = self.bytes.saturating_add(frame.bytes());
        if self.len() >= FRAMES || bytes > BYTES {
            return Err(frame);
        }
        self.bytes = bytes;
        self.waiting.insert(place, Waiting { frame, due });
        Ok(())
    }

    /// Counts a frame of this stream as passing all frames that wait.
    pub fn passed(&mut self, stream: &F::Stream) {
        let Some(Stream { count, behind }) = self.streams.get_mut(stream) else { return };
        *count = count.saturating_add(1);
        while behind.first().is_some_and(|(due, _)| due <= count) {
            let overtaken = behind.pop_first().and_then(|(_, place)| self.waiting.remove(&place));
            self.passed.extend(overtaken.map(|waiting| waiting.frame));
        }
        if behind.is_empty() {
            self.streams.remove(stream);
        }
    }

    /// Takes a frame that enough later frames have passed.
    pub fn overtaken(&mut self) -> Option<F> {
        let frame = self.passed.pop_front()?;
        self.bytes = self.bytes.saturating_sub(frame.bytes());
        Some(frame)
    }

    /// Takes a frame whose wait is over. The frame whose wait ends first comes first.
    pub fn next(&mut self, now: Nanos) -> Option<F> {
        self.overtaken().or_else(|| {
            let is_over = self.deadline().is_some_and(|until| until <= now);
            is_over.then(|| self.pop()).flatten()
        })
    }

    /// Takes the first frame of those that wait, and forgets for what it waits.
    fn pop(&mut self) -> Option<F> {
        let (place, Waiting { frame, due }) = self.waiting.pop_first()?;
        self.bytes = self.bytes.saturating_sub(frame.bytes());
        if let Some(due) = due
            && let stream = frame.stream()
            && let Some(Stream { behind, .. }) = self.streams.get_mut(&stream)
        {
            behind.remove(&(due, place));
            if behind.is_empty() {
                self.streams.remove(&stream);
            }
        }
        Some(frame)
    }

    /// Returns the time at which the wait of the next frame is over.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        self.waiting.first_key_value().map(|((until, _), _)| *until)
    }

    /// Takes any frame, because the rules were cleared.
    pub fn flush(&mut self) -> Option<F> {
        self.overtaken().or_else(|| self.pop())
    }

    /// Returns the number of frames that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len() + self.passed.len()
    }

    /// Returns the number of entries that it keeps of frames that wait for later ones.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.streams.values().map(|stream| stream.behind.len()).sum()
    }

    /// Returns whether no frames wait.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
