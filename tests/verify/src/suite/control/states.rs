//! The state machine of QPs (IBTA volume 1, 10.3 and 11.2.4.2).
//!
//! Shows: queues

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;

use crate::suite::Case;
use crate::suite::fixture::{Env, Link, Options, Side, expect_errno, one_of};
use vrnic_verbs::model::{Op, QpAttr, State, Status, access, event, mask};

pub(in crate::suite) fn cases() -> Vec<Case> {
    vec![
        Case::new("states/walk_and_read_back", walk),
        Case::new("states/illegal_transitions", illegal),
        Case::new("states/missing_attributes", missing),
        Case::new("states/attributes_not_allowed", not_allowed),
        Case::new("states/values_out_of_range", out_of_range),
        Case::new("states/modify_in_rts", modify_in_rts),
        Case::new("states/rights_change_in_rts", rights_change),
        Case::new("states/receive_before_rtr", receive_early),
        Case::new("states/peer_becomes_ready_in_time", ready_in_time),
        Case::new("states/drain", drain),
        Case::new("states/error_to_reset_and_again", reuse),
        Case::new("states/reset_drops_work", reset_drops),
    ]
}

/// Moves a QP through all states, and queries the attributes in each.
fn walk(env: &Env) -> Result<()> {
    let (a, b) = (Side::new(&env.a, &Options::default())?, Side::new(&env.b, &Options::default())?);
    a.expect_state(State::Reset)?;
    a.to_init()?;
    let want = a.attr_towards(&env.b, b.qpn);
    let got = a.query()?;
    ensure!(got.state == State::Init as u32, "state {}", got.state);
    ensure!(
        (got.access, got.port, got.pkey_index) == (want.access, 1, 0),
        "Init reads back {got:?}"
    );
    a.to_rtr(&env.b, b.qpn)?;
    expect_path(&a.query()?, &want, State::Rtr)?;
    a.to_rts()?;
    let got = a.query()?;
    expect_path(&got, &want, State::Rts)?;
    ensure!(
        (got.timeout, got.retry_cnt, got.rnr_retry, got.sq_psn, got.max_rd_atomic)
            == (want.timeout, want.retry_cnt, want.rnr_retry, want.sq_psn, want.max_rd_atomic),
        "RTS reads back {got:?}, set was {want:?}"
    );
    let cap = got.cap;
    ensure!(cap.send_wr >= 64 && cap.recv_wr >= 64, "sizes read back {cap:?}");
    a.to(State::Sqd)?;
    a.expect_state(State::Sqd)?;
    a.to(State::Rts)?;
    a.expect_state(State::Rts)?;
    a.to(State::Err)?;
    a.expect_state(State::Err)?;
    a.to(State::Reset)?;
    a.expect_state(State::Reset)
}

fn expect_path(got: &QpAttr, want: &QpAttr, state: State) -> Result<()> {
    ensure!(got.state == state as u32, "state {}, not {state:?}", got.state);
    let key =
        |a: &QpAttr| (a.path_mtu, a.dest_qpn, a.rq_psn, a.max_dest_rd_atomic, a.min_rnr_timer);
    ensure!(key(got) == key(want), "{state:?} reads back {got:?}, set was {want:?}");
    let path = |a: &QpAttr| (a.dgid, a.sgid_index, a.hop_limit);
    ensure!(path(got) == path(want), "{state:?} reads back path {got:?}, set was {want:?}");
    Ok(())
}

/// Returns a side whose QP was moved to this state.
fn side_in(env: &Env, state: State) -> Result<Side> {
    let side = Side::new(&env.a, &Options::default())?;
    if state != State::Reset {
        side.to_init()?;
    }
    if matches!(state, State::Rtr | State::Rts | State::Sqd) {
        side.to_rtr(&env.b, 99)?;
    }
    if matches!(state, State::Rts | State::Sqd) {
        side.to_rts()?;
    }
    if matches!(state, State::Sqd | State::Err) {
        side.to(state)?;
    }
    side.expect_state(state)?;
    Ok(side)
}

/// Transitions that do not exist are refused, and the state stays.
fn illegal(env: &Env) -> Result<()> {
    use State::{Err, Init, Reset, Rtr, Rts, Sqd};
    let pairs = [
        (Reset, Rtr),
        (Reset, Rts),
        (Reset, Sqd),
        (Init, Rts),
        (Init, Sqd),
        (Rtr, Init),
        (Rtr, Rtr),
        (Rts, Init),
        (Rts, Rtr),
        (Sqd, Init),
        (Sqd, Rtr),
        (Err, Init),
        (Err, Rtr),
        (Err, Rts),
        (Err, Sqd),
    ];
    for (from, to) in pairs {
        let side = side_in(env, from)?;
        let attr = side.attr_towards(&env.b, 99);
        let mask = match to {
            Init => mask::TO_INIT,
            Rtr => mask::TO_RTR,
            Rts => mask::TO_RTS,
            _ => mask::STATE,
        };
        let what = format!("{from:?} to {to:?}");
        expect_errno(&what, side.modify(to, &attr, mask), Errno::INVAL)?;
        side.expect_state(from).context(what)?;
        side.destroy()?;
    }
    Ok(())
}

