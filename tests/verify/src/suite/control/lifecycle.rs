//! Creation, limits, destruction.
//!
//! Shows: resources: objects that are created and destroyed, and their limits

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;

use crate::rpc::values::CreateQp;
use crate::suite::Case;
use crate::suite::fixture::{Env, Link, Options, Region, Side, expect_errno, expect_error, one_of};
use vrnic_verbs::model::{Op, QpCap, Status, access, qp_type};

pub(in crate::suite) fn cases() -> Vec<Case> {
    vec![
        Case::new("lifecycle/pd_in_use", pd_in_use),
        Case::new("lifecycle/cq_in_use", cq_in_use),
        Case::new("lifecycle/channel_in_use", channel_in_use),
        Case::new("lifecycle/cq_limits", cq_limits),
        Case::new("lifecycle/qp_limits", qp_limits),
        Case::new("lifecycle/qp_types_not_offered", qp_types),
        Case::new("lifecycle/largest_queues", largest_queues),
        Case::new("lifecycle/mr_of_bad_memory", mr_bad),
        Case::new("lifecycle/mr_rights", mr_rights),
        Case::new("lifecycle/mr_keys_change", mr_keys),
        Case::new("lifecycle/mr_outlives_mapping", mr_outlives),
        Case::new("lifecycle/overlapping_mrs", overlapping),
        Case::new("lifecycle/1000_pds", many_pds),
        Case::new("lifecycle/2000_mrs", many_mrs),
        Case::new("lifecycle/create_and_destroy_200_qps", churn),
        Case::new("lifecycle/destroy_qp_with_work", destroy_with_work),
    ]
}

fn pd_in_use(env: &Env) -> Result<()> {
    let agent = &env.a.agent;
    let pd = agent.alloc_pd()?;
    let region = Region::new(&env.a, pd, 64, 0, access::ALL)?;
    expect_errno("PD with an MR", agent.dealloc_pd(pd), Errno::BUSY)?;
    region.deregister()?;
    let side = Side::within(&env.a, pd, &Options::default())?;
    expect_errno("PD with a QP", agent.dealloc_pd(pd), Errno::BUSY)?;
    side.destroy()?;
    Ok(agent.dealloc_pd(pd)?)
}

fn cq_in_use(env: &Env) -> Result<()> {
    let agent = &env.a.agent;
    let side = Side::new(&env.a, &Options::default())?;
    for cq in [side.send_cq, side.recv_cq] {
        expect_errno("CQ with a QP", agent.destroy_cq(cq), Errno::BUSY)?;
    }
    side.destroy()?;
    for cq in [side.send_cq, side.recv_cq] {
        agent.destroy_cq(cq)?;
    }
    Ok(())
}

fn channel_in_use(env: &Env) -> Result<()> {
    let agent = &env.a.agent;
    let channel = agent.create_channel()?;
    let cq = agent.create_cq(8, Some(channel), 0)?;
    expect_errno("channel with a CQ", agent.destroy_channel(channel), Errno::BUSY)?;
    agent.destroy_cq(cq.cq)?;
    Ok(agent.destroy_channel(channel)?)
}

fn cq_limits(env: &Env) -> Result<()> {
    let agent = &env.a.agent;
    let max_cqe = i32::try_from(env.a.info.max_cqe)?;
    let create = |cqe, vector| agent.create_cq(cqe, None, vector);
    for cqe in [0, -1, max_cqe.saturating_add(1), i32::MAX] {
        let what = format!("CQ of {cqe} entries");
        one_of(&what, create(cqe, 0), &[Errno::INVAL, Errno::NOMEM])?;
    }
    let vectors = i32::try_from(env.a.info.comp_vectors)?;
    for vector in [vectors, -1, i32::MAX] {
        expect_errno(&format!("vector {vector}"), create(8, vector), Errno::INVAL)?;
    }
    for vector in 0..vectors {
        create(8, vector).with_context(|| format!("vector {vector}"))?;
    }
    for cqe in [1, 2, 3, 100, max_cqe.min(1 << 16)] {
        let capacity = create(cqe, 0)?.capacity;
        ensure!(capacity >= cqe as u32, "{capacity} entries, {cqe} asked for");
    }
    Ok(())
}

