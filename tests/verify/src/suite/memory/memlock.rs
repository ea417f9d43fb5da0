//! Memory that the device uses is locked, and counts against the limit of its process
//! (RLIMIT_MEMLOCK) if there is one: regions, and the rings of queues.
//!
//! Shows: resources

use anyhow::{Result, ensure};
use rustix::io::Errno;

use crate::rpc::client::CallError;
use crate::rpc::values::CreateQp;
use crate::suite::Case;
use crate::suite::fixture::{End, Env};
use vrnic_verbs::model::{QpCap, access, qp_type};
use vrnic_verbs::prng::Rng;

const PAGE: u64 = 4096;
/// Limit of locked memory of a process.
const LIMIT: u64 = 64 * PAGE;
/// More objects than fit, if each locks at least a page.
const MANY: usize = (LIMIT / PAGE) as usize + 1;
/// Number of work requests of a queue that needs several pages.
const DEPTH: u32 = 256;

pub(in crate::suite) fn cases() -> Vec<Case> {
    vec![
        Case::new("memlock/regions", regions),
        Case::new("memlock/completion_queues", completion_queues),
        Case::new("memlock/queue_pairs", queue_pairs),
        Case::new("memlock/shared_receive_queues", shared_receive_queues),
        Case::new("memlock/another_process", another),
        Case::new("memlock/nothing_is_left", nothing_left),
    ]
}

/// Returns a process with a limit.
fn limited(env: &Env) -> Result<End> {
    let end = env.another_a()?;
    end.agent.limit_memory(LIMIT)?;
    Ok(end)
}

/// Creates objects until the limit refuses one with ENOMEM. Returns them.
fn fill(create: &impl Fn() -> Result<u32, CallError>) -> Result<Vec<u32>> {
    let mut made = Vec::new();
    loop {
        match create() {
            Ok(handle) => made.push(handle),
            Err(why) => {
                ensure!(why.errno() == Some(Errno::NOMEM.raw_os_error()), "{why}, not ENOMEM");
                return Ok(made);
            }
        }
        ensure!(made.len() < MANY, "{} fit into {LIMIT} bytes", made.len());
    }
}

/// Checks that as many objects can be created as fit, that the destruction of one makes room for
/// one, and that the destruction of all makes room for the same number again.
fn check(
    create: impl Fn() -> Result<u32, CallError>,
    destroy: impl Fn(u32) -> Result<(), CallError>,
) -> Result<usize> {
    let mut made = fill(&create)?;
    let count = made.len();
    let Some(last) = made.pop() else { anyhow::bail!("not even one fits") };
    destroy(last)?;
    made.push(create()?);
    ensure!(create().is_err(), "one more than before");
    made.into_iter().try_for_each(&destroy)?;
    let again = fill(&create)?;
    ensure!(again.len() == count, "{count} at first, {} when all had gone", again.len());
    again.into_iter().try_for_each(destroy)?;
    Ok(count)
}

fn regions(env: &Env) -> Result<()> {
    let agent = limited(env)?.agent;
    let pd = agent.alloc_pd()?;
    let length = LIMIT / 4;
    let addr = agent.alloc_buffer(length, 0)?.addr;
    let register = || agent.reg_mr(pd, addr, length, access::LOCAL_WRITE).map(|region| region.mr);
    let count = check(register, |mr| agent.dereg_mr(mr))?;
    ensure!(count == 4, "{count} regions of a quarter of the limit");
    // A region that does not fit leaves nothing.
    let buffer = agent.alloc_buffer(2 * LIMIT, 0)?;
    let large = agent.reg_mr(pd, buffer.addr, 2 * LIMIT, access::LOCAL_WRITE);
    ensure!(large.is_err(), "a region of twice the limit");
    ensure!(fill(&register)?.len() == 4, "the refused region counts against the limit");
    Ok(())
}

fn completion_queues(env: &Env) -> Result<()> {
    let agent = limited(env)?.agent;
    let create = || agent.create_cq(500, None, 0).map(|queue| queue.cq);
    check(create, |cq| agent.destroy_cq(cq)).map(|_| ())
}

fn queue_pairs(env: &Env) -> Result<()> {
    let agent = limited(env)?.agent;
    let pd = agent.alloc_pd()?;
    let cq = agent.create_cq(1, None, 0)?.cq;
    let cap = QpCap { send_wr: 1, recv_wr: DEPTH, send_sge: 1, recv_sge: 1, inline: 0 };
    let wanted = CreateQp::new(pd, cq, qp_type::RC, cap);
    let create = || agent.create_qp(wanted).map(|made| made.qp);
    check(create, |qp| agent.destroy_qp(qp)).map(|_| ())
}

fn shared_receive_queues(env: &Env) -> Result<()> {
    let agent = limited(env)?.agent;
    let pd = agent.alloc_pd()?;
    let create = || agent.create_srq(pd, DEPTH, 1).map(|queue| queue.srq);
    check(create, |srq| agent.destroy_srq(srq)).map(|_| ())
}

/// Each process has its own account, which ends with the process.
fn another(env: &Env) -> Result<()> {
    for _ in 0..2 {
        let [one, other] = [limited(env)?.agent, limited(env)?.agent];
        for agent in [&one, &other] {
            let pd = agent.alloc_pd()?;
            let addr = agent.alloc_buffer(LIMIT, 0)?.addr;
            agent.reg_mr(pd, addr, LIMIT, access::LOCAL_WRITE)?;
        }
    }
    Ok(())
}

/// Regions, CQs and QPs of many sizes come and go. Neither pinned nor locked memory is left, and
/// the memory of the program does not fall into more and more mappings.
fn nothing_left(env: &Env) -> Result<()> {
    const ROUNDS: u64 = 200;
    const LEN: u64 = 4 << 20;
    /// The allocator of the C library may keep some.
    const KEPT: u64 = 20;
    let agent = &env.a.agent;
    let pd = agent.alloc_pd()?;
    let memory = agent.alloc_buffer(LEN, 0)?;
    let mut rng = Rng::new(1);
    let mut round = || -> Result<()> {
        let at = rng.below(LEN - 1);
        let length = 1 + rng.below((LEN - at).min(300_000));
        let region = agent.reg_mr(pd, memory.addr + at, length, access::ALL)?;
        let cq = agent.create_cq(1 + rng.below(700) as i32, None, 0)?.cq;
        let depth = 1 + rng.below(60) as u32;
        let cap = QpCap { send_wr: depth, recv_wr: depth, send_sge: 1, recv_sge: 1, inline: 0 };
        let made = agent.create_qp(CreateQp::new(pd, cq, qp_type::RC, cap))?;
        agent.dereg_mr(region.mr)?;
        agent.destroy_qp(made.qp)?;
        Ok(agent.destroy_cq(cq)?)
    };
    round()?;
    let before = agent.memory_use()?;
    for _ in 0..ROUNDS {
        round()?;
    }
    let after = agent.memory_use()?;
    ensure!(
        (after.pinned, after.locked) == (before.pinned, before.locked),
        "{before:?}, {after:?}"
    );
    ensure!(after.mappings < before.mappings + KEPT, "{before:?}, {after:?}");
    Ok(())
}
