//! Ethernet frames on their way.

use std::fmt;
use std::num::NonZeroU16;
use std::ops::Range;

use crate::ethernet::{EtherType, TAG_LEN, VlanMac, vlan_of};
use crate::mac::MacAddr;
use crate::pool::Buffer;

/// The shortest data of segments that are joined to one frame, so that a frame has at most 256 of
/// them and the turn in which it arrives stays short.
pub const SEGMENT_MIN: usize = 256;

/// Length of the two addresses of a frame, after which a VLAN tag has its place.
const ADDRESSES: usize = 12;
/// The types of frames with tags: of customers, and of service providers (802.1ad, and QinQ).
pub const TAGS: [EtherType; 3] = [EtherType::VLAN, EtherType(0x88a8), EtherType(0x9100)];

/// The lengths in a frame to which several frames with segments of TCP were joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joint {
    /// Length of the headers, which each of the frames has.
    pub headers: u16,
    /// Length of the data in each of them. Only the last one may have less.
    pub segment: u16,
}

/// An Ethernet frame without preamble and frame check sequence, or several frames that were joined
/// to one and are to be cut again. The checksum of TCP in a joined frame is that of the
/// pseudo-header. Nothing has changed its data since its sender's memory, or the host's kernel has
/// checked it.
///
/// Clones share the bytes.
#[derive(Clone, Default)]
pub struct Frame {
    buffer: Buffer,
    /// The offsets of its first byte, and of the end.
    start: u16,
    end: u32,
    /// The numbers of [`Joint`], if it is a joined frame. Queues of frames are smaller than with a
    /// `Joint` here.
    headers: u16,
    segment: Option<NonZeroU16>,
    marks: Marks,
}

/// What is known of the origin of a frame, and of those that it is cut into.
#[derive(Clone, Copy, Default)]
struct Marks {
    /// True if a program has composed it with a QP of raw packets.
    is_composed: bool,
    /// True if only the switch may deliver it.
    is_for_switch: bool,
}

