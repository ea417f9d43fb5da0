// SPDX-License-Identifier: GPL-2.0
//! The agent of performance management (IBTA volume 1, 16.1), which tells the port's own counters.
//! The core asks for them by management datagrams, and shows them as `ports/1/counters` in sysfs.

use abi::admin::Counter;
use kernel::prelude::*;
use zerocopy::{
    FromZeros as _,
    big_endian::{U16, U32, U64},
};
use zerocopy_derive::{FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::rdma::port::mad::{CLASS_PERF_MGMT, METHOD_GET, Mad, MadResult};
use crate::verbs::{Ctx, port::counters};

/// Answers the core's own queries of the port's counters. All other datagrams, among them those
/// from the network, go on to the core's agents.
pub(in crate::verbs) fn process(
    ctx: &Ctx<'_>,
    port: u32,
    mad: &Mad<'_>,
    answer: &mut [u8],
) -> MadResult {
    if !mad.is_local() || mad.class() != CLASS_PERF_MGMT || mad.method() != METHOD_GET {
        return MadResult::Passed;
    }
    let Some(attribute) = Attribute::from_raw(mad.attribute()) else { return MadResult::Failed };
    let Ok(counters) = port_counters(ctx) else { return MadResult::Failed };
    if let (Some(out), Ok(port)) = (answer.get_mut(DATA_OFFSET..), u8::try_from(port)) {
        counters.write(attribute, port, out);
    }
    MadResult::Replied
}

/// Reads the traffic of the port.
fn port_counters(ctx: &Ctx<'_>) -> Result<PortCounters> {
    let mut values = [0; counters::STATS];
    counters::read_all(ctx, &mut values)?;
    // CAST: the counter's index.
    let get = |counter: Counter| values.get(counter as usize).copied().unwrap_or(0);
    Ok(PortCounters {
        sent_bytes: get(Counter::TxBytes),
        received_bytes: get(Counter::RxBytes),
        sent_packets: get(Counter::TxPkts),
        received_packets: get(Counter::RxPkts),
        discards: get(Counter::TxRoceDiscards),
        downed: get(Counter::LinkDowned),
    })
}

/// The traffic of a port.
#[derive(Clone, Copy, Debug, Default)]
struct PortCounters {
    /// Bytes of data sent.
    sent_bytes: u64,
    /// Bytes of data received.
    received_bytes: u64,
    /// Packets sent.
    sent_packets: u64,
    /// Packets received.
    received_packets: u64,
    /// Messages sent that were dropped.
    discards: u64,
    /// Times that the port went down.
    downed: u64,
}

/// Attributes of the agent that are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attribute {
    ClassPortInfo,
    PortCounters,
    PortCountersExtended,
}

impl Attribute {
    /// Returns the attribute with this number.
    fn from_raw(raw: u16) -> Option<Self> {
        Some(match raw {
            0x01 => Self::ClassPortInfo,
            0x12 => Self::PortCounters,
            0x1d => Self::PortCountersExtended,
            _ => return None,
        })
    }
}

/// Offset of the attribute in the bytes after a datagram's header.
const DATA_OFFSET: usize = 40;

/// `CapabilityMask`: extended counters, without those by kind of destination.
const EXTENDED_WITHOUT_IETF: u16 = 1 << 10;

/// The head of `struct ib_class_port_info`.
#[derive(FromZeros, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct ClassPortInfo {
    base_version: u8,
    class_version: u8,
    capability_mask: U16,
}

/// `struct ib_pma_portcounters`: counters that stop at their ends.
#[derive(FromZeros, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Short {
    reserved: u8,
    port_select: u8,
    counter_select: U16,
    symbol_error: U16,
    link_error_recovery: u8,
    link_downed: u8,
    rcv_errors: [U16; 3],
    xmit_discards: U16,
    constraint_errors: [u8; 2],
    reserved1: u8,
    link_overrun_errors: u8,
    reserved2: U16,
    vl15_dropped: U16,
    xmit_data: U32,
    rcv_data: U32,
    xmit_packets: U32,
    rcv_packets: U32,
    xmit_wait: U32,
}

/// The head of `struct ib_pma_portcounters_ext`.
#[derive(FromZeros, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Extended {
    reserved: u8,
    port_select: u8,
    counter_select: U16,
    reserved1: U32,
    xmit_data: U64,
    rcv_data: U64,
    xmit_packets: U64,
    rcv_packets: U64,
}

const _: () = assert!(size_of::<Short>() == 44 && size_of::<Extended>() == 40);

/// Counters of data are in words of four bytes.
fn words(bytes: u64) -> u64 {
    bytes / 4
}

fn short(value: u64) -> U32 {
    u32::try_from(value).unwrap_or(u32::MAX).into()
}

impl PortCounters {
    /// Writes an attribute to where it stands in a datagram; nothing when there is no room.
    fn write(&self, attribute: Attribute, port: u8, out: &mut [u8]) {
        match attribute {
            Attribute::ClassPortInfo => put(
                out,
                &ClassPortInfo {
                    base_version: 1,
                    class_version: 1,
                    capability_mask: EXTENDED_WITHOUT_IETF.into(),
                },
            ),
            Attribute::PortCounters => put(
                out,
                &Short {
                    port_select: port,
                    link_downed: u8::try_from(self.downed).unwrap_or(u8::MAX),
                    xmit_discards: u16::try_from(self.discards).unwrap_or(u16::MAX).into(),
                    xmit_data: short(words(self.sent_bytes)),
                    rcv_data: short(words(self.received_bytes)),
                    xmit_packets: short(self.sent_packets),
                    rcv_packets: short(self.received_packets),
                    ..Short::new_zeroed()
                },
            ),
            Attribute::PortCountersExtended => put(
                out,
                &Extended {
                    port_select: port,
                    xmit_data: words(self.sent_bytes).into(),
                    rcv_data: words(self.received_bytes).into(),
                    xmit_packets: self.sent_packets.into(),
                    rcv_packets: self.received_packets.into(),
                    ..Extended::new_zeroed()
                },
            ),
        }
    }
}

fn put(out: &mut [u8], attribute: &(impl zerocopy::IntoBytes + zerocopy::Immutable)) {
    let bytes = attribute.as_bytes();
    if let Some(place) = out.get_mut(..bytes.len()) {
        place.copy_from_slice(bytes);
    }
}
