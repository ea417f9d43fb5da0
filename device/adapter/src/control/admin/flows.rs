//! CREATE_FLOW and DESTROY_FLOW.

use std::mem::offset_of;

use vrnic_abi::admin::{CreateFlow, Status};
use vrnic_abi::flow::{Fields, Flags, Kind, Network, PRIORITY_MAX, Rule, Upper};
use vrnic_abi::qp::Type;
use vrnic_abi::{FlowId, Qpn};
use zerocopy::{FromBytes, IntoBytes};

use super::{Failure, Outcome, bad, zero};
use crate::adapter::Adapter;
use crate::host::{HeldMemory, Host, Lane};
use crate::objects::network::flows::{Condition, Full, NewRule, Receiver};
use crate::objects::network::frame_key::words;

pub(super) fn create_flow<H: Host>(adapter: &Adapter<H>, params: &CreateFlow) -> Outcome<FlowId> {
    let addr = params.addr;
    if !addr.is_multiple_of(8) {
        return Err(bad(offset_of!(CreateFlow, addr)));
    }
    let qp = adapter.qp(params.qpn).ok_or(Status::NotFound)?;
    if qp.kind != Type::RawPacket {
        return Err(bad(offset_of!(CreateFlow, qpn)));
    }
    let mut bytes = [0; size_of::<Rule>()];
    adapter.host().hold(Lane::SHARED).read(addr, &mut bytes).map_err(|_| Status::BadAddress)?;
    let rule = Rule::read_from_bytes(&bytes).map_err(|_| Status::Internal)?;
    let objects = &adapter.objects;
    let receiver = match objects.spreads.of(qp.qpn) {
        Some(spread) => Receiver::Spread(spread),
        None => Receiver::Own(qp.target()),
    };
    let added = objects.flows.add(checked(&rule, qp.qpn, receiver)?);
    added.map_err(|Full| Status::NoResource.into())
}

pub(super) fn destroy_flow<H: Host>(adapter: &Adapter<H>, &id: &FlowId) -> Outcome<()> {
    if adapter.objects.flows.remove(id) { Ok(()) } else { Err(Status::NotFound.into()) }
}

/// Checks a rule of a guest. The details of errors are offsets in the rule.
fn checked(rule: &Rule, qpn: Qpn, receiver: Receiver) -> Result<NewRule, Failure> {
    let kind = Kind::from_raw(rule.kind).ok_or(bad(offset_of!(Rule, kind)))?;
    let flags = Flags::from_bits(rule.flags).ok_or(bad(offset_of!(Rule, flags)))?;
    let network = Network::from_raw(rule.network).ok_or(bad(offset_of!(Rule, network)))?;
    let upper = Upper::from_raw(rule.upper).ok_or(bad(offset_of!(Rule, upper)))?;
    let priority = rule.priority.get();
    if priority > PRIORITY_MAX {
        return Err(bad(offset_of!(Rule, priority)));
    }
    zero(&rule.reserved, offset_of!(Rule, reserved))?;
    let (values, mask) = (offset_of!(Rule, values), offset_of!(Rule, mask));
    zero(&rule.values.reserved, values + offset_of!(Fields, reserved))?;
    zero(&rule.mask.reserved, mask + offset_of!(Fields, reserved))?;
    if network == Network::Any && upper != Upper::Any {
        return Err(bad(offset_of!(Rule, upper)));
    }
    if kind != Kind::Normal {
        zero(&rule.network, offset_of!(Rule, network))?;
        zero(&rule.mask, mask)?;
    }
    let mut outside = rule.values.as_bytes().iter().zip(rule.mask.as_bytes());
    if let Some(at) = outside.position(|(value, mask)| value & !mask != 0) {
        return Err(bad(values + at));
    }
    let compared = compared(&rule.mask, network, upper);
    let [tag, id] = compared.vlan;
    let condition = Condition {
        network,
        upper,
        needs_tag: u16::from_be_bytes([tag, id]) & VLAN_ID != 0,
        values: words(&rule.values),
        mask: words(&compared),
    };
    let copies = flags.contains(Flags::DONT_TRAP);
    Ok(NewRule { qpn, receiver, kind, priority, copies, condition })
}

/// The identifier in a VLAN tag.
const VLAN_ID: u16 = 0x0fff;

/// Returns the mask without the fields of headers that the rule does not name.
fn compared(mask: &Fields, network: Network, upper: Upper) -> Fields {
    let link = Fields {
        dmac: mask.dmac,
        smac: mask.smac,
        ether_type: mask.ether_type,
        vlan: mask.vlan,
        ..Fields::default()
    };
    match (network, upper) {
        (Network::Any, _) => link,
        (_, Upper::Any) => Fields { source_port: [0; 2], destination_port: [0; 2], ..*mask },
        _ => *mask,
    }
}
