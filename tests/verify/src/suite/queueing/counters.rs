//! Counters: each event moves exactly the counters that are named for it, by the exact number. The
//! names are common to drivers of Linux. A device that lacks one of them fails, except a software
//! device, which has few.
//!
//! Shows: views

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::suite::Case;
use crate::suite::fixture::{End, Env, Link, Options, Side};
use crate::suite::messages::datagrams;
use vrnic_verbs::model::{Op, SendWr, State, Status, mask, qp_type};

pub(in crate::suite) fn cases() -> Vec<Case> {
    let mut cases: Vec<_> =
        [Op::Send, Op::SendImm, Op::Write, Op::WriteImm, Op::Read, Op::FetchAdd]
            .into_iter()
            .map(|op| {
                let name = format!("counters/packets_and_bytes/{}", op.name());
                Case::new(name, move |env| packets(env, op))
            })
            .collect();
    cases.extend([
        Case::new("counters/receiver_not_ready", not_ready),
        Case::new("counters/ack_timeout", ack_timeout),
        Case::new("counters/remote_access", remote_access),
        Case::new("counters/remote_invalid_request", remote_invalid),
        Case::new("counters/receive_too_short", too_short),
        Case::new("counters/local_protection", local_protection),
        Case::new("counters/malformed_request", malformed),
        Case::new("counters/flushes", flushes),
        Case::new("counters/lost_datagrams", lost_datagrams),
        Case::new("counters/lost_unreliable_messages", lost_messages),
    ]);
    cases
}

