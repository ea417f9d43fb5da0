//! The ratios that are quoted, and what is aimed at.

use serde::Serialize;

use crate::plan::{Device, LARGE, Operation};
use crate::results::Results;

/// The range that a figure should be in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Aim {
    AtLeast(f64),
    AtMost(f64),
}

/// A figure with its aim.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Goal {
    /// Its name among the ratios, if it is one of them.
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
            Aim::AtMost(most) => value <= most,
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

fn native(results: &Results) -> Vec<Goal> {
    use Aim::{AtLeast, AtMost};
    let native = results.native.as_ref();
    let ratio = |name, meaning, aim| Goal {
        name: Some(name),
        meaning,
        aim,
        value: native.and_then(|native| native.ratios.get(name).copied()),
    };
    let figure = |name, meaning, aim| Goal {
        name: None,
        meaning,
        aim,
        value: native.and_then(|native| native.figures.get(name).copied()),
    };
    vec![
        ratio(
            "native_write64_latency_us",
            "64 B WRITE without guests, doorbell to completion, median, in µs",
            AtMost(0.4),
        ),
        ratio(
            "native_write64_mops",
            "64 B WRITEs of one worker without guests, in millions per second",
            AtLeast(8.0),
        ),
        ratio(
            "native_write64k_vs_memcpy",
            "64 KiB WRITE without guests / memcpy of the same block",
            AtLeast(0.9),
        ),
        figure(
            "64 KiB Read / memcpy",
            "64 KiB READ without guests / memcpy of the same block",
            AtLeast(0.9),
        ),
        ratio(
            "native_rate_10000qp_vs_1qp",
            "rate of one busy QP among 10,000 / rate of a QP alone",
            AtLeast(0.9),
        ),
        figure(
            "daemon memory of an idle QP, bytes",
            "the daemon's memory for an idle QP, in bytes",
            AtMost(4096.0),
        ),
    ]
}

/// Returns the quotient, if both are known and it is a number.
fn over(above: Option<f64>, below: Option<f64>) -> Option<f64> {
    Some(above? / below?).filter(|ratio| ratio.is_finite())
}

/// The goals for messages that travel as packets.
fn wire(results: &Results) -> Vec<Goal> {
    use Aim::AtLeast;
    let figure = |name: &str| results.native.as_ref()?.figures.get(name).copied();
    let large = |way| figure(&format!("65536 B Write, packets, {way}, GB/s"));
    let to_rxe = |operation| {
        let rate = |device| results.bandwidth(device, operation, 64 << 10).map(|point| point.mib_s);
        over(rate(Device::Vrnic), rate(Device::Rxe))
    };
    let goal = |name, meaning, least, value| Goal { name, meaning, aim: AtLeast(least), value };
    vec![
        goal(None, "64 KiB WRITE over a trunk, GB/s", 4.0, large("trunk")),
        goal(
            Some("wire_write64k_trunk_vs_tcp"),
            "64 KiB WRITE over a trunk / TCP over a veth device",
            1.3,
            over(large("trunk"), figure("TCP over veth, MTU 9000, GB/s")),
        ),
        goal(
            Some("wire_write64k_loss_vs_lossless"),
            "64 KiB WRITE over a trunk with 1 % loss / without",
            0.5,
            over(large("trunk, 1 % loss"), large("trunk")),
        ),
        goal(
            None,
            "8 B WRITE over a trunk, million/s",
            1.0,
            figure("8 B Write, packets, trunk, million/s"),
        ),
        goal(None, "64 KiB WRITE by TAP, joined packets, GB/s", 3.0, large("TAP, joined")),
        goal(
            Some("wire_write64k_tap_vs_bare"),
            "64 KiB WRITE by TAP, single packets / bare frames",
            0.8,
            over(large("TAP, single"), figure("bare frames through TAP and bridge, GB/s")),
        ),
        goal(
            Some("wire_guest_write64k_vs_rxe"),
            "ib_write_bw at 64 KiB, vrnic / rxe over the same switch",
            30.0,
            to_rxe(Operation::Write),
        ),
        goal(
            Some("wire_guest_read64k_vs_rxe"),
            "ib_read_bw at 64 KiB, vrnic / rxe over the same switch",
            30.0,
            to_rxe(Operation::Read),
        ),
    ]
}

