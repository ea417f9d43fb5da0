//! The messages of a trunk. The first one in each direction is [`HELLO`]. All others carry frames,
//! each after its length as a 32-bit big-endian number, as in the stream of a netdev.

use thiserror::Error;

use crate::net::frame::{Frame, WrongLength};
use crate::net::framing::PREFIX;

/// The first message, which names the protocol and its version.
pub const HELLO: &[u8] = b"vrnic trunk 1\n";

/// Length of the longest message in bytes.
pub const MESSAGE_MAX: usize = 128 << 10;

/// Why the rest of a message cannot be read.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Malformed {
    /// It ends within the length of a frame.
    #[error("it ends within the length of a frame")]
    Prefix,
    /// It ends before the frame does.
    #[error("a frame of {len} bytes has only {left}")]
    Truncated {
        /// The frame's length.
        len: usize,
        /// Bytes that are left.
        left: usize,
    },
    /// No frame has such a length.
    #[error(transparent)]
    Length(#[from] WrongLength),
}

/// The frames of a message, up to the first fault.
#[derive(Debug)]
pub struct Frames<'a> {
    rest: &'a [u8],
}

impl<'a> Frames<'a> {
    /// Reads a message.
    #[must_use]
    pub const fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// Takes the next frame off the message.
    fn take(&mut self) -> Result<Frame, Malformed> {
        let (prefix, rest) = self.rest.split_first_chunk::<PREFIX>().ok_or(Malformed::Prefix)?;
        let len = usize::try_from(u32::from_be_bytes(*prefix)).unwrap_or(usize::MAX);
        let left = rest.len();
        let (frame, rest) = rest.split_at_checked(len).ok_or(Malformed::Truncated { len, left })?;
        self.rest = rest;
        Ok(Frame::new(frame.to_vec())?)
    }
}

impl Iterator for Frames<'_> {
    type Item = Result<Frame, Malformed>;

    fn next(&mut self) -> Option<Result<Frame, Malformed>> {
        if self.rest.is_empty() {
            return None;
        }
        // The bytes behind a fault cannot be trusted to begin with a length.
        Some(self.take().inspect_err(|_| self.rest = &[]))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::net::frame::{FRAME_MAX, FRAME_MIN};
    use crate::net::framing::prefix;

    fn message(frames: &[Frame]) -> Vec<u8> {
        frames.iter().flat_map(|frame| [&prefix(frame), frame.bytes()].concat()).collect()
    }

    fn frames() -> impl Strategy<Value = Vec<Frame>> {
        let bytes = proptest::collection::vec(any::<u8>(), FRAME_MIN..300);
        let frame = bytes.prop_map(|bytes| Frame::new(bytes).expect("a frame"));
        proptest::collection::vec(frame, 0..40)
    }

    #[test]
    fn each_fault_is_named() {
        let parse = |bytes: &[u8]| Frames::new(bytes).next();
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&[0, 0, 0]), Some(Err(Malformed::Prefix)));
        let truncated = Malformed::Truncated { len: 15, left: 14 };
        assert_eq!(parse(&[&[0, 0, 0, 15][..], &[0; 14]].concat()), Some(Err(truncated)));
        let huge =
            Malformed::Truncated { len: usize::try_from(u32::MAX).expect("64 bits"), left: 0 };
        assert_eq!(parse(&[0xff; 4]), Some(Err(huge)));
        let short = Malformed::Length(WrongLength::Short(13));
        assert_eq!(parse(&[&[0, 0, 0, 13][..], &[0; 13]].concat()), Some(Err(short)));
        let len = u32::try_from(FRAME_MAX + 1).expect("32 bits");
        let long = [&len.to_be_bytes()[..], &vec![0; FRAME_MAX + 1]].concat();
        let fault = Malformed::Length(WrongLength::Long(FRAME_MAX + 1));
        assert_eq!(parse(&long), Some(Err(fault)));
    }

    #[test]
    fn a_greeting_is_no_frame() {
        assert!(Frames::new(HELLO).next().is_some_and(|frame| frame.is_err()));
    }

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in(frames in frames()) {
            let message = message(&frames);
            let read: Result<Vec<_>, _> = Frames::new(&message).collect();
            prop_assert_eq!(read.expect("well-formed"), frames);
        }

        /// A message that is cut or damaged gives the frames before the damage, at most one fault,
        /// and never more bytes than it has.
        #[test]
        fn any_message_is_survived(
            frames in frames(),
            cut in any::<prop::sample::Index>(),
            damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        ) {
            let mut message = message(&frames);
            message.truncate(cut.index(message.len() + 1));
            for (at, byte) in damage {
                if !message.is_empty() {
                    let at = at.index(message.len());
                    message[at] = byte;
                }
            }
            let read: Vec<_> = Frames::new(&message).collect();
            let faults = read.iter().filter(|frame| frame.is_err()).count();
            prop_assert!(faults == 0 || faults == 1 && read.last().is_some_and(Result::is_err));
            let lens = read.iter().flatten().map(|frame| PREFIX + frame.bytes().len());
            prop_assert!(lens.sum::<usize>() <= message.len());
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Frames::new(&bytes).count() <= bytes.len());
        }
    }
}