/// Names of counters, and by how much each must change.
type Moved<'a> = &'a [(&'a str, u64)];

/// The error counters. Those that a case does not name must not change.
const ERRORS: [&str; 20] = [
    "local_ack_timeout_err",
    "retry_exceeded_err",
    "rnr_nak_retry_err",
    "retry_rnr_exceeded_err",
    "send_rnr_err",
    "out_of_buffer",
    "req_cqe_error",
    "req_cqe_flush_error",
    "resp_cqe_error",
    "resp_cqe_flush_error",
    "req_remote_access_errors",
    "resp_remote_access_errors",
    "req_remote_invalid_request",
    "resp_remote_invalid_request",
    "resp_local_length_error",
    "local_protection_err",
    "local_qp_op_err",
    "mem_mgmt_op_err",
    "tx_roce_discards",
    "link_downed",
];

/// Runs `work`. Checks that the counters of both ends have changed as named, and that no other
/// error counters have changed.
fn moves(env: &Env, at: [Moved<'_>; 2], work: impl FnOnce() -> Result<()>) -> Result<()> {
    if env.a.info.is_rxe() {
        return Ok(());
    }
    let read = |end: &End| end.agent.counters();
    let before = [read(&env.a)?, read(&env.b)?];
    work()?;
    // A program may see completions shortly before the counters of that turn.
    let mut after = [read(&env.a)?, read(&env.b)?];
    let of = |all: &BTreeMap<String, u64>, name: &str| all.get(name).copied().unwrap_or(0);
    for _try in 0..100 {
        sleep(Duration::from_millis(20));
        after = [read(&env.a)?, read(&env.b)?];
        let ends = before.iter().zip(&after).zip(at);
        let counted = |((before, after), want): ((&BTreeMap<_, _>, &_), &[(&str, u64)])| {
            want.iter().all(|(name, want)| of(after, name) >= of(before, name) + want)
        };
        if ends.into_iter().all(counted) {
            break;
        }
    }
    for (((end, want), before), after) in ["a", "b"].iter().zip(at).zip(before).zip(after) {
        let want: BTreeMap<_, _> = want.iter().copied().collect();
        for name in ERRORS.iter().chain(want.keys()) {
            let value = |all: &BTreeMap<String, u64>| all.get(*name).copied();
            let (Some(old), Some(new)) = (value(&before), value(&after)) else {
                anyhow::bail!("{end} has no counter {name}");
            };
            let want = want.get(name).copied().unwrap_or(0);
            ensure!(new == old + want, "{end}: {name} went from {old} to {new}, not by {want}");
        }
    }
    Ok(())
}

/// A message that is slightly longer than two packets, or a word.
fn packets(env: &Env, op: Op) -> Result<()> {
    let link = Link::new(env, &Options::default())?;
    let Link { a, b } = &link;
    let atomic = op == Op::FetchAdd;
    let mtu = 128 << env.a.info.active_mtu.min(env.b.info.active_mtu);
    let len = if atomic { 8 } else { 2 * mtu + 4 };
    let packets = if atomic { 1 } else { 3 };
    let (near, far) = (a.region(len, 0)?, b.region(len, 0)?);
    let request = Side::request(op, 1, &[near.sge()]).at(far.addr, far.rkey);
    let request = SendWr { compare_add: 1, ..request };
    let (sent, executed) = match op {
        Op::Send | Op::SendImm => ("tx_send_req", "rx_send_req"),
        Op::Write | Op::WriteImm => ("tx_write_req", "rx_write_requests"),
        Op::Read => ("tx_read_req", "rx_read_requests"),
        _ => ("tx_atomic_req", "rx_atomic_requests"),
    };
    // The data of a READ or an atomic come back.
    let back = atomic || op == Op::Read;
    let (there, back) = if back { ((1, 0), (packets, len)) } else { ((packets, len), (0, 0)) };
    let at_a = [
        (sent, 1),
        ("tx_pkts", there.0),
        ("tx_bytes", there.1),
        ("rx_pkts", back.0),
        ("rx_bytes", back.1),
        ("port_xmit_packets", there.0),
        ("port_xmit_data", there.1 / 4),
        ("port_rcv_packets", back.0),
        ("port_rcv_data", back.1 / 4),
    ];
    let at_b = [
        (executed, 1),
        ("recv_wrs", u64::from(op.takes_receive())),
        ("rx_pkts", there.0),
        ("rx_bytes", there.1),
        ("tx_pkts", back.0),
        ("tx_bytes", back.1),
        ("port_rcv_packets", there.0),
        ("port_rcv_data", there.1 / 4),
        ("port_xmit_packets", back.0),
        ("port_xmit_data", back.1 / 4),
    ];
    moves(env, [&at_a, &at_b], || {
        if op.takes_receive() {
            b.post_recv(2, &[far.sge()])?;
        }
        a.post(std::slice::from_ref(&request))?;
        a.expect_sent(1, Status::Success).map(drop)
    })
}

/// Two RNR retries mean three refusals, with two waits between them.
fn not_ready(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::impatient())?;
    let at_a = [("rnr_nak_retry_err", 2), ("retry_rnr_exceeded_err", 1), ("req_cqe_error", 1)];
    let at_b = [("send_rnr_err", 3), ("out_of_buffer", 3)];
    moves(env, [&at_a, &at_b], || {
        link.a.run(Side::request(Op::Send, 1, &[]), Status::RnrRetryExcErr).map(drop)
    })
}

/// Two retries mean that three acknowledgements were missing.
fn ack_timeout(env: &Env) -> Result<()> {
    let a = Side::new(&env.a, &Options::impatient())?;
    a.connect(&env.b, 0x00fe_dcba)?;
    let at_a = [("local_ack_timeout_err", 3), ("retry_exceeded_err", 1), ("req_cqe_error", 1)];
    moves(env, [&at_a, &[]], || {
        a.run(Side::request(Op::Send, 1, &[]), Status::RetryExcErr).map(drop)
    })
}

/// Posts a request that the peer must refuse.
fn refused(link: &Link, op: Op, spoil: impl Fn(&mut SendWr), status: Status) -> Result<()> {
    let (near, far) = (link.a.region(8, 0)?, link.b.region(64, 0)?);
    let mut request = Side::request(op, 1, &[near.sge()]).at(far.addr, far.rkey);
    spoil(&mut request);
    link.a.run(request, status).map(drop)
}

fn remote_access(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::default())?;
    let at_a = [("req_remote_access_errors", 1), ("req_cqe_error", 1)];
    moves(env, [&at_a, &[("resp_remote_access_errors", 1)]], || {
        refused(&link, Op::Write, |wr| wr.rkey ^= 1, Status::RemAccessErr)
    })
}

fn remote_invalid(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::default())?;
    let at_a = [("req_remote_invalid_request", 1), ("req_cqe_error", 1)];
    moves(env, [&at_a, &[("resp_remote_invalid_request", 1)]], || {
        refused(&link, Op::FetchAdd, |wr| wr.raddr += 4, Status::RemInvReqErr)
    })
}