impl Frame {
    /// Creates a frame from these bytes, which begin with the destination's MAC.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        Self::within(bytes.into(), 0..len, None)
    }

    /// Creates a frame that stands for several ones from the bytes that they were joined to.
    #[must_use]
    pub fn joined(bytes: Vec<u8>, joint: Joint) -> Self {
        let len = bytes.len();
        Self::within(bytes.into(), 0..len, Some(joint))
    }

    /// Creates a frame from a copy of these bytes, in a buffer of the pool.
    #[must_use]
    pub fn copy(bytes: &[u8]) -> Self {
        Self::copy_joined(bytes, None)
    }

    /// Creates a frame from a copy of the bytes of one that `joint` describes, in a buffer of the
    /// pool.
    #[must_use]
    pub fn copy_joined(bytes: &[u8], joint: Option<Joint>) -> Self {
        Self::within(Buffer::copy(bytes), 0..bytes.len(), joint)
    }

    /// Creates a frame from a copy of parts that follow each other, in a buffer of the pool.
    #[must_use]
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let len = parts.iter().map(|part| part.len()).sum();
        let mut buffer = Buffer::of(len);
        let mut rest = buffer.bytes_mut();
        for part in parts {
            // The buffer has room for all of them.
            let Some((to, behind)) = rest.split_at_mut_checked(part.len()) else { break };
            to.copy_from_slice(part);
            rest = behind;
        }
        Self::within(buffer, 0..len, None)
    }

    /// Creates a frame from a range of the bytes of a buffer. If the range is not inside, or begins
    /// above 65,535, the frame is empty.
    #[must_use]
    pub fn within(buffer: Buffer, range: Range<usize>, joint: Option<Joint>) -> Self {
        let segment = joint.and_then(|joint| NonZeroU16::new(joint.segment));
        let headers = joint.map_or(0, |joint| joint.headers);
        let place = u16::try_from(range.start).ok().zip(u32::try_from(range.end).ok());
        let (start, end) = place.unwrap_or_default();
        Self { buffer, start, end, headers, segment, marks: Marks::default() }
    }

    /// Returns the frame as one that stands for those that `joint` describes.
    #[must_use]
    pub fn with_joint(self, joint: Option<Joint>) -> Self {
        let (range, marks) = (self.range(), self.marks);
        Self { marks, ..Self::within(self.buffer, range, joint) }
    }

    /// Returns the frame as one of the same origin as `other`.
    pub(crate) fn with_origin_of(self, other: &Self) -> Self {
        Self { marks: other.marks, ..self }
    }

    /// Records that a program has composed the frame. Its source and its VLAN are then checked as
    /// those of frames of the guest's network card.
    pub const fn set_composed(&mut self) {
        self.marks.is_composed = true;
    }

    /// Returns whether a program has composed the frame.
    #[must_use]
    pub const fn is_composed(&self) -> bool {
        self.marks.is_composed
    }

    /// Records that only the switch may deliver the frame, because it checks the source and the
    /// VLAN.
    pub const fn set_for_switch(&mut self) {
        self.marks.is_for_switch = true;
    }

    /// Returns whether only the switch may deliver the frame.
    #[must_use]
    pub const fn is_for_switch(&self) -> bool {
        self.marks.is_for_switch
    }

    /// Returns a copy with the tag of a VLAN, or `None` if the frame has a tag, or ends before its
    /// type.
    #[must_use]
    pub fn with_tag(&self, vlan: u16) -> Option<Self> {
        let (addresses, rest) = self.bytes().split_at_checked(ADDRESSES)?;
        let kind = EtherType(u16::from_be_bytes(*rest.first_chunk()?));
        if TAGS.contains(&kind) {
            return None;
        }
        let (tpid, tci) = (EtherType::VLAN.0.to_be_bytes(), vlan.to_be_bytes());
        let tagged = Self::of_parts(&[addresses, &tpid, &tci, rest]);
        self.moved(tagged, |headers| headers.checked_add(TAG_LEN as u16))
    }

    /// Returns a copy without the VLAN tag, or `None` if the frame has none.
    #[must_use]
    pub fn without_tag(&self) -> Option<Self> {
        let (addresses, rest) = self.bytes().split_at_checked(ADDRESSES)?;
        let (tag, rest) = rest.split_at_checked(TAG_LEN)?;
        if !tag.starts_with(&EtherType::VLAN.0.to_be_bytes()) {
            return None;
        }
        let plain = Self::of_parts(&[addresses, rest]);
        self.moved(plain, |headers| headers.checked_sub(TAG_LEN as u16))
    }

    /// Returns `other` as a frame that stands for as many as this one, with headers of another
    /// length.
    fn moved(&self, other: Self, len: impl Fn(u16) -> Option<u16>) -> Option<Self> {
        let joint = match self.joint() {
            Some(joint) => Some(Joint { headers: len(joint.headers)?, ..joint }),
            None => None,
        };
        Some(other.with_joint(joint).with_origin_of(self))
    }

    fn range(&self) -> Range<usize> {
        // CAST: usize has 64 bits.
        self.start.into()..self.end as usize
    }

    /// Returns the bytes.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.buffer.bytes().get(self.range()).unwrap_or_default()
    }

    /// Returns the bytes. If there are clones, they keep theirs.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let range = self.range();
        self.buffer.bytes_mut().get_mut(range).unwrap_or_default()
    }

    /// Returns a frame with the same bytes that takes no more memory than it needs, for frames that
    /// are kept for long.
    #[must_use]
    pub fn compact(&self) -> Self {
        let buffer = Buffer::exact(self.bytes());
        Self::within(buffer, 0..self.bytes().len(), self.joint()).with_origin_of(self)
    }

    /// Returns the number of bytes of memory that the frame takes.
    #[must_use]
    pub fn footprint(&self) -> usize {
        self.buffer.len()
    }

    /// Returns how frames were joined to this one, if they were.
    #[must_use]
    pub fn joint(&self) -> Option<Joint> {
        self.segment.map(|segment| Joint { headers: self.headers, segment: segment.get() })
    }

    /// Returns the number of frames that this one stands for.
    #[must_use]
    pub fn count(&self) -> usize {
        let Some(segment) = self.segment else { return 1 };
        let data = self.bytes().len().saturating_sub(self.headers.into());
        data.div_ceil(usize::from(segment.get())).max(1)
    }

    /// Returns the length of the longest of them.
    #[must_use]
    pub fn longest(&self) -> usize {
        let len = self.bytes().len();
        let longest = |segment: NonZeroU16| usize::from(self.headers) + usize::from(segment.get());
        self.segment.map_or(len, |segment| len.min(longest(segment)))
    }

    /// Returns the bytes of all of them.
    #[must_use]
    pub fn total(&self) -> usize {
        self.bytes().len() + (self.count() - 1) * usize::from(self.headers)
    }

    /// Returns whether the destination is a group, such as all stations (IEEE 802.3, I/G bit).
    #[must_use]
    pub fn is_to_group(&self) -> bool {
        self.destination().is_group()
    }

    /// Returns the source MAC, or zero if the frame has none.
    #[must_use]
    pub fn source(&self) -> MacAddr {
        let bytes = self.bytes().get(6..).and_then(|rest| rest.first_chunk());
        MacAddr(bytes.copied().unwrap_or_default())
    }

    /// Returns the destination MAC, or zero if the frame has none.
    #[must_use]
    pub fn destination(&self) -> MacAddr {
        MacAddr(self.bytes().first_chunk().copied().unwrap_or_default())
    }

    /// Returns the source in its VLAN.
    #[must_use]
    pub fn sender(&self) -> VlanMac {
        VlanMac { mac: self.source(), vlan: self.vlan() }
    }

    /// Returns the destination in its VLAN.
    #[must_use]
    pub fn receiver(&self) -> VlanMac {
        VlanMac { mac: self.destination(), vlan: self.vlan() }
    }

    /// Returns the VLAN, if the frame is in one.
    #[must_use]
    pub fn vlan(&self) -> Option<u16> {
        match self.bytes().get(12..16) {
            Some(&[0x81, 0x00, high, low]) => vlan_of(u16::from_be_bytes([high, low])),
            _ => None,
        }
    }
}