/// A PD and a CQ with which QPs are created.
struct Maker<'a> {
    env: &'a Env,
    pd: u32,
    cq: u32,
}

impl<'a> Maker<'a> {
    fn new(env: &'a Env) -> Result<Self> {
        let pd = env.a.agent.alloc_pd()?;
        let cq = env.a.agent.create_cq(16, None, 0)?.cq;
        Ok(Self { env, pd, cq })
    }

    fn create(&self, kind: u32, cap: QpCap) -> Result<QpCap, crate::rpc::client::CallError> {
        let wanted = CreateQp::new(self.pd, self.cq, kind, cap);
        self.env.a.agent.create_qp(wanted).map(|made| made.cap)
    }
}

fn qp_limits(env: &Env) -> Result<()> {
    let (maker, info, good) = (Maker::new(env)?, &env.a.info, Options::default().cap);
    let (wr, sge) = (info.max_qp_wr, info.max_sge);
    let bad = [
        QpCap { send_wr: wr + 1, ..good },
        QpCap { recv_wr: wr + 1, ..good },
        QpCap { send_wr: u32::MAX, ..good },
        QpCap { send_sge: sge + 1, ..good },
        QpCap { recv_sge: sge + 1, ..good },
        QpCap { recv_sge: u32::MAX, ..good },
        QpCap { inline: 1 << 20, ..good },
        QpCap { inline: u32::MAX, ..good },
    ];
    for cap in bad {
        expect_error(&format!("{cap:?}"), maker.create(qp_type::RC, cap))?;
    }
    for cap in [
        QpCap { send_wr: 1, recv_wr: 1, send_sge: 1, recv_sge: 1, inline: 0 },
        QpCap { send_wr: 3, recv_wr: 5, send_sge: 3, recv_sge: 2, inline: 17 },
        QpCap { send_sge: 16, recv_sge: 16, ..good },
    ] {
        let got = maker.create(qp_type::RC, cap).with_context(|| format!("{cap:?}"))?;
        let enough = got.send_wr >= cap.send_wr
            && got.recv_wr >= cap.recv_wr
            && got.send_sge >= cap.send_sge
            && got.recv_sge >= cap.recv_sge
            && got.inline >= cap.inline;
        ensure!(enough, "asked for {cap:?}, got {got:?}");
    }
    Ok(())
}

/// Types that the device does not have are refused.
fn qp_types(env: &Env) -> Result<()> {
    let maker = Maker::new(env)?;
    for kind in [0, 1, 5, 7, 11, 255, u32::MAX] {
        expect_error(&format!("QP type {kind}"), maker.create(kind, Options::default().cap))?;
    }
    Ok(())
}

/// Queues of the maximum length that the device reports.
fn largest_queues(env: &Env) -> Result<()> {
    let max_wr = env.a.info.max_qp_wr.min(1 << 15);
    let options = Options { cqe: 64, ..Options::default() };
    let options = options.cap(|cap| (cap.send_wr, cap.recv_wr) = (max_wr, max_wr));
    Link::new(env, &options)?.prove()
}

/// Memory that does not exist, or that this process may not write, cannot be registered for
/// writing.
fn mr_bad(env: &Env) -> Result<()> {
    let agent = &env.a.agent;
    let pd = agent.alloc_pd()?;
    let register = |addr, length, access| agent.reg_mr(pd, addr, length, access);
    expect_error("address 4096", register(4096, 100, access::ALL))?;
    expect_error("kernel address", register(0xffff_8000_0000_0000, 100, access::ALL))?;
    expect_error("wrapping range", register(u64::MAX - 100, 1000, access::ALL))?;
    let made = agent.alloc_buffer(8192, 0)?;
    expect_error("range into a hole", register(made.addr, 1 << 40, access::ALL))?;
    expect_error("endless range", register(made.addr, u64::MAX, access::ALL))?;
    agent.protect_buffer(made.buffer)?;
    expect_error("read-only memory", register(made.addr, 8192, access::ALL))?;
    let mr = register(made.addr, 8192, 0).context("read-only memory for reading")?;
    agent.dereg_mr(mr.mr)?;
    agent.free_buffer(made.buffer)?;
    expect_error("unmapped memory", register(made.addr, 8192, access::ALL))
}

