// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What sends name beside their data.

use vrnic_abi as abi;

/// What each send of a queue pair names, beside its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendForm {
    /// Nothing: the queue pair has a connection.
    #[default]
    Connected,
    /// Its destination ([`abi::qp::Type::is_datagram`]).
    Datagram,
    /// The shared receive queue at the other end of the connection ([`abi::sq::XrcSeg`]).
    Xrc,
}

impl SendForm {
    /// The stride in bytes that holds so many segments and bytes of inline data, if one does.
    pub(super) fn stride(self, max_sge: u32, max_inline: u32) -> Option<u32> {
        match self {
            Self::Connected => abi::sq::stride(max_sge, max_inline),
            Self::Datagram => abi::sq::datagram_stride(max_sge, max_inline),
            Self::Xrc => abi::sq::xrc_stride(max_sge, max_inline),
        }
    }

    /// The inline bytes that fit a stride.
    pub(crate) fn inline_capacity(self, stride: u32) -> u32 {
        match self {
            Self::Connected => abi::sq::inline_capacity(stride),
            Self::Datagram => abi::sq::datagram_inline_capacity(stride),
            Self::Xrc => abi::sq::xrc_inline_capacity(stride),
        }
    }
}