/// A transition without one of its required attributes is refused.
fn missing(env: &Env) -> Result<()> {
    let required = [
        (State::Reset, State::Init, mask::TO_INIT),
        (State::Init, State::Rtr, mask::TO_RTR),
        (State::Rtr, State::Rts, mask::TO_RTS),
    ];
    for (from, to, all) in required {
        let side = side_in(env, from)?;
        let attr = side.attr_towards(&env.b, 99);
        for bit in (0..32).map(|n| 1 << n).filter(|bit| all & bit != 0 && *bit != mask::STATE) {
            let what = format!("{from:?} to {to:?} without attribute {bit:#x}");
            expect_errno(&what, side.modify(to, &attr, all & !bit), Errno::INVAL)?;
            side.expect_state(from)?;
        }
        side.modify(to, &attr, all)?;
        side.destroy()?;
    }
    Ok(())
}

/// An attribute that a transition does not allow is refused.
fn not_allowed(env: &Env) -> Result<()> {
    let extra = [
        (State::Reset, State::Init, mask::TO_INIT | mask::SQ_PSN),
        (State::Reset, State::Init, mask::TO_INIT | mask::AV),
        (State::Init, State::Rtr, mask::TO_RTR | mask::TIMEOUT),
        (State::Rtr, State::Rts, mask::TO_RTS | mask::DEST_QPN),
        (State::Rts, State::Rts, mask::STATE | mask::PATH_MTU),
        (State::Rts, State::Err, mask::STATE | mask::RETRY_CNT),
    ];
    for (from, to, mask) in extra {
        let side = side_in(env, from)?;
        let attr = side.attr_towards(&env.b, 99);
        let what = format!("{from:?} to {to:?} with mask {mask:#x}");
        expect_errno(&what, side.modify(to, &attr, mask), Errno::INVAL)?;
        side.expect_state(from)?;
        side.destroy()?;
    }
    Ok(())
}

/// Values outside their range are refused.
fn out_of_range(env: &Env) -> Result<()> {
    type Change = fn(&mut QpAttr);
    let bad: [(&str, State, State, u32, Change); 7] = [
        ("port 2", State::Reset, State::Init, mask::TO_INIT, |a| a.port = 2),
        ("pkey index 500", State::Reset, State::Init, mask::TO_INIT, |a| a.pkey_index = 500),
        ("MTU 9", State::Init, State::Rtr, mask::TO_RTR, |a| a.path_mtu = 9),
        ("MTU 0", State::Init, State::Rtr, mask::TO_RTR, |a| a.path_mtu = 0),
        ("source GID 250", State::Init, State::Rtr, mask::TO_RTR, |a| a.sgid_index = 250),
        ("255 READs accepted", State::Init, State::Rtr, mask::TO_RTR, |a| {
            a.max_dest_rd_atomic = 255
        }),
        ("255 READs sent", State::Rtr, State::Rts, mask::TO_RTS, |a| a.max_rd_atomic = 255),
    ];
    for (what, from, to, mask, change) in bad {
        let side = side_in(env, from)?;
        let mut attr = side.attr_towards(&env.b, 99);
        change(&mut attr);
        // The core's own error for a GID index without a GID is ENODATA.
        one_of(what, side.modify(to, &attr, mask), &[Errno::INVAL, Errno::NODATA])?;
        side.expect_state(from)?;
        side.destroy()?;
    }
    Ok(())
}

/// Access rights and the RNR timer may change in RTS, and take effect.
fn modify_in_rts(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::impatient())?;
    let (near, far) = (a.region(64, 0)?, b.region(64, 0)?);
    let write = Side::request(Op::Write, 1, &[near.sge()]).at(far.addr, far.rkey);
    a.run(write.clone(), Status::Success)?;
    let attr = QpAttr { access: 0, min_rnr_timer: 5, ..QpAttr::default() };
    let mask = mask::STATE | mask::ACCESS_FLAGS | mask::MIN_RNR_TIMER;
    b.modify(State::Rts, &attr, mask)?;
    let got = b.query()?;
    ensure!((got.access & !1, got.min_rnr_timer) == (0, 5), "reads back {got:?}");
    a.run(write, Status::RemInvReqErr).map(drop)
}

