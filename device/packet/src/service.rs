//! The fields of frames that say which class of service they have.

use crate::{EtherType, Ethernet, Reader};

/// The fields of a frame that its class of service follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceFields {
    /// The byte with DSCP and ECN, if the frame is an IP packet.
    pub traffic_class: Option<u8>,
    /// The VLAN tag, if the frame has one: the priority is in its upper three bits.
    pub tag: Option<u16>,
}

impl ServiceFields {
    /// Returns the fields of a frame.
    #[must_use]
    pub fn of(frame: &[u8]) -> Self {
        let mut from = Reader::new(frame);
        let Ok((ethernet, kind)) = Ethernet::parse(&mut from) else { return Self::default() };
        let traffic_class = match (kind, from.rest()) {
            (EtherType::IPV4, [_, class, ..]) => Some(*class),
            (EtherType::IPV6, [first, second, ..]) => Some(first << 4 | second >> 4),
            _ => None,
        };
        Self { traffic_class, tag: ethernet.vlan }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_a_tag_or_none() {
        let of = |rest: &[u8]| ServiceFields::of(&[&[0; 12][..], rest].concat());
        let fields = |traffic_class, tag| ServiceFields { traffic_class, tag };
        assert_eq!(of(&[8, 0, 0x45, 0x68]), fields(Some(0x68), None));
        assert_eq!(of(&[0x86, 0xdd, 0x66, 0x8f]), fields(Some(0x68), None));
        assert_eq!(of(&[0x81, 0, 0xa0, 5, 8, 0, 0x45, 0x68]), fields(Some(0x68), Some(0xa005)));
        assert_eq!(of(&[0x81, 0, 0xa0, 5, 8, 6, 0, 1]), fields(None, Some(0xa005)));
        for short in [&[8, 0, 0x45][..], &[0x81, 0, 0xa0], &[8], &[]] {
            assert_eq!(of(short), ServiceFields::default(), "{short:?}");
        }
    }
}
