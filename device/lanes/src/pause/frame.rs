//! The format of PFC frames (IEEE 802.1Qbb, and 802.3 annex 31D).

use std::time::Duration;

use vrnic_packet::{MacAddr, Rate, Reader};

use crate::class::{Class, ClassSet, PerClass};

/// The length of a frame without its checksum.
pub const LEN: usize = 60;
/// The group of MAC control frames. Bridges do not forward it (IEEE 802.1Q, table 8-1).
pub const GROUP: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 1]);
/// The Ethernet type of MAC control frames.
const CONTROL: [u8; 2] = [0x88, 0x08];
/// The opcode of PFC.
const PFC: [u8; 2] = [0x01, 0x01];
/// The bits of a unit of time.
const QUANTUM_BITS: u64 = 512;

/// A PFC frame: pauses classes, or lets them go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseFrame {
    /// The station that sends the frame.
    pub source: MacAddr,
    /// The time for which each class is paused, in units of 512 bit times. Zero lets the class go
    /// on. Classes without a time stay as they are.
    pub times: PerClass<Option<u16>>,
}

impl PauseFrame {
    /// Returns whether a frame may be a MAC control frame, which no bridge forwards.
    #[must_use]
    pub fn is_control(frame: &[u8]) -> bool {
        frame.get(12..14) == Some(&CONTROL)
    }

    /// Reads a frame. Returns `None` if it is no PFC frame, or ends too early.
    #[must_use]
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let mut from = Reader::new(frame);
        if MacAddr(from.take().ok()?) != GROUP {
            return None;
        }
        let source = MacAddr(from.take().ok()?);
        if (from.take().ok()?, from.take().ok()?) != (CONTROL, PFC) {
            return None;
        }
        // The upper byte is reserved.
        let [_, enabled] = from.take().ok()?;
        let mut times = PerClass::default();
        for class in Class::ALL {
            let time = from.u16().ok()?;
            times[class] = ClassSet(enabled).contains(class).then_some(time);
        }
        Some(Self { source, times })
    }

    /// Returns the bytes of the frame.
    #[must_use]
    pub fn bytes(&self) -> [u8; LEN] {
        let enabled: ClassSet = self.classes().map(|(class, _)| class).collect();
        let times = self.times.iter().flat_map(|(_, time)| time.unwrap_or(0).to_be_bytes());
        let fields = GROUP.0.into_iter().chain(self.source.0).chain(CONTROL).chain(PFC);
        let fields = fields.chain([0, enabled.0]).chain(times);
        let mut bytes = [0; LEN];
        bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        bytes
    }

    /// Returns the classes that the frame is about, with their times.
    pub fn classes(&self) -> impl Iterator<Item = (Class, u16)> {
        self.times.iter().filter_map(|(class, time)| Some((class, (*time)?)))
    }
}

/// Returns the duration of this number of units at a link with this speed.
#[must_use]
pub fn duration(units: u16, link: Rate) -> Duration {
    link.time(u64::from(units) * QUANTUM_BITS / 8)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Pauses class 3 as long as possible, and lets class 6 go on.
    const EXAMPLE: [u8; 34] = [
        0x01, 0x80, 0xc2, 0x00, 0x00, 0x01, 0x52, 0x54, 0x00, 0x00, 0x00, 0x07, 0x88, 0x08, 0x01,
        0x01, 0x00, 0x48, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0,
    ];

    fn example() -> PauseFrame {
        let mut times = PerClass::default();
        times[Class::ROCE] = Some(0xffff);
        times[Class::NOTIFICATION] = Some(0);
        PauseFrame { source: MacAddr([0x52, 0x54, 0, 0, 0, 7]), times }
    }

    #[test]
    fn the_format_is_that_of_the_standard() {
        let bytes = example().bytes();
        assert_eq!((&bytes[..34], &bytes[34..]), (&EXAMPLE[..], &[0; 26][..]));
        assert_eq!(PauseFrame::parse(&bytes), Some(example()));
        assert!(PauseFrame::is_control(&bytes));
        for len in 0..34 {
            assert_eq!(PauseFrame::parse(&bytes[..len]), None, "{len}");
        }
        for at in (0..6).chain(12..16) {
            let mut other = bytes;
            other[at] ^= 1;
            assert_eq!(PauseFrame::parse(&other), None, "{at}");
        }
    }

    #[test]
    fn units_are_512_bit_times() {
        let link = Rate::nearest(10_000_000_000);
        assert_eq!(duration(1, link), Duration::from_nanos(52), "51.2 ns, rounded up");
        assert_eq!(duration(0xffff, link), Duration::from_nanos(3_355_392));
        assert_eq!(duration(0, link), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn frames_are_read_as_they_are_written(
            source: [u8; 6],
            times: [Option<u16>; 8],
            bytes in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            let times = PerClass::from_fn(|class| times[usize::from(class.number())]);
            let frame = PauseFrame { source: MacAddr(source), times };
            prop_assert_eq!(PauseFrame::parse(&frame.bytes()), Some(frame));
            let mut hostile = bytes;
            let _any = PauseFrame::parse(&hostile);
            let start = hostile.len().min(16);
            hostile.splice(..start, frame.bytes()[..16].iter().copied());
            let parsed = PauseFrame::parse(&hostile);
            prop_assert_eq!(parsed.is_some(), hostile.len() >= 34);
        }
    }
}
