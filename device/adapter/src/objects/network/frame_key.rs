//! The fields of a frame's headers that decide which QP of raw packets receives it.

use vrnic_abi::Qpn;
use vrnic_abi::flow::{Fields, Network, Upper};
use zerocopy::IntoBytes;

/// The fields of a frame, as words that are compared at once.
pub type Words = [u64; size_of::<Fields>() / 8];

/// Returns the words of fields.
#[must_use]
pub fn words(fields: &Fields) -> Words {
    let (chunks, _) = fields.as_bytes().as_chunks::<8>();
    std::array::from_fn(|at| chunks.get(at).map_or(0, |bytes| u64::from_ne_bytes(*bytes)))
}

/// The parts of a frame that rules compare, and that select one of the QPs of a [`Spread`].
#[derive(Clone, Copy, Debug)]
pub struct FrameKey {
    /// The fields.
    pub words: Words,
    /// The network header.
    pub network: Network,
    /// The header after it.
    pub upper: Upper,
    /// True if it has a VLAN tag.
    pub is_tagged: bool,
    /// True if its destination is a group.
    pub is_to_group: bool,
    /// True for a fragment of IPv4, including the first one.
    pub is_fragment: bool,
}

/// The QP that receives a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The number of the QP.
    pub qpn: Qpn,
    /// The worker of the QP.
    pub worker: usize,
}
