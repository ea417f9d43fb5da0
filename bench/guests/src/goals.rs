//! The ratios that are quoted, and what is aimed at.

use std::fmt;

use serde::Serialize;
use vrnic_figures::{Figure, Link, Operation as Native, Protocol, QUOTED, Quantity, Subject, Way};

use crate::plan::{Device, LARGE, Operation};
use crate::results::Results;

/// The range that a figure should be in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Aim {
    AtLeast(f64),
    AtMost(f64),
}

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, "≥ {least}"),
            Self::AtMost(limit) => write!(f, "≤ {limit}"),
        }
    }
}

/// A figure with its aim.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Goal {
    /// The goal's name among the ratios, if it is one of them.
    pub(crate) name: Option<&'static str>,
    /// Description of the ratio or the figure.
    pub(crate) meaning: &'static str,
    #[serde(flatten)]
    pub(crate) aim: Aim,
    /// The value, unless a figure that it needs is missing.
    pub(crate) value: Option<f64>,
}

impl Goal {
    /// Returns whether the aim is reached; a missing figure reaches nothing.
    pub(crate) fn reached(&self) -> bool {
        self.value.is_some_and(|value| match self.aim {
            Aim::AtLeast(least) => value >= least,
            Aim::AtMost(limit) => value <= limit,
        })
    }
}

/// Returns all goals, in the order of tables.
pub(crate) fn goals(results: &Results) -> Vec<Goal> {
    if results.iwarp {
        return iwarp(results);
    }
    if results.wire {
        return wire(results);
    }
    let mut goals = native(results);
    goals.extend(guests(results));
    goals
}

/// Returns the quotient, if both are known and it is a number.
fn over(above: Option<f64>, below: Option<f64>) -> Option<f64> {
    Some(above? / below?).filter(|ratio| ratio.is_finite())
}

/// Makes goals of rows: the name among the ratios if it is one of them, the meaning, the aim, the
/// value.
macro_rules! goals {
    ($($($name:ident)? $meaning:literal, $aim:ident $bound:literal, $value:expr;)*) => {
        vec![$(Goal {
            name: None $(.or(Some(stringify!($name))))?,
            meaning: $meaning,
            aim: Aim::$aim($bound),
            value: $value,
        }),*]
    };
}

/// Returns the goals that are measured without guests.
fn native(results: &Results) -> Vec<Goal> {
    let figure = |figure: Figure| results.native(figure.0, figure.1);
    let [latency, rate, to_memcpy, among_idle] = QUOTED.map(|(_, quoted)| figure(quoted));
    let read = figure(Figure(Subject::Large(64, Native::Read), Quantity::ToMemcpy));
    let memory = figure(Figure(Subject::IdleQp, Quantity::Bytes));
    goals! {
        native_write64_latency_us
            "64 B WRITE without guests, doorbell to completion, median, in µs",
            AtMost 0.4, latency;
        native_write64_mops
            "64 B WRITEs of one worker without guests, in millions per second",
            AtLeast 8.0, rate;
        native_write64k_vs_memcpy
            "64 KiB WRITE without guests / memcpy of the same block", AtLeast 0.9, to_memcpy;
        "64 KiB READ without guests / memcpy of the same block", AtLeast 0.9, read;
        native_rate_10000qp_vs_1qp
            "rate of one busy QP among 10,000 / rate of a QP alone", AtLeast 0.9, among_idle;
        "the daemon's memory for an idle QP, in bytes", AtMost 4096.0, memory;
    }
}

