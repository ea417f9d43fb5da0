//! Frames that wait: for a time, or for later frames of their stream.
//!
//! Shows: faults

use std::cell::Cell;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use proptest::prelude::*;
use vrnic_faults::Delayed;
use vrnic_faults::delay::{BYTES, FRAMES, Waits};
use vrnic_packet::Nanos;

const NOW: Nanos = Nanos(1000);

/// A frame of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting(&'static str, u32);

impl Waits for Waiting {
    type Stream = u32;

    fn bytes(&self) -> usize {
        self.0.len()
    }

    fn stream(&self) -> u32 {
        self.1
    }
}

#[test]
fn frames_wait_for_time_or_for_others() {
    let mut delayed = Delayed::default();
    let at = |nanos| Nanos(nanos);
    let [late, early, overtaken, kept] = [("late", 1), ("early", 1), ("overtaken", 2), ("kept", 2)]
        .map(|(name, stream)| Waiting(name, stream));
    delayed.for_time(late, at(0), Duration::from_nanos(100)).expect("room");
    delayed.for_time(early, at(0), Duration::from_nanos(50)).expect("room");
    delayed.for_frames(overtaken, 2, at(80)).expect("room");
    delayed.for_frames(kept, 2, at(80)).expect("room");
    assert_eq!(delayed.deadline(), Some(at(50)));
    assert_eq!((delayed.next(at(49)), delayed.next(at(60))), (None, Some(early)));
    delayed.passed(&2);
    delayed.passed(&1);
    assert_eq!(delayed.next(at(60)), None);
    // A frame that no other frame passes waits until its time.
    assert_eq!(delayed.next(at(80)), Some(overtaken));
    delayed.passed(&2);
    assert_eq!(delayed.next(at(60)), Some(kept));
    assert_eq!(delayed.next(at(100)), Some(late));
    assert_eq!((delayed.deadline(), delayed.is_empty()), (None, true));
}

#[test]
fn frames_that_wait_are_bounded_by_number_and_by_bytes() {
    let long: &str = Box::leak("a".repeat(1 << 20).into());
    for (text, count) in [("", FRAMES), (long, BYTES >> 20)] {
        let (mut delayed, frame) = (Delayed::default(), Waiting(text, 1));
        for _ in 0..count {
            delayed.for_frames(frame, 1, NOW).expect("room");
        }
        assert_eq!(delayed.for_frames(frame, 1, NOW), Err(frame));
        assert_eq!(delayed.len(), count);
        delayed.passed(&1);
        assert_eq!(delayed.next(Nanos::default()), Some(frame), "not by time");
        delayed.for_time(frame, NOW, Duration::ZERO).expect("room again");
        while delayed.flush().is_some() {}
        assert!(delayed.is_empty());
        delayed.for_frames(frame, 1, NOW).expect("room again");
    }
}

thread_local! {
    /// How often a stream was compared or hashed.
    static LOOKS: Cell<u32> = const { Cell::new(0) };
}

/// A stream that counts how often it is looked at.
#[derive(Debug)]
struct Counted(u32);

impl Counted {
    fn look(&self) -> u32 {
        LOOKS.set(LOOKS.get() + 1);
        self.0
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.look() == other.look()
    }
}

impl Eq for Counted {}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.look().hash(state);
    }
}

#[derive(Debug)]
struct Anonymous(u32);

impl Waits for Anonymous {
    type Stream = Counted;

    fn bytes(&self) -> usize {
        0
    }

    fn stream(&self) -> Counted {
        Counted(self.0)
    }
}

#[test]
fn cost_of_passed() {
    for streams in [1, FRAMES] {
        let mut delayed = Delayed::default();
        for stream in (0..streams).cycle().take(FRAMES - 1) {
            let frame = Anonymous(stream.try_into().expect("small"));
            assert!(delayed.for_frames(frame, u32::MAX, NOW).is_ok(), "room");
        }
        LOOKS.set(0);
        (0..100).for_each(|_| delayed.passed(&Counted(0)));
        assert!(LOOKS.get() < 100 * 32, "{streams} streams: {} looks", LOOKS.get());
    }
}

/// What is done with frames that wait.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A frame of a stream waits for a time, and may wait for frames.
    Wait {
        stream: u32,
        time: u64,
        frames: Option<u32>,
    },
    Passed(u32),
    /// Time goes on, and all frames whose wait is over leave.
    Later(u64),
    Flush,
}

fn any_step() -> impl Strategy<Value = Step> {
    let frames = proptest::option::weighted(0.7, 1..4_u32);
    prop_oneof![
        4 => (0..3_u32, 0..20_u64, frames)
            .prop_map(|(stream, time, frames)| Step::Wait { stream, time, frames }),
        3 => (0..3_u32).prop_map(Step::Passed),
        2 => (0..20_u64).prop_map(Step::Later),
        1 => Just(Step::Flush),
    ]
}

/// Frames that wait, one after the other: time, number, stream and how many must pass.
#[derive(Debug, Default)]
struct Slow {
    waiting: Vec<(u64, usize, u32, Option<u32>)>,
    passed: VecDeque<usize>,
}

impl Slow {
    fn passed(&mut self, stream: u32) {
        self.waiting.sort_unstable();
        for (_, number, of, frames) in &mut self.waiting {
            if let Some(left) = frames.as_mut().filter(|_| *of == stream) {
                *left -= 1;
                self.passed.extend((*left == 0).then_some(*number));
            }
        }
        self.waiting.retain(|(.., frames)| *frames != Some(0));
    }

    fn next(&mut self, now: u64) -> Option<usize> {
        self.waiting.sort_unstable();
        let is_over = self.waiting.first().is_some_and(|(until, ..)| *until <= now);
        self.passed.pop_front().or_else(|| is_over.then(|| self.waiting.remove(0).1))
    }
}

/// A frame by its number, and its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbered(usize, u32);

impl Waits for Numbered {
    type Stream = u32;

    fn bytes(&self) -> usize {
        1
    }

    fn stream(&self) -> u32 {
        self.1
    }
}

proptest! {
    #[test]
    fn frames_that_have_left_leave_nothing_behind(steps in proptest::collection::vec(any_step(), 0..200)) {
        let (mut delayed, mut slow, mut now) = (Delayed::default(), Slow::default(), 0);
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Wait { stream, time, frames } => {
                    let (frame, until) = (Numbered(number, stream), now + time);
                    slow.waiting.push((until, number, stream, frames));
                    match frames {
                        Some(frames) => delayed.for_frames(frame, frames, Nanos(until)),
                        None => delayed.for_time(frame, Nanos(now), Duration::from_nanos(time)),
                    }.expect("room");
                }
                Step::Passed(stream) => {
                    delayed.passed(&stream);
                    slow.passed(stream);
                }
                Step::Later(time) => {
                    now += time;
                    while let Some(number) = slow.next(now) {
                        prop_assert_eq!(delayed.next(Nanos(now)).map(|frame| frame.0), Some(number));
                    }
                    prop_assert_eq!(delayed.next(Nanos(now)), None);
                }
                Step::Flush => prop_assert_eq!(
                    delayed.flush().map(|frame| frame.0), slow.next(u64::MAX),
                ),
            }
            let behind = slow.waiting.iter().filter(|(.., frames)| frames.is_some()).count();
            prop_assert_eq!(delayed.len(), slow.waiting.len() + slow.passed.len());
            prop_assert_eq!(delayed.entries(), behind, "{:?}", step);
        }
    }
}
