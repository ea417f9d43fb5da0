//! How a QP of raw packets spreads the frames of its rules over others ([`vrnic_abi::rss`]).

use vrnic_abi::flow::{self, Network, Upper};
use vrnic_abi::rss::{Fields, KEY_LEN};
use vrnic_packet::toeplitz::Toeplitz;

use super::frame_key::{FrameKey, Target};

/// The table of a QP that spreads.
#[derive(Debug)]
pub struct Spread {
    /// The fields that are hashed.
    pub fields: Fields,
    /// The key of the hash.
    pub key: [u8; KEY_LEN],
    /// The QPs, a power of two.
    pub targets: Box<[Target]>,
}

impl Spread {
    /// Returns the QP that receives a frame.
    #[must_use]
    pub fn target(&self, frame: &FrameKey) -> Option<Target> {
        // CAST: widening.
        let index = self.hash(frame) as usize & self.targets.len().checked_sub(1)?;
        self.targets.get(index).copied()
    }

    /// Returns the hash of a frame.
    fn hash(&self, frame: &FrameKey) -> u32 {
        let mut hash = Toeplitz::new(&self.key);
        let fields: flow::Fields = zerocopy::transmute!(frame.words);
        let mut add = |field, bytes: &[u8]| {
            if self.fields.contains(field) {
                hash.add(bytes);
            }
        };
        let [v4_source, v4_destination] =
            [&fields.source, &fields.destination].map(|address| address.split_at(4).0);
        match frame.network {
            Network::Any => {}
            Network::Ipv4 => {
                add(Fields::SRC_IPV4, v4_source);
                add(Fields::DST_IPV4, v4_destination);
            }
            Network::Ipv6 => {
                add(Fields::SRC_IPV6, &fields.source);
                add(Fields::DST_IPV6, &fields.destination);
            }
        }
        match frame.upper {
            Upper::Tcp if !frame.is_fragment => {
                add(Fields::SRC_PORT_TCP, &fields.source_port);
                add(Fields::DST_PORT_TCP, &fields.destination_port);
            }
            Upper::Udp if !frame.is_fragment => {
                add(Fields::SRC_PORT_UDP, &fields.source_port);
                add(Fields::DST_PORT_UDP, &fields.destination_port);
            }
            Upper::Tcp | Upper::Udp | Upper::Any => {}
        }
        hash.hash()
    }
}