/// Returns the goals for messages that travel as packets.
fn wire(results: &Results) -> Vec<Goal> {
    let large = |link| results.large_write(Way::Packets(link));
    let small = Subject::Messages(8, Native::Write, Way::Packets(Link::Trunk));
    let small = results.native(small, Quantity::Millions);
    let tcp = results.native(Subject::Tcp, Quantity::Gigabytes);
    let bare = results.native(Subject::BareFrames, Quantity::Gigabytes);
    let bytes = |device, operation| results.mib_s(device, operation, 64 << 10);
    let to_rxe = |operation| over(bytes(Device::Vrnic, operation), bytes(Device::Rxe, operation));
    goals! {
        "64 KiB WRITE over a trunk, GB/s", AtLeast 4.0, large(Link::Trunk);
        wire_write64k_trunk_vs_tcp
            "64 KiB WRITE over a trunk / TCP over a veth device",
            AtLeast 1.3, over(large(Link::Trunk), tcp);
        wire_write64k_loss_vs_lossless
            "64 KiB WRITE over a trunk with 1 % loss / without",
            AtLeast 0.5, over(large(Link::LossyTrunk), large(Link::Trunk));
        "8 B WRITE over a trunk, million/s", AtLeast 1.0, small;
        "64 KiB WRITE by TAP, joined packets, GB/s", AtLeast 3.0, large(Link::JoinedTap);
        wire_write64k_tap_vs_bare
            "64 KiB WRITE by TAP, single packets / bare frames",
            AtLeast 0.8, over(large(Link::SingleTap), bare);
        wire_guest_write64k_vs_rxe
            "ib_write_bw at 64 KiB, vrnic / rxe over the same switch",
            AtLeast 30.0, to_rxe(Operation::Write);
        wire_guest_read64k_vs_rxe
            "ib_read_bw at 64 KiB, vrnic / rxe over the same switch",
            AtLeast 30.0, to_rxe(Operation::Read);
    }
}

/// Returns the goals for messages over iWARP.
fn iwarp(results: &Results) -> Vec<Goal> {
    let mut goals = iwarp_of_daemons(results);
    goals.extend(iwarp_in_guests(results));
    goals.extend(to_siw(results));
    goals
}

/// Returns the goals for iWARP that are measured without guests.
fn iwarp_of_daemons(results: &Results) -> Vec<Goal> {
    let large = |link| results.large_write(Way::Iwarp(link));
    let tcp = results.native(Subject::Tcp, Quantity::Gigabytes);
    let median =
        |protocol| results.native(Subject::Latency(Way::OneDaemon(protocol)), Quantity::Median);
    goals! {
        "64 KiB WRITE over a trunk, GB/s", AtLeast 3.0, large(Link::Trunk);
        iwarp_write64k_trunk_vs_tcp
            "64 KiB WRITE over a trunk / TCP over a veth device",
            AtLeast 1.1, over(large(Link::Trunk), tcp);
        "64 KiB WRITE by TAP, joined segments, GB/s", AtLeast 2.5, large(Link::JoinedTap);
        iwarp_write64k_loss_vs_lossless
            "64 KiB WRITE over a trunk with 1 % loss / without",
            AtLeast 0.5, over(large(Link::LossyTrunk), large(Link::Trunk));
        iwarp_pair_latency_vs_roce
            "64 B WRITE within a daemon, median, iWARP / RoCE",
            AtMost 1.1, over(median(Protocol::Iwarp), median(Protocol::Roce));
    }
}

/// Returns the goals for iWARP that are measured in guests.
fn iwarp_in_guests(results: &Results) -> Vec<Goal> {
    use Device::{Iwarp, Siw};
    use Operation::Write;
    let bytes = |device| results.mib_s(device, Write, 64 << 10);
    let rate = |device| results.bandwidth(device, Write, 8).map(|point| point.messages_s);
    let latency = |device| results.latency(device, Write);
    goals! {
        iwarp_guest_write64k_vs_siw
            "ib_write_bw at 64 KiB, vrnic with iWARP / siw",
            AtLeast 30.0, over(bytes(Iwarp), bytes(Siw));
        iwarp_guest_rate8_vs_siw
            "ib_write_bw at 8 B, messages per second, vrnic with iWARP / siw",
            AtLeast 20.0, over(rate(Iwarp), rate(Siw));
        iwarp_guest_write_lat8_vs_siw
            "ib_write_lat at 8 B, typical, vrnic with iWARP / siw",
            AtMost 0.3, over(latency(Iwarp), latency(Siw));
    }
}

