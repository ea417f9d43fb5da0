//! The frames that QPs of raw packets send. Each worker has one outbox, which is empty between
//! turns.

use crate::ethernet::Frame;

/// Maximum number of frames for which a list keeps its memory.
const MAX_KEPT: usize = 1024;

/// The frames of a turn.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// The frames of the work request in progress.
    pub(crate) fresh: Vec<Frame>,
    /// The frames that leave at the end of the turn.
    pub(crate) leaving: Vec<Frame>,
}

impl Outbox {
    /// Drops what the turn has left.
    pub(crate) fn clear(&mut self) {
        for list in [&mut self.fresh, &mut self.leaving] {
            list.clear();
            list.shrink_to(MAX_KEPT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_no_frames_and_little_memory() {
        let mut outbox = Outbox::default();
        for count in [MAX_KEPT / 2, 10 * MAX_KEPT] {
            let frames = std::iter::repeat_n(Frame::new(vec![0; 60]), count);
            outbox.fresh.extend(frames.clone());
            outbox.leaving.extend(frames);
            outbox.clear();
            assert!(outbox.fresh.is_empty() && outbox.leaving.is_empty());
            let [fresh, leaving] = [&outbox.fresh, &outbox.leaving].map(Vec::capacity);
            assert!((MAX_KEPT / 2..=MAX_KEPT).contains(&fresh), "{fresh}");
            assert!((MAX_KEPT / 2..=MAX_KEPT).contains(&leaving), "{leaving}");
        }
    }
}
