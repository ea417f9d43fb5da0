//! The class of a frame, by its DSCP or by the priority in its VLAN tag.

use vrnic_packet::ServiceFields;

use crate::class::Class;

/// Number of values of the DSCP.
const DSCPS: usize = 64;

/// The field of a frame that its class follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// The DSCP of IP packets, and the priority of other frames that have a VLAN tag.
    #[default]
    Dscp,
    /// The priority of the VLAN tag (PCP), and the DSCP of IP packets without a tag.
    Priority,
}

/// The classes of a port's frames.
///
/// By default, the upper three bits of the DSCP are the class, as the class selectors of RFC 2474
/// (section 4.2.2.1) and the mlx5 driver of Linux (`mlx5e_trust_initialize`) have it. So the usual
/// code points have their usual classes: RoCE with DSCP 26 has class 3, and congestion
/// notifications with DSCP 48 have class 6 (NVIDIA Cumulus Linux, "RDMA over Converged Ethernet").
/// The priority of a VLAN tag is the class of the same number. Frames with neither have class 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    trust: Trust,
    dscp: [Class; DSCPS],
}

impl Default for Mapping {
    fn default() -> Self {
        let mut dscp = [Class::default(); DSCPS];
        for (class, point) in dscp.iter_mut().zip(0_u8..) {
            *class = Class::of_bits(point >> 3);
        }
        Self { trust: Trust::default(), dscp }
    }
}

impl Mapping {
    /// Sets the field that classes follow.
    pub const fn set_trust(&mut self, trust: Trust) {
        self.trust = trust;
    }

    /// Sets the class of frames with this DSCP. Returns false if there is no such DSCP.
    #[must_use]
    pub fn set_dscp(&mut self, dscp: u8, class: Class) -> bool {
        self.dscp.get_mut(usize::from(dscp)).is_some_and(|of| {
            *of = class;
            true
        })
    }

    /// Returns the class of frames with this DSCP, of which the low six bits are used.
    #[must_use]
    pub const fn of_dscp(&self, dscp: u8) -> Class {
        self.dscp[(dscp & 63) as usize]
    }

    /// Returns the class of a frame.
    #[must_use]
    pub fn class_of(&self, frame: &[u8]) -> Class {
        self.class(ServiceFields::of(frame))
    }

    /// Returns the class of frames with these fields.
    #[must_use]
    pub fn class(&self, ServiceFields { traffic_class, tag }: ServiceFields) -> Class {
        // The priority is in the upper three bits of the tag.
        let by_tag = tag.map(|tag| Class::of_bits(tag.to_be_bytes()[0] >> 5));
        let by_ip = traffic_class.map(|class| self.of_dscp(class >> 2));
        let found = match self.trust {
            Trust::Dscp => by_ip.or(by_tag),
            Trust::Priority => by_tag.or(by_ip),
        };
        found.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the first bytes of a frame.
    fn frame(tag: Option<u16>, kind: u16, rest: &[u8]) -> Vec<u8> {
        let tag = tag.map(|tag| [[0x81, 0], tag.to_be_bytes()].concat()).unwrap_or_default();
        [&[0; 12][..], &tag, &kind.to_be_bytes(), rest].concat()
    }

    fn number(mapping: &Mapping, frame: &[u8]) -> u8 {
        mapping.class_of(frame).number()
    }

    #[test]
    fn the_usual_code_points_have_their_usual_classes() {
        let mapping = Mapping::default();
        for (dscp, class) in [(0, 0), (26, 3), (48, 6), (63, 7)] {
            let v4 = frame(None, 0x0800, &[0x45, dscp << 2 | 3]);
            let v6 = frame(None, 0x86dd, &[0x60 | dscp >> 2, dscp << 6 | 0x3f]);
            assert_eq!((number(&mapping, &v4), number(&mapping, &v6)), (class, class), "{dscp}");
        }
    }

    #[test]
    fn tags_count_if_nothing_better_is_there_or_the_operator_wants_it() {
        let mut mapping = Mapping::default();
        let (arp, plain) = (frame(Some(0xa005), 0x0806, &[0]), frame(None, 0x0806, &[0]));
        let both = frame(Some(0xa005), 0x0800, &[0x45, 26 << 2]);
        assert_eq!((number(&mapping, &arp), number(&mapping, &plain)), (5, 0));
        assert_eq!(number(&mapping, &both), 3);
        mapping.set_trust(Trust::Priority);
        assert_eq!(number(&mapping, &both), 5);
        assert_eq!(number(&mapping, &frame(None, 0x0800, &[0x45, 26 << 2])), 3);
        assert!(mapping.set_dscp(26, Class::of_bits(4)) && !mapping.set_dscp(64, Class::ROCE));
        assert_eq!(number(&mapping, &frame(None, 0x0800, &[0x45, 26 << 2])), 4);
    }

    #[test]
    fn short_frames_have_the_lowest_class() {
        let whole = frame(Some(0xa005), 0x0800, &[0x45, 26 << 2]);
        for len in 0..whole.len() {
            let expected = if len < 18 { 0 } else { 5 };
            assert_eq!(number(&Mapping::default(), &whole[..len]), expected, "{len}");
        }
    }
}
