//! The format of QEMU's `-netdev stream` (net/stream.c, `net_fill_rstate`): each frame
//! is preceded by its length as a 32-bit big-endian number.

use thiserror::Error;

use super::frame::{FRAME_MAX, Frame};

/// Length of the prefix.
pub const PREFIX: usize = 4;

/// The announced length exceeds the maximum, so the stream cannot be decoded any further.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("a frame of {0} bytes is longer than the limit of {FRAME_MAX}")]
pub struct Oversized(pub usize);

/// Returns the prefix of a frame.
#[must_use]
pub fn prefix(frame: &Frame) -> [u8; PREFIX] {
    // No frame is longer than FRAME_MAX.
    u32::try_from(frame.bytes().len()).unwrap_or(u32::MAX).to_be_bytes()
}

/// Result of decoding.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// A frame.
    Frame(Frame),
    /// A frame that is shorter than an Ethernet header, and its length.
    Runt(usize),
    /// More bytes are needed for the next frame.
    NeedMore,
}

/// Cuts a byte stream into frames.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// The number of bytes of `buffer` that have been decoded.
    start: usize,
}

impl Decoder {
    /// Appends bytes of the stream.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns whether a part of a frame has been received.
    #[must_use]
    pub fn in_frame(&self) -> bool {
        self.buffer.len() > self.start
    }

    /// Takes the next frame. The decoder buffers at most one frame beyond the bytes of one
    /// [`Self::feed`], whatever length the peer announces.
    ///
    /// # Errors
    /// [`Oversized`]: the stream is out of step or hostile, and must be closed.
    pub fn next_frame(&mut self) -> Result<Next, Oversized> {
        let rest = &self.buffer[self.start..];
        let Some((prefix, body)) = rest.split_first_chunk::<PREFIX>() else {
            return Ok(Next::NeedMore);
        };
        let len = usize::try_from(u32::from_be_bytes(*prefix)).unwrap_or(usize::MAX);
        if len > FRAME_MAX {
            return Err(Oversized(len));
        }
        if body.len() < len {
            return Ok(Next::NeedMore);
        }
        self.start += PREFIX + len;
        // The body is not too long, so if it is not a frame, it is too short.
        Ok(Frame::copy(&body[..len]).map_or(Next::Runt(len), Next::Frame))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::frame::FRAME_MIN;
    use super::*;

    fn wire(len: usize) -> Vec<u8> {
        let mut bytes = u32::try_from(len).expect("small").to_be_bytes().to_vec();
        bytes.extend((0..len).map(|i| i.to_le_bytes()[0]));
        bytes
    }

    #[test]
    fn frames_come_out_whatever_the_pieces() {
        let stream = [wire(14), wire(60), wire(FRAME_MAX)].concat();
        for piece in [1, 3, 17, 4096, stream.len()] {
            let mut decoder = Decoder::default();
            let mut lens = Vec::new();
            for bytes in stream.chunks(piece) {
                decoder.feed(bytes);
                while let Next::Frame(frame) = decoder.next_frame().expect("no error") {
                    lens.push(frame.bytes().len());
                }
            }
            assert_eq!(lens, [14, 60, FRAME_MAX], "pieces of {piece}");
            assert!(!decoder.in_frame());
        }
    }

    #[test]
    fn runts_are_skipped_and_giants_refused() {
        let mut decoder = Decoder::default();
        decoder.feed(&[wire(0), wire(13), wire(14)].concat());
        assert_eq!(decoder.next_frame(), Ok(Next::Runt(0)));
        assert_eq!(decoder.next_frame(), Ok(Next::Runt(13)));
        assert!(matches!(decoder.next_frame(), Ok(Next::Frame(_))));
        assert_eq!(decoder.next_frame(), Ok(Next::NeedMore));
        decoder.feed(&u32::MAX.to_be_bytes());
        assert!(decoder.next_frame().is_err());
    }

    proptest! {
        /// No stream makes the decoder panic, or keep more than a frame and what it was just fed.
        #[test]
        fn any_stream_is_survived(
            chunks in proptest::collection::vec(
                proptest::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..200), 0..50
            )
        ) {
            let mut decoder = Decoder::default();
            'stream: for chunk in &chunks {
                decoder.feed(chunk);
                loop {
                    match decoder.next_frame() {
                        Ok(Next::Frame(frame)) => {
                            let len = frame.bytes().len();
                            prop_assert!((FRAME_MIN..=FRAME_MAX).contains(&len));
                        }
                        Ok(Next::Runt(len)) => prop_assert!(len < FRAME_MIN),
                        Ok(Next::NeedMore) => break,
                        Err(Oversized(len)) => {
                            prop_assert!(len > FRAME_MAX);
                            break 'stream;
                        }
                    }
                }
                prop_assert!(decoder.buffer.len() - decoder.start < PREFIX + FRAME_MAX);
            }
        }
    }
}