/// The goals for messages over iWARP.
fn iwarp(results: &Results) -> Vec<Goal> {
    let mut goals = iwarp_of_daemons(results);
    goals.extend(iwarp_in_guests(results));
    goals.extend(to_siw(results));
    goals
}

/// The goals for iWARP that are measured without guests.
fn iwarp_of_daemons(results: &Results) -> Vec<Goal> {
    use Aim::{AtLeast, AtMost};
    let figure = |name: &str| results.native.as_ref()?.figures.get(name).copied();
    let large = |way| figure(&format!("65536 B Write, iWARP, {way}, GB/s"));
    let tcp = figure("TCP over veth, MTU 9000, GB/s");
    let median = |transport| {
        figure(&format!("64 B WRITE, doorbell to CQE, one daemon, {transport}, median, µs"))
    };
    let goal = |name, meaning, aim, value| Goal { name, meaning, aim, value };
    vec![
        goal(None, "64 KiB WRITE over a trunk, GB/s", AtLeast(3.0), large("trunk")),
        goal(
            Some("iwarp_write64k_trunk_vs_tcp"),
            "64 KiB WRITE over a trunk / TCP over a veth device",
            AtLeast(1.1),
            over(large("trunk"), tcp),
        ),
        goal(
            None,
            "64 KiB WRITE by TAP, joined segments, GB/s",
            AtLeast(2.5),
            large("TAP, joined"),
        ),
        goal(
            Some("iwarp_write64k_loss_vs_lossless"),
            "64 KiB WRITE over a trunk with 1 % loss / without",
            AtLeast(0.5),
            over(large("trunk, 1 % loss"), large("trunk")),
        ),
        goal(
            Some("iwarp_pair_latency_vs_roce"),
            "64 B WRITE within a daemon, median, iWARP / RoCE",
            AtMost(1.1),
            over(median("iWARP"), median("RoCE")),
        ),
    ]
}

/// The goals for iWARP that are measured in guests.
fn iwarp_in_guests(results: &Results) -> [Goal; 3] {
    use Aim::{AtLeast, AtMost};
    let bandwidth = |device| results.bandwidth(device, Operation::Write, 64 << 10);
    let large_rate = |device| bandwidth(device).map(|point| point.mib_s);
    let rate = |device| results.bandwidth(device, Operation::Write, 8).map(|it| it.messages_s);
    let latency = |device| results.latency(device, Operation::Write);
    let goal = |name, meaning, aim, value| Goal { name, meaning, aim, value };
    [
        goal(
            Some("iwarp_guest_write64k_vs_siw"),
            "ib_write_bw at 64 KiB, vrnic with iWARP / siw",
            AtLeast(30.0),
            over(large_rate(Device::Iwarp), large_rate(Device::Siw)),
        ),
        goal(
            Some("iwarp_guest_rate8_vs_siw"),
            "ib_write_bw at 8 B, messages per second, vrnic with iWARP / siw",
            AtLeast(20.0),
            over(rate(Device::Iwarp), rate(Device::Siw)),
        ),
        goal(
            Some("iwarp_guest_write_lat8_vs_siw"),
            "ib_write_lat at 8 B, typical, vrnic with iWARP / siw",
            AtMost(0.3),
            over(latency(Device::Iwarp), latency(Device::Siw)),
        ),
    ]
}

/// The goals for an adapter whose peer is siw.
fn to_siw(results: &Results) -> [Goal; 3] {
    use Operation::{Read, Send, Write};
    let goals = [
        ("iwarp_to_siw_write64k", "ib_write_bw at 64 KiB, vrnic to siw / siw to siw", Write),
        ("iwarp_to_siw_read64k", "ib_read_bw at 64 KiB, vrnic from siw / siw from siw", Read),
        ("iwarp_to_siw_send64k", "ib_send_bw at 64 KiB, vrnic to siw / siw to siw", Send),
    ];
    goals.map(|(name, meaning, operation)| {
        let rate = |device| results.bandwidth(device, operation, 64 << 10).map(|point| point.mib_s);
        let value = over(rate(Device::Mixed), rate(Device::Siw));
        Goal { name: Some(name), meaning, aim: Aim::AtLeast(0.9), value }
    })
}

