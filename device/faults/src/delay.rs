//! Frames that wait: for a time, or for later frames.

use std::collections::VecDeque;
use std::time::Duration;

use vrnic_roce::time::Time;

/// The most frames that wait. A further one does not.
pub const FRAMES: usize = 1024;

#[derive(Debug)]
struct Waiting<F> {
    frame: F,
    until: Until,
}

#[derive(Clone, Copy, Debug)]
enum Until {
    Time(Time),
    /// So many more frames have to pass.
    Frames(u32),
}

/// Frames of one direction that wait.
#[derive(Debug)]
pub struct Delayed<F> {
    waiting: VecDeque<Waiting<F>>,
}

impl<F> Default for Delayed<F> {
    fn default() -> Self {
        Self { waiting: VecDeque::new() }
    }
}

impl<F> Delayed<F> {
    /// Lets a frame wait for a time. Returns the frame if too many wait.
    ///
    /// # Errors
    /// The frame, which the caller sends at once.
    pub fn for_time(&mut self, frame: F, now: Time, time: Duration) -> Result<(), F> {
        self.push(frame, Until::Time(now.plus(time)))
    }

    /// Lets a frame wait until so many later frames have passed ([`Self::passed`]).
    ///
    /// # Errors
    /// The frame, which the caller sends at once.
    pub fn for_frames(&mut self, frame: F, frames: u32) -> Result<(), F> {
        self.push(frame, Until::Frames(frames))
    }

    fn push(&mut self, frame: F, until: Until) -> Result<(), F> {
        if self.waiting.len() >= FRAMES {
            return Err(frame);
        }
        self.waiting.push_back(Waiting { frame, until });
        Ok(())
    }

    /// Notes that a frame has passed.
    pub fn passed(&mut self) {
        for waiting in &mut self.waiting {
            if let Until::Frames(frames) = &mut waiting.until {
                *frames = frames.saturating_sub(1);
            }
        }
    }

    /// Takes a frame whose wait is over, the one that has waited longest first.
    pub fn next(&mut self, now: Time) -> Option<F> {
        let over = |waiting: &Waiting<F>| match waiting.until {
            Until::Time(until) => until <= now,
            Until::Frames(frames) => frames == 0,
        };
        let at = self.waiting.iter().position(over)?;
        self.waiting.remove(at).map(|waiting| waiting.frame)
    }

    /// The time at which the next frame has waited long enough. Frames that wait for others have
    /// none: the last frame of a burst that is to be overtaken waits until there is traffic again,
    /// or until [`Self::flush`].
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let times = self.waiting.iter().filter_map(|waiting| match waiting.until {
            Until::Time(until) => Some(until),
            Until::Frames(_) => None,
        });
        times.min()
    }

    /// Takes any frame, because the rules were cleared.
    pub fn flush(&mut self) -> Option<F> {
        self.waiting.pop_front().map(|waiting| waiting.frame)
    }
}