/// Remote writing without local writing is not a valid combination.
fn mr_rights(env: &Env) -> Result<()> {
    let agent = &env.a.agent;
    let pd = agent.alloc_pd()?;
    let addr = agent.alloc_buffer(4096, 0)?.addr;
    let register = |access| agent.reg_mr(pd, addr, 4096, access);
    for access in [access::REMOTE_WRITE, access::REMOTE_ATOMIC] {
        expect_errno(&format!("rights {access:#x}"), register(access), Errno::INVAL)?;
    }
    for access in [0, access::LOCAL_WRITE, access::REMOTE_READ, access::ALL] {
        register(access).with_context(|| format!("rights {access:#x}"))?;
    }
    Ok(())
}

/// A key is not used again at once.
fn mr_keys(env: &Env) -> Result<()> {
    let pd = env.a.agent.alloc_pd()?;
    let mut last = (0, 0);
    for _ in 0..50 {
        let region = Region::new(&env.a, pd, 64, 0, access::ALL)?;
        ensure!((region.lkey, region.rkey) != last, "key {last:x?} given twice in a row");
        last = (region.lkey, region.rkey);
        region.end()?;
    }
    Ok(())
}

/// A region keeps its pages when the program unmaps them: WRITEs to them do no harm.
fn mr_outlives(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::default())?;
    let (near, far) = (a.region(8192, 0)?, b.region(8192, 0)?);
    far.free()?;
    a.run(Side::request(Op::Write, 1, &[near.sge()]).at(far.addr, far.rkey), Status::Success)?;
    far.deregister()
}

/// Two regions over the same memory, with different rights.
fn overlapping(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::impatient())?;
    let (near, far) = (a.region(4096, 0)?, b.region(4096, 0)?);
    let narrow = b.end.agent.reg_mr(b.pd, far.addr + 100, 1000, 0)?;
    near.fill(1)?;
    let write = Side::request(Op::Write, 1, &[near.part(100, 1000)]);
    a.run(write.clone().at(far.addr + 100, far.rkey), Status::Success)?;
    far.check_part(100, 1000, 1, 100)?;
    a.run(write.at(far.addr + 100, narrow.rkey), Status::RemAccessErr).map(drop)
}

/// Creates as many as the device reports, at most 1000. One more gives an error or a success, but
/// no hang.
fn many_pds(env: &Env) -> Result<()> {
    let agent = &env.a.agent;
    let count = (env.a.info.max_pd / 2).min(1000);
    let pds: Vec<_> = (0..count).map(|_| agent.alloc_pd()).collect::<Result<_, _>>()?;
    for pd in pds {
        agent.dealloc_pd(pd)?;
    }
    agent.alloc_pd()?;
    Ok(())
}

fn many_mrs(env: &Env) -> Result<()> {
    let agent = &env.a.agent;
    let pd = agent.alloc_pd()?;
    let addr = agent.alloc_buffer(8192, 0)?.addr;
    let count = (env.a.info.max_mr / 2).min(2000);
    let mut keys = std::collections::BTreeSet::new();
    for i in 0..u64::from(count) {
        let mr = agent.reg_mr(pd, addr + i, 100, access::ALL)?;
        ensure!(keys.insert(mr.rkey), "key {:#x} given twice", mr.rkey);
    }
    Ok(())
}

fn churn(env: &Env) -> Result<()> {
    for round in 0..50 {
        Link::new(env, &Options::default())?.prove().with_context(|| format!("round {round}"))?;
        env.reset()?;
        let early =
            [Side::new(&env.a, &Options::default())?, Side::new(&env.b, &Options::default())?];
        early[0].to_init()?;
        env.reset()?;
    }
    Ok(())
}

/// Destroying a QP ends its work at once: no completion, and no access to its memory afterwards.
fn destroy_with_work(env: &Env) -> Result<()> {
    for _ in 0..20 {
        let Link { a, b } = Link::new(env, &Options::default())?;
        let (near, far) = (a.region(256 << 10, 0)?, b.region(256 << 10, 0)?);
        let write = Side::request(Op::Write, 1, &[near.sge()]).at(far.addr, far.rkey);
        a.post(&vec![write; 32])?;
        a.destroy()?;
        far.fill(9)?;
        far.check(9)?;
        env.finish()?;
    }
    Ok(())
}
