// SPDX-License-Identifier: GPL-2.0
//! Flows: which frames a queue pair receives. These objects the driver allocates, not the core.

use core::{
    marker::PhantomData,
    mem::{offset_of, size_of},
    ptr::NonNull,
};

use kernel::{build_error, error::VTABLE_DEFAULT_ERROR, prelude::*};

use crate::bindings;
use crate::rdma::{driver::Driver, object::Object, queues::qp::Qp};

/// The operations of flows.
#[vtable]
pub(crate) trait FlowOperations: Driver {
    /// Creates a flow for a queue pair, which outlives it.
    fn create_flow(
        _data: &Self::Data<'_>,
        _qp: &Qp<Self>,
        _attr: &FlowAttr<'_>,
    ) -> Result<Self::Flow> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Ends a flow.
    fn destroy_flow(_data: &Self::Data<'_>, _flow: &Flow<Self>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// A flow, which [`Object::allocate`] has made; derefs to the driver's part.
pub(crate) type Flow<T> = Object<bindings::ib_flow, <T as Driver>::Flow>;

/// The kinds of flows.
///
/// C: `enum ib_flow_attr_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowKind {
    /// Frames with certain values in their headers.
    Normal,
    /// Frames that no other flow takes.
    AllDefault,
    /// Frames to groups that no other flow takes.
    McDefault,
    /// All frames.
    Sniffer,
}

/// The attributes of a new flow.
///
/// C: `struct ib_flow_attr`.
pub(crate) struct FlowAttr<'a> {
    /// The kind; `None` for an unknown one.
    pub(crate) kind: Option<FlowKind>,
    /// Priority; smaller numbers come first.
    pub(crate) priority: u16,
    /// `enum ib_flow_flags`.
    pub(crate) flags: u32,
    /// The port that frames come by.
    pub(crate) port: u32,
    /// Number of headers in `specs`.
    pub(crate) count: u8,
    /// The headers that frames must have, one after the other (`union ib_flow_spec`).
    pub(crate) specs: &'a [u8],
    _attr: PhantomData<&'a bindings::ib_flow_attr>,
}

impl FlowAttr<'_> {
    /// Flag: the frame also goes where it would go without the flow.
    pub(crate) const DONT_TRAP: u32 = bindings::ib_flow_flags_IB_FLOW_ATTR_FLAGS_DONT_TRAP;
    /// Flag: the flow is one of frames that are sent.
    pub(crate) const EGRESS: u32 = bindings::ib_flow_flags_IB_FLOW_ATTR_FLAGS_EGRESS;

    /// Reads the attributes.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the size is too small for the attributes themselves.
    ///
    /// # Safety
    ///
    /// `raw` must be attributes of the core's, initialised and constant during `'a` for as many
    /// bytes as its size says, which the core has computed.
    pub(in crate::rdma) unsafe fn from_raw(raw: NonNull<bindings::ib_flow_attr>) -> Result<Self> {
        // SAFETY: the caller passes initialised attributes.
        let attr = unsafe { raw.as_ref() };
        let length = usize::from(attr.size).checked_sub(size_of::<bindings::ib_flow_attr>());
        let length = length.ok_or(EINVAL)?;
        // SAFETY: by the size, which was checked, the memory goes on for at least this long.
        let first = unsafe { raw.as_ptr().add(1) }.cast::<u8>().cast_const();
        Ok(Self {
            kind: match attr.type_ {
                bindings::ib_flow_attr_type_IB_FLOW_ATTR_NORMAL => Some(FlowKind::Normal),
                bindings::ib_flow_attr_type_IB_FLOW_ATTR_ALL_DEFAULT => Some(FlowKind::AllDefault),
                bindings::ib_flow_attr_type_IB_FLOW_ATTR_MC_DEFAULT => Some(FlowKind::McDefault),
                bindings::ib_flow_attr_type_IB_FLOW_ATTR_SNIFFER => Some(FlowKind::Sniffer),
                _ => None,
            },
            priority: attr.priority,
            flags: attr.flags,
            port: attr.port,
            count: attr.num_of_specs,
            // SAFETY: the caller promises that this memory is initialised and constant during `'a`.
            specs: unsafe { core::slice::from_raw_parts(first, length) },
            _attr: PhantomData,
        })
    }
}

/// A header in [`FlowAttr::specs`]: its type, its length, and where its values and its mask are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpecLayout {
    /// `enum ib_flow_spec_type`.
    pub(crate) kind: u32,
    /// Number of bytes.
    pub(crate) size: usize,
    /// Offset of the values.
    pub(crate) value: usize,
    /// Offset of the mask.
    pub(crate) mask: usize,
}

impl SpecLayout {
    pub(crate) const ETHERNET: Self = Self {
        kind: bindings::ib_flow_spec_type_IB_FLOW_SPEC_ETH,
        size: size_of::<bindings::ib_flow_spec_eth>(),
        value: offset_of!(bindings::ib_flow_spec_eth, val),
        mask: offset_of!(bindings::ib_flow_spec_eth, mask),
    };
    /// IPv4.
    pub(crate) const IPV4: Self = Self {
        kind: bindings::ib_flow_spec_type_IB_FLOW_SPEC_IPV4,
        size: size_of::<bindings::ib_flow_spec_ipv4>(),
        value: offset_of!(bindings::ib_flow_spec_ipv4, val),
        mask: offset_of!(bindings::ib_flow_spec_ipv4, mask),
    };
    /// IPv6.
    pub(crate) const IPV6: Self = Self {
        kind: bindings::ib_flow_spec_type_IB_FLOW_SPEC_IPV6,
        size: size_of::<bindings::ib_flow_spec_ipv6>(),
        value: offset_of!(bindings::ib_flow_spec_ipv6, val),
        mask: offset_of!(bindings::ib_flow_spec_ipv6, mask),
    };
    pub(crate) const TCP: Self = Self {
        kind: bindings::ib_flow_spec_type_IB_FLOW_SPEC_TCP,
        size: size_of::<bindings::ib_flow_spec_tcp_udp>(),
        value: offset_of!(bindings::ib_flow_spec_tcp_udp, val),
        mask: offset_of!(bindings::ib_flow_spec_tcp_udp, mask),
    };
    pub(crate) const UDP: Self =
        Self { kind: bindings::ib_flow_spec_type_IB_FLOW_SPEC_UDP, ..Self::TCP };
}