/// Returns the goals for an adapter whose peer is siw.
fn to_siw(results: &Results) -> Vec<Goal> {
    use Operation::{Read, Send, Write};
    let bytes = |device, operation| results.mib_s(device, operation, 64 << 10);
    let to_siw = |operation| over(bytes(Device::Mixed, operation), bytes(Device::Siw, operation));
    goals! {
        iwarp_to_siw_write64k
            "ib_write_bw at 64 KiB, vrnic to siw / siw to siw", AtLeast 0.9, to_siw(Write);
        iwarp_to_siw_read64k
            "ib_read_bw at 64 KiB, vrnic from siw / siw from siw", AtLeast 0.9, to_siw(Read);
        iwarp_to_siw_send64k
            "ib_send_bw at 64 KiB, vrnic to siw / siw to siw", AtLeast 0.9, to_siw(Send);
    }
}

/// Returns the goals for guests whose daemon copies messages.
fn guests(results: &Results) -> Vec<Goal> {
    let mut goals = guests_rates(results);
    goals.extend(guests_latencies(results));
    goals
}

fn guests_rates(results: &Results) -> Vec<Goal> {
    use Device::{Rxe, Siw, Vrnic};
    use Operation::{Read, Write};
    let bytes = |device, operation, size| results.mib_s(device, operation, size);
    let to_memcpy =
        |operation, size| over(bytes(Vrnic, operation, size), results.memcpy(operation, size));
    let to_rxe = |operation, size| over(bytes(Vrnic, operation, size), bytes(Rxe, operation, size));
    let rate = |device| results.bandwidth(device, Write, 8).map(|point| point.messages_s);
    let least = |figure: &dyn Fn(Operation, u64) -> Option<f64>| {
        let all = [Write, Read].into_iter().flat_map(|o| LARGE.map(|size| figure(o, size)));
        all.reduce(|a, b| Some(a?.min(b?))).flatten()
    };
    goals! {
        guest_write64k_vs_memcpy
            "ib_write_bw at 64 KiB / memcpy of such a block",
            AtLeast 0.8, to_memcpy(Write, 64 << 10);
        "the least of ib_write_bw and ib_read_bw, 64 KiB to 1 MiB / memcpy",
            AtLeast 0.8, least(&to_memcpy);
        guest_write64k_vs_rxe
            "ib_write_bw at 64 KiB, vrnic / rxe", AtLeast 500.0, to_rxe(Write, 64 << 10);
        "the least of ib_write_bw and ib_read_bw, 64 KiB to 1 MiB, vrnic / rxe",
            AtLeast 500.0, least(&to_rxe);
        guest_rate8_vs_rxe
            "ib_write_bw at 8 B, messages per second, vrnic / rxe",
            AtLeast 20.0, over(rate(Vrnic), rate(Rxe));
        guest_rate8_vs_siw
            "ib_write_bw at 8 B, messages per second, vrnic / siw",
            AtLeast 10.0, over(rate(Vrnic), rate(Siw));
    }
}

fn guests_latencies(results: &Results) -> Vec<Goal> {
    use Device::{Siw, Vrnic};
    use Operation::{Read, Send, Write};
    let latency = |device, operation| results.latency(device, operation);
    let to_relay = |operation| over(latency(Vrnic, operation), results.relay());
    let to_siw = |operation| over(latency(Siw, operation), latency(Vrnic, operation));
    goals! {
        guest_write_lat8_vs_relay
            "ib_write_lat at 8 B, typical / the bare relay of three threads",
            AtMost 1.2, to_relay(Write);
        "ib_send_lat at 8 B, typical / the bare relay of three threads",
            AtMost 1.2, to_relay(Send);
        guest_write_lat8_siw_over_vrnic
            "ib_write_lat at 8 B, siw / vrnic", AtLeast 5.0, to_siw(Write);
        "ib_send_lat at 8 B, siw / vrnic", AtLeast 5.0, to_siw(Send);
        guest_read_lat8_siw_over_vrnic
            "ib_read_lat at 8 B, siw / vrnic", AtLeast 5.0, to_siw(Read);
    }
}

#[cfg(test)]
mod tests;