/// The goals for guests whose daemon copies messages.
fn guests(results: &Results) -> Vec<Goal> {
    let mut goals = guests_rates(results);
    goals.extend(guests_latencies(results));
    goals
}

fn guests_rates(results: &Results) -> Vec<Goal> {
    use Aim::AtLeast;
    use Device::{Rxe, Siw, Vrnic};
    use Operation::{Read, Write};
    let bytes = |device, operation, size| {
        results.bandwidth(device, operation, size).map(|point| point.mib_s)
    };
    let to_memcpy =
        |operation, size| over(bytes(Vrnic, operation, size), results.memcpy(operation, size));
    let to_rxe = |operation, size| over(bytes(Vrnic, operation, size), bytes(Rxe, operation, size));
    let rate = |device| results.bandwidth(device, Write, 8).map(|point| point.messages_s);
    let least = |figure: &dyn Fn(Operation, u64) -> Option<f64>| {
        let all = [Write, Read].into_iter().flat_map(|o| LARGE.map(|size| figure(o, size)));
        all.reduce(|a, b| Some(a?.min(b?))).flatten()
    };
    let goal = |name, meaning, aim, value| Goal { name, meaning, aim, value };
    vec![
        goal(
            Some("guest_write64k_vs_memcpy"),
            "ib_write_bw at 64 KiB / memcpy of such a block",
            AtLeast(0.8),
            to_memcpy(Write, 64 << 10),
        ),
        goal(
            None,
            "the least of ib_write_bw and ib_read_bw, 64 KiB to 1 MiB / memcpy",
            AtLeast(0.8),
            least(&to_memcpy),
        ),
        goal(
            Some("guest_write64k_vs_rxe"),
            "ib_write_bw at 64 KiB, vrnic / rxe",
            AtLeast(500.0),
            to_rxe(Write, 64 << 10),
        ),
        goal(
            None,
            "the least of ib_write_bw and ib_read_bw, 64 KiB to 1 MiB, vrnic / rxe",
            AtLeast(500.0),
            least(&to_rxe),
        ),
        goal(
            Some("guest_rate8_vs_rxe"),
            "ib_write_bw at 8 B, messages per second, vrnic / rxe",
            AtLeast(20.0),
            over(rate(Vrnic), rate(Rxe)),
        ),
        goal(
            Some("guest_rate8_vs_siw"),
            "ib_write_bw at 8 B, messages per second, vrnic / siw",
            AtLeast(10.0),
            over(rate(Vrnic), rate(Siw)),
        ),
    ]
}

fn guests_latencies(results: &Results) -> Vec<Goal> {
    use Aim::{AtLeast, AtMost};
    use Device::{Siw, Vrnic};
    use Operation::{Read, Send, Write};
    let latency = |device, operation| results.latency(device, operation);
    let to_relay = |operation| over(latency(Vrnic, operation), results.relay());
    let to_siw = |operation| over(latency(Siw, operation), latency(Vrnic, operation));
    let goal = |name, meaning, aim, value| Goal { name, meaning, aim, value };
    vec![
        goal(
            Some("guest_write_lat8_vs_relay"),
            "ib_write_lat at 8 B, typical / the bare relay of three threads",
            AtMost(1.2),
            to_relay(Write),
        ),
        goal(
            None,
            "ib_send_lat at 8 B, typical / the bare relay of three threads",
            AtMost(1.2),
            to_relay(Send),
        ),
        goal(
            Some("guest_write_lat8_siw_over_vrnic"),
            "ib_write_lat at 8 B, siw / vrnic",
            AtLeast(5.0),
            to_siw(Write),
        ),
        goal(None, "ib_send_lat at 8 B, siw / vrnic", AtLeast(5.0), to_siw(Send)),
        goal(
            Some("guest_read_lat8_siw_over_vrnic"),
            "ib_read_lat at 8 B, siw / vrnic",
            AtLeast(5.0),
            to_siw(Read),
        ),
    ]
}

#[cfg(test)]
mod tests;