fn too_short(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::default())?;
    let short = link.b.region(4, 0)?;
    let at_a = [("req_remote_invalid_request", 1), ("req_cqe_error", 1)];
    let at_b = [("resp_local_length_error", 1), ("resp_cqe_error", 1)];
    moves(env, [&at_a, &at_b], || {
        link.b.post_recv(2, &[short.sge()])?;
        refused(&link, Op::Send, |_| {}, Status::RemInvReqErr)
    })
}

fn local_protection(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::default())?;
    let at_a = [("local_protection_err", 1), ("req_cqe_error", 1)];
    moves(env, [&at_a, &[]], || {
        refused(&link, Op::Write, |wr| wr.sges[0].lkey ^= 1, Status::LocProtErr)
    })
}

/// A datagram has one packet.
fn malformed(env: &Env) -> Result<()> {
    let (a, b) = (datagrams::ready(&env.a)?, datagrams::ready(&env.b)?);
    let way = datagrams::towards(&a, &b)?;
    let longer = (128 << env.a.info.active_mtu) + 1;
    let source = a.region(longer, 0)?;
    let at_a = [("local_qp_op_err", 1), ("req_cqe_error", 1), ("tx_pkts", 0)];
    moves(env, [&at_a, &[]], || {
        a.run(datagrams::datagram(1, &source, longer, way), Status::LocLenErr).map(drop)
    })
}

/// Counts requests posted to a queue pair in the error state.
fn flushes(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::default())?;
    link.a.to(State::Err)?;
    let at_a = [("req_cqe_flush_error", 2), ("resp_cqe_flush_error", 1)];
    moves(env, [&at_a, &[]], || {
        link.a.post_recv(3, &[])?;
        link.a.post(&[Side::request(Op::Send, 1, &[]), Side::request(Op::Send, 2, &[])])?;
        link.a.sent(2)?;
        link.a.expect_received(3, Status::WrFlushErr).map(drop)
    })
}

/// A datagram without a receive leaves, and is dropped at its destination.
fn lost_datagrams(env: &Env) -> Result<()> {
    let (a, b) = (datagrams::ready(&env.a)?, datagrams::ready(&env.b)?);
    let way = datagrams::towards(&a, &b)?;
    let source = a.region(100, 0)?;
    let at_a = [("tx_pkts", 2), ("tx_bytes", 200), ("tx_roce_discards", 2)];
    moves(env, [&at_a, &[("out_of_buffer", 2), ("rx_pkts", 0)]], || {
        for wr_id in [1, 2] {
            a.run(datagrams::datagram(wr_id, &source, 100, way), Status::Success)?;
        }
        Ok(())
    })
}

/// Returns an unreliable connection.
fn unreliable(env: &Env) -> Result<Link> {
    let options = Options { qp_type: qp_type::UC, ..Options::default() };
    let (a, b) = (Side::new(&env.a, &options)?, Side::new(&env.b, &options)?);
    for (side, peer) in [(&a, &b), (&b, &a)] {
        let attr = side.attr_towards(&peer.end, peer.qpn);
        let rtr = mask::STATE | mask::AV | mask::PATH_MTU | mask::DEST_QPN | mask::RQ_PSN;
        side.to_init()?;
        side.modify(State::Rtr, &attr, rtr)?;
        side.modify(State::Rts, &attr, mask::STATE | mask::SQ_PSN)?;
    }
    Ok(Link { a, b })
}

/// Counts messages over an unreliable connection.
fn lost_messages(env: &Env) -> Result<()> {
    let link = unreliable(env)?;
    let at_a = [("tx_pkts", 1), ("tx_roce_discards", 1)];
    moves(env, [&at_a, &[("out_of_buffer", 1), ("rx_pkts", 0)]], || {
        link.a.run(Side::request(Op::Send, 1, &[]), Status::Success).map(drop)
    })
}
