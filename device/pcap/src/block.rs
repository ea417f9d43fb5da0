//! Blocks of a pcapng file (IETF draft-ietf-opsawg-pcapng), in little-endian order. Times have a
//! resolution of a nanosecond.

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
/// Tells the order of bytes.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const ETHERNET: u16 = 1;

/// Codes of options.
const END: u16 = 0;
const COMMENT: u16 = 1;
const INTERFACE_NAME: u16 = 2;
const APPLICATION: u16 = 4;
const TIME_RESOLUTION: u16 = 9;
/// Option of a statistics block: number of frames that were dropped for lack of room.
const DROPPED: u16 = 5;
/// Times are multiples of 10⁻⁹ s.
const NANOSECONDS: u8 = 9;

/// The longest text of an option that is written. The rest is cut off.
const TEXT_MAX: usize = 1024;

/// An interface that packets were captured at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The name of the interface.
    pub name: String,
    /// The largest number of bytes of a frame that is written; 0 for all.
    pub snap_length: u32,
}

/// A captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured<'a> {
    /// The interface, by its place among the description blocks, from 0.
    pub interface: u32,
    /// Nanoseconds since 1970.
    pub nanos: u64,
    /// The whole frame, without a frame check sequence.
    pub frame: &'a [u8],
    /// Notes for the reader, such as the origin of the frame.
    pub comments: [Option<&'a str>; 2],
}

/// Returns the block with which a file begins.
#[must_use]
pub fn section_header(application: &str) -> Vec<u8> {
    let mut block = Block::new(SECTION_HEADER);
    block.u32(BYTE_ORDER);
    // Version 1.0.
    block.u16(1);
    block.u16(0);
    // The length of the section is not known.
    block.put(&[0xff; 8]);
    block.option(APPLICATION, text(application));
    block.end()
}

impl Interface {
    /// Returns the block that describes the interface. It stands before the packets.
    #[must_use]
    pub fn description(&self) -> Vec<u8> {
        let mut block = Block::new(INTERFACE_DESCRIPTION);
        block.u16(ETHERNET);
        block.u16(0);
        block.u32(self.snap_length);
        block.option(INTERFACE_NAME, text(&self.name));
        block.option(TIME_RESOLUTION, &[NANOSECONDS]);
        block.end()
    }
}

impl Captured<'_> {
    /// Returns the block of the frame, of which at most `snap_length` bytes are kept; 0 for all.
    #[must_use]
    pub fn block(&self, snap_length: u32) -> Vec<u8> {
        let limit = if snap_length == 0 { usize::MAX } else { snap_length as usize };
        let kept = self.frame.get(..limit).unwrap_or(self.frame);
        let mut block = Block::new(ENHANCED_PACKET);
        block.u32(self.interface);
        block.time(self.nanos);
        // CAST: frames are shorter than 4 GiB.
        block.u32(kept.len() as u32);
        block.u32(self.frame.len() as u32);
        block.padded(kept);
        for comment in self.comments.into_iter().flatten() {
            block.option(COMMENT, text(comment));
        }
        block.end()
    }
}

/// Returns the last block of a file. It contains the number of frames of an interface that were
/// dropped for lack of room, and a time in nanoseconds since 1970.
#[must_use]
pub fn statistics(interface: u32, nanos: u64, dropped: u64) -> Vec<u8> {
    let mut block = Block::new(INTERFACE_STATISTICS);
    block.u32(interface);
    block.time(nanos);
    block.option(DROPPED, &dropped.to_le_bytes());
    block.end()
}

/// Returns the bytes of a text, which is cut off between two characters if it is too long.
fn text(text: &str) -> &[u8] {
    let mut end = text.len().min(TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.as_bytes().get(..end).unwrap_or_default()
}

/// A block that is being written.
struct Block {
    bytes: Vec<u8>,
    has_options: bool,
}

impl Block {
    /// Begins a block. Its length is written at its end.
    fn new(kind: u32) -> Self {
        let mut block = Self { bytes: Vec::with_capacity(128), has_options: false };
        block.u32(kind);
        block.u32(0);
        block
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }

    fn time(&mut self, nanos: u64) {
        // CAST: takes the two halves of 64 bits.
        self.u32((nanos >> 32) as u32);
        self.u32((nanos & 0xffff_ffff) as u32);
    }

    /// Appends bytes, and zeroes up to a multiple of four.
    fn padded(&mut self, bytes: &[u8]) {
        self.put(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.u16(code);
        // CAST: at most `TEXT_MAX`.
        self.u16(value.len() as u16);
        self.padded(value);
        self.has_options = true;
    }

    /// Ends the block: the list of options, and the length in both places.
    fn end(mut self) -> Vec<u8> {
        if self.has_options {
            self.u16(END);
            self.u16(0);
        }
        // CAST: a frame and little more.
        let length = (self.bytes.len() + 4) as u32;
        self.u32(length);
        if let Some(field) = self.bytes.get_mut(4..8) {
            field.copy_from_slice(&length.to_le_bytes());
        }
        self.bytes
    }
}
