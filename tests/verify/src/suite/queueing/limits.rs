//! Limits of the device: as many objects as it reports can be created, and no more. Tested only
//! where the limits are low enough for the machine's memory.
//!
//! Shows: resources

use anyhow::{Result, bail, ensure};
use rustix::io::Errno;

use crate::rpc::client::CallError;
use crate::rpc::values::CreateQp;
use crate::suite::Case;
use crate::suite::fixture::Env;
use vrnic_verbs::model::{QpCap, access, qp_type};

/// Number of objects of each kind that the kernel's own clients may have.
const KERNELS: u32 = 8;
/// Limits above this number are not tested.
const MAX_LIMIT: u32 = 4096;

pub(in crate::suite) fn cases() -> Vec<Case> {
    let cases = [
        Case::new("limits/pds", pds),
        Case::new("limits/cqs", cqs),
        Case::new("limits/qps", qps),
        Case::new("limits/regions_and_windows", mrs),
        Case::new("limits/srqs", srqs),
    ];
    cases.into_iter().map(|case| case.huge(true)).collect()
}

/// Creates objects until this fails with ENOMEM, at the limit minus the objects of others. Then
/// destroys one, after which one more can be created.
fn fill(
    (what, limit): (&str, u32),
    create: impl Fn() -> Result<u32, CallError>,
    destroy: impl Fn(u32) -> Result<(), CallError>,
) -> Result<()> {
    ensure!(limit <= MAX_LIMIT, "a limit of {limit} is too high to be tried");
    let mut made = Vec::new();
    let why = loop {
        match create() {
            Ok(handle) => made.push(handle),
            Err(why) => break why,
        }
        ensure!(made.len() as u32 <= limit, "{what}: more than the limit of {limit}");
    };
    let count = made.len() as u32;
    ensure!(count + KERNELS >= limit, "{what}: {count}, not {limit}: {why}");
    ensure!(why.errno() == Some(Errno::NOMEM.raw_os_error()), "{what}: {why}, not ENOMEM");
    let Some(last) = made.pop() else { bail!("{what}: none at all") };
    destroy(last)?;
    made.push(create()?);
    ensure!(create().is_err(), "{what}: one more than before");
    made.into_iter().try_for_each(|handle| Ok(destroy(handle)?))
}

fn pds(env: &Env) -> Result<()> {
    let agent = &env.a.agent;
    let limit = ("PDs", env.a.info.max_pd);
    fill(limit, || agent.alloc_pd(), |pd| agent.dealloc_pd(pd))
}

fn cqs(env: &Env) -> Result<()> {
    let agent = &env.a.agent;
    let create = || agent.create_cq(4, None, 0).map(|made| made.cq);
    fill(("CQs", env.a.info.max_cq), create, |cq| agent.destroy_cq(cq))
}

fn qps(env: &Env) -> Result<()> {
    let agent = &env.a.agent;
    let pd = agent.alloc_pd()?;
    let cq = agent.create_cq(4, None, 0)?.cq;
    for kind in [qp_type::RC, qp_type::UD] {
        let cap = QpCap { send_wr: 1, recv_wr: 1, send_sge: 1, recv_sge: 1, inline: 0 };
        let create = || agent.create_qp(CreateQp::new(pd, cq, kind, cap)).map(|made| made.qp);
        fill(("QPs", env.a.info.max_qp), create, |qp| agent.destroy_qp(qp))?;
    }
    Ok(())
}

/// Regions and windows are in one table, whose size both limits report.
fn mrs(env: &Env) -> Result<()> {
    let agent = &env.a.agent;
    let pd = agent.alloc_pd()?;
    let addr = agent.alloc_buffer(4096, 0)?.addr;
    let register = || agent.reg_mr(pd, addr, 64, access::ALL).map(|region| region.mr);
    fill(("regions", env.a.info.max_mr), register, |mr| agent.dereg_mr(mr))?;
    let window = || agent.alloc_mw(pd, 1).map(|window| window.mw);
    let free = |mw| agent.dealloc_mw(mw);
    fill(("windows", env.a.info.max_mw), window, free)
}

fn srqs(env: &Env) -> Result<()> {
    let agent = &env.a.agent;
    let pd = agent.alloc_pd()?;
    let create = || agent.create_srq(pd, 1, 1).map(|made| made.srq);
    fill(("SRQs", env.a.info.max_srq), create, |srq| agent.destroy_srq(srq))
}