impl PartialEq for Frame {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes() && self.joint() == other.joint()
    }
}

impl Eq for Frame {}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({} bytes)", self.bytes().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethernet::Ethernet;
    use crate::reader::Writer;

    #[test]
    fn a_joined_frame_counts_as_those_that_it_stands_for() {
        let joint = Some(Joint { headers: 54, segment: 100 });
        let frame = Frame::within(vec![7; 10 + 54 + 350 + 6].into(), 10..414, joint);
        assert_eq!((frame.bytes().len(), frame.count(), frame.longest()), (404, 4, 154));
        assert_eq!((frame.total(), frame.footprint()), (4 * 54 + 350, 420));
        let compact = frame.compact();
        assert_eq!((compact.footprint(), &compact), (404, &frame));
        assert_eq!(Frame::new(vec![0; 60]).count(), 1);
    }

    #[test]
    fn the_stations_of_a_frame_are_those_of_its_header() {
        let (destination, source) = (MacAddr([2; 6]), MacAddr([4; 6]));
        for (tag, vlan) in [(None, None), (Some(0xe000), None), (Some(0xe007), Some(7))] {
            let header = Ethernet { destination, source, vlan: tag };
            let mut bytes = vec![0; header.header_len()];
            header.write(EtherType::IPV6, &mut Writer::new(&mut bytes)).expect("room");
            let frame = Frame::new(bytes);
            assert_eq!((frame.sender(), frame.receiver()), (header.sender(), header.receiver()));
            assert_eq!((frame.sender().mac, frame.vlan()), (source, vlan));
        }
        assert_eq!(Frame::new(vec![2; 13]).receiver(), VlanMac { mac: destination, vlan: None });
    }

    #[test]
    fn every_form_of_a_frame_keeps_its_origin() {
        let mut frame = Frame::new([&[3; 12][..], &[8, 6], &[0; 50]].concat());
        frame.set_composed();
        frame.set_for_switch();
        let tagged = frame.with_tag(5).expect("a tag");
        let plain = tagged.without_tag().expect("no tag");
        let joint = Some(Joint { headers: 14, segment: 20 });
        for form in [frame.clone().with_joint(joint), frame.compact(), tagged, plain] {
            assert!(form.is_composed() && form.is_for_switch());
        }
        assert!(!Frame::new(vec![0; 60]).is_composed());
    }

    #[test]
    fn changes_of_a_clone_do_not_reach_the_others() {
        let frame = Frame::copy(&[1; 60]);
        let mut clone = frame.clone();
        clone.bytes_mut().fill(2);
        assert_eq!((frame.bytes(), clone.bytes()), (&[1; 60][..], &[2; 60][..]));
    }

    #[test]
    fn a_range_outside_of_the_buffer_makes_an_empty_frame() {
        for range in [5..61, 61..70, 70_000..70_001] {
            let frame = Frame::within(vec![1; 60].into(), range.clone(), None);
            assert!(
                frame.bytes().is_empty() && frame.destination() == MacAddr([0; 6]),
                "{range:?}"
            );
        }
    }
}
