// SPDX-License-Identifier: GPL-2.0
//! Flow rules: which frames a queue pair of raw packets receives.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`specs`] | translates the headers that a flow names |

use abi::{
    FlowId,
    admin::{CreateFlow, command},
    flow::{Flags, Kind, PRIORITY_MAX, Rule},
};
use kernel::{dma::Coherent, io::Io, prelude::*};
use zerocopy::IntoBytes;

mod specs;

use self::specs::{Layout, Refusal};
use super::{Ctx, Verbs};
use crate::{
    pairing::PORT,
    rdma::{
        self,
        qp_attr::QpType,
        queues::flow::{FlowAttr, FlowKind, FlowOperations, SpecLayout},
        queues::qp::Qp,
    },
};

/// The adapter's part of a flow.
pub(crate) struct Flow {
    /// The number of its rule.
    id: FlowId,
}

#[vtable]
impl FlowOperations for Verbs {
    fn create_flow(ctx: &Ctx<'_>, qp: &Qp<Self>, attr: &FlowAttr<'_>) -> Result<Flow> {
        // Datagrams come only by their number.
        if qp.kind() != QpType::RAW_PACKET {
            return Err(EOPNOTSUPP);
        }
        let rule = rule(attr)?;
        let buffer = Coherent::<u8>::zeroed_slice(ctx.dma(), size_of::<Rule>(), GFP_KERNEL)?;
        (&buffer).copy_from_slice(rule.as_bytes());
        let params = CreateFlow::new(qp.qpn, buffer.dma_address());
        Ok(Flow { id: ctx.execute::<command::CreateFlow>(&params)? })
    }

    fn destroy_flow(ctx: &Ctx<'_>, flow: &rdma::queues::flow::Flow<Self>) -> Result {
        ctx.destroy::<command::DestroyFlow>(&flow.id)
    }
}

/// Fails the build unless the kernel has this layout of a spec.
const fn compare(wanted: u32, layout: &Layout, kernel: SpecLayout) {
    assert!(wanted == kernel.kind && layout.size == kernel.size);
    assert!(layout.value == kernel.value && layout.mask == kernel.mask);
}

/// Returns the rule of a flow.
fn rule(attr: &FlowAttr<'_>) -> Result<Rule> {
    const {
        compare(specs::ETHERNET, &specs::ETHERNET_SPEC, SpecLayout::ETHERNET);
        compare(specs::IPV4, &specs::IPV4_SPEC, SpecLayout::IPV4);
        compare(specs::IPV6, &specs::IPV6_SPEC, SpecLayout::IPV6);
        compare(specs::TCP, &specs::UPPER_SPEC, SpecLayout::TCP);
        compare(specs::UDP, &specs::UPPER_SPEC, SpecLayout::UDP);
    }
    if attr.flags & FlowAttr::EGRESS != 0 {
        return Err(EOPNOTSUPP);
    }
    let known = attr.flags & !FlowAttr::DONT_TRAP == 0;
    if !known || attr.port != PORT || attr.priority > PRIORITY_MAX {
        return Err(EINVAL);
    }
    let kind = match attr.kind.ok_or(EINVAL)? {
        FlowKind::Normal => Kind::Normal,
        FlowKind::AllDefault => Kind::AllDefault,
        FlowKind::McDefault => Kind::McDefault,
        FlowKind::Sniffer => Kind::Sniffer,
    };
    if kind != Kind::Normal && attr.count != 0 {
        return Err(EINVAL);
    }
    let mut flags = Flags::empty();
    // A sniffer never takes a frame away.
    let dont_trap = attr.flags & FlowAttr::DONT_TRAP != 0 && kind != Kind::Sniffer;
    flags.set(Flags::DONT_TRAP, dont_trap);
    let mut rule = Rule {
        // CAST: the enum's number.
        kind: kind as u8,
        flags: flags.bits(),
        priority: attr.priority.into(),
        ..Rule::default()
    };
    match specs::add(&mut rule, attr.count, attr.specs) {
        Ok(()) => Ok(rule),
        Err(Refusal::Invalid) => Err(EINVAL),
        Err(Refusal::Unsupported) => Err(EOPNOTSUPP),
    }
}