/// Rights may be taken away in RTS, and others stay.
fn rights_change(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::impatient())?;
    let (near, far) = (a.region(64, 0)?, b.region(64, 0)?);
    let request = |op| Side::request(op, 1, &[near.sge()]).at(far.addr, far.rkey);
    let attr = QpAttr { access: access::REMOTE_READ, ..QpAttr::default() };
    b.modify(State::Rts, &attr, mask::STATE | mask::ACCESS_FLAGS)?;
    a.run(request(Op::Read), Status::Success)?;
    a.run(request(Op::Write), Status::RemInvReqErr)?;
    a.post(&[request(Op::Write)])?;
    a.expect_sent(1, Status::WrFlushErr).map(drop)
}

/// A message to a peer that is not ready is repeated, and arrives when the peer is in RTR. There it
/// serves READs too, and refuses to send.
fn ready_in_time(env: &Env) -> Result<()> {
    let (a, b) = (Side::new(&env.a, &Options::default())?, Side::new(&env.b, &Options::default())?);
    let (near, far) = (a.region(64, 0)?, b.region(64, 0)?);
    near.fill(6)?;
    b.to_init()?;
    b.post_recv(71, &[far.sge()])?;
    a.connect(&env.b, b.qpn)?;
    a.post(&[Side::request(Op::Send, 70, &[near.sge()])])?;
    a.expect_quiet(500)?;
    let early = || b.try_post(&[Side::request(Op::Send, 72, &[])]);
    ensure!(early()?.refused.is_some(), "a SEND in Init is posted");
    b.to_rtr(&env.a, a.qpn)?;
    a.expect_sent(70, Status::Success)?;
    b.expect_received(71, Status::Success)?;
    far.check(6)?;
    ensure!(early()?.refused.is_some(), "a SEND in RTR is posted");
    near.fill(7)?;
    a.run(Side::request(Op::Read, 73, &[near.sge()]).at(far.addr, far.rkey), Status::Success)?;
    near.check(6)?;
    b.to_rts()?;
    a.post_recv(74, &[])?;
    b.run(Side::request(Op::Send, 75, &[]), Status::Success)?;
    a.expect_received(74, Status::Success).map(drop)
}

/// Receives may be posted in Init, and are used for messages that arrive in RTR.
fn receive_early(env: &Env) -> Result<()> {
    let (a, b) = (Side::new(&env.a, &Options::default())?, Side::new(&env.b, &Options::default())?);
    let (near, far) = (a.region(64, 0)?, b.region(64, 0)?);
    near.fill(4)?;
    b.to_init()?;
    b.post_recv(71, &[far.sge()])?;
    b.to_rtr(&env.a, a.qpn)?;
    a.connect(&env.b, b.qpn)?;
    a.run(Side::request(Op::Send, 70, &[near.sge()]), Status::Success)?;
    b.expect_received(71, Status::Success)?;
    far.check(4)
}

/// In SQD no new request starts. After a return to RTS, requests start again.
fn drain(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::default())?;
    let (near, far) = (a.region(64, 0)?, b.region(64, 0)?);
    near.fill(1)?;
    far.fill(2)?;
    let attr = QpAttr { en_sqd_async_notify: 1, ..QpAttr::default() };
    a.modify(State::Sqd, &attr, mask::STATE | mask::EN_SQD_ASYNC_NOTIFY)?;
    a.expect_qp_event(event::SQ_DRAINED)?;
    let write = Side::request(Op::Write, 1, &[near.sge()]).at(far.addr, far.rkey);
    a.post(&[write])?;
    a.expect_quiet(200)?;
    far.check(2)?;
    // The other direction still works, because SQD concerns only the send queue.
    a.post_recv(5, &[])?;
    b.run(Side::request(Op::Send, 6, &[]), Status::Success)?;
    a.expect_received(5, Status::Success)?;
    a.to(State::Rts)?;
    a.expect_sent(1, Status::Success)?;
    far.check(1)
}

/// A failed QP works again after Reset, any number of times.
fn reuse(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::default())?;
    for round in 0..10 {
        link.prove().with_context(|| format!("round {round}"))?;
        for side in [&link.a, &link.b] {
            side.post_recv(1, &[])?;
            side.to(State::Err)?;
            side.expect_received(1, Status::WrFlushErr)?;
            side.to(State::Reset)?;
        }
        link.b.connect(&env.a, link.a.qpn)?;
        link.a.connect(&env.b, link.b.qpn)?;
    }
    link.prove()
}

/// Requests that were posted before Reset neither complete nor run afterwards.
fn reset_drops(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::default())?;
    let Link { a, b } = &link;
    let far = b.region(64, 0)?;
    for wr_id in 0..5 {
        b.post_recv(wr_id, &[far.sge()])?;
    }
    b.to(State::Reset)?;
    b.expect_quiet(50)?;
    a.to(State::Reset)?;
    b.connect(&env.a, a.qpn)?;
    a.connect(&env.b, b.qpn)?;
    a.prove_towards(b)?;
    far.check_zero()
}
