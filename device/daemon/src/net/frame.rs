//! An Ethernet frame on its way through the switch.

use thiserror::Error;
use vrnic_adapter::ethernet::{self, Joint};
use vrnic_packet::{MacAddr, VlanMac};

/// Length of the shortest frame: an Ethernet header.
pub const FRAME_MIN: usize = 14;
/// Length of the longest frame: an IP packet of 65,535 bytes with Ethernet header and VLAN tag.
pub const FRAME_MAX: usize = 65_535 + 18;

/// A frame without preamble and check sequence, or several that were joined to one. Clones share
/// its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame(ethernet::Frame);

/// A length that is not valid for a frame.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum WrongLength {
    /// There is no room for an Ethernet header.
    #[error("a frame of {0} bytes is shorter than an Ethernet header of {FRAME_MIN}")]
    Short(usize),
    /// The frame is longer than any IP packet.
    #[error("a frame of {0} bytes is longer than the limit of {FRAME_MAX}")]
    Long(usize),
}

/// Checks the length of a frame.
///
/// # Errors
/// See [`WrongLength`].
pub const fn check_length(len: usize) -> Result<(), WrongLength> {
    match len {
        ..FRAME_MIN => Err(WrongLength::Short(len)),
        FRAME_MIN..=FRAME_MAX => Ok(()),
        _ => Err(WrongLength::Long(len)),
    }
}

impl Frame {
    /// Creates a frame from bytes that begin with the destination's address.
    ///
    /// # Errors
    /// See [`WrongLength`].
    pub fn new(bytes: Vec<u8>) -> Result<Self, WrongLength> {
        ethernet::Frame::new(bytes).try_into()
    }

    /// Creates a frame from a copy of these bytes.
    ///
    /// # Errors
    /// See [`WrongLength`].
    pub fn copy(bytes: &[u8]) -> Result<Self, WrongLength> {
        ethernet::Frame::copy(bytes).try_into()
    }

    /// Returns it as the adapter sees it.
    #[must_use]
    pub const fn as_ethernet(&self) -> &ethernet::Frame {
        &self.0
    }

    /// Returns whether a program has composed it with a QP of raw packets.
    #[must_use]
    pub const fn is_composed(&self) -> bool {
        self.0.is_composed()
    }

    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// Returns the bytes. If there are clones, they keep theirs.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }

    /// Returns the number of bytes of memory that the frame takes.
    #[must_use]
    pub fn footprint(&self) -> usize {
        self.0.footprint()
    }

    /// Returns how frames were joined to this one, if they were.
    #[must_use]
    pub fn joint(&self) -> Option<Joint> {
        self.0.joint()
    }

    /// Returns the number of frames that this one stands for.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.count()
    }

    /// Returns the length of the longest of them.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.0.longest()
    }

    /// Returns the bytes of all of them.
    #[must_use]
    pub fn total(&self) -> usize {
        self.0.total()
    }

    /// Returns the destination address.
    #[must_use]
    pub fn destination(&self) -> MacAddr {
        self.0.destination()
    }

    /// Returns the source address.
    #[must_use]
    pub fn source(&self) -> MacAddr {
        self.0.source()
    }

    /// Returns whether there is a VLAN tag (IEEE 802.1Q, customer's or service provider's).
    #[must_use]
    pub fn is_tagged(&self) -> bool {
        matches!(self.bytes().get(12..14), Some([0x81, 0x00] | [0x88, 0xa8]))
    }

    /// Returns the source in its VLAN.
    #[must_use]
    pub fn sender(&self) -> VlanMac {
        self.0.sender()
    }

    /// Returns the destination in its VLAN.
    #[must_use]
    pub fn receiver(&self) -> VlanMac {
        self.0.receiver()
    }
}

impl TryFrom<ethernet::Frame> for Frame {
    type Error = WrongLength;

    fn try_from(frame: ethernet::Frame) -> Result<Self, WrongLength> {
        check_length(frame.bytes().len())?;
        Ok(Self(frame))
    }
}

impl From<Frame> for ethernet::Frame {
    fn from(frame: Frame) -> Self {
        frame.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_the_header() {
        let frame = Frame::new((0..64).collect()).expect("a frame");
        assert_eq!(frame.destination(), MacAddr([0, 1, 2, 3, 4, 5]));
        assert_eq!(frame.source(), MacAddr([6, 7, 8, 9, 10, 11]));
        assert!(!frame.is_tagged());
        let tagged = Frame::new([&[0; 12][..], &[0x81, 0, 0, 5, 8, 0]].concat());
        assert!(tagged.expect("a frame").is_tagged());
    }

    #[test]
    fn lengths_are_checked() {
        for (len, result) in [
            (0, Err(WrongLength::Short(0))),
            (FRAME_MIN - 1, Err(WrongLength::Short(FRAME_MIN - 1))),
            (FRAME_MIN, Ok(FRAME_MIN)),
            (FRAME_MAX, Ok(FRAME_MAX)),
            (FRAME_MAX + 1, Err(WrongLength::Long(FRAME_MAX + 1))),
        ] {
            assert_eq!(Frame::new(vec![0; len]).map(|frame| frame.bytes().len()), result);
        }
    }
}
