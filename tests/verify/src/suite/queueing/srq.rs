//! Shared receive queues.
//!
//! Shows: queues: shared receive queues

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;

use crate::rpc::values::{CreateQp, Posted, SrqInfo};
use crate::suite::Case;
use crate::suite::fixture::{Env, Link, Options, Region, Side, expect_errno, expect_full};
use vrnic_verbs::model::{AsyncEvent, Op, QpCap, RecvWr, State, Status, event, qp_type};

/// Number of receives of the queues of most cases.
const CAPACITY: u32 = 16;
/// Bytes of a receive.
const LEN: u32 = 64;
/// Time for which a case checks that no event comes, in milliseconds.
const QUIET_MS: u64 = 300;
/// Time for an event to come, in milliseconds.
const TIMEOUT_MS: u64 = 20_000;

/// Moves a QP of a shared queue to the error state.
type End = fn(&Shared<'_>, &Link) -> Result<()>;

pub(in crate::suite) fn cases() -> Vec<Case> {
    vec![
        Case::new("srq/three_qps_take_in_order", in_order),
        Case::new("srq/full_queue_refuses", full),
        Case::new("srq/many_laps", laps),
        Case::new("srq/limit_event", limit_event),
        Case::new("srq/last_wqe_event", last_wqe),
        Case::new("srq/one_last_wqe_event_for_each_end", each_end),
        Case::new("srq/an_end_before_the_beginning", ends_in_init),
        Case::new("srq/destroyed_qps_give_receives_back", destroyed),
        Case::new("srq/a_queue_changes_its_size", resized),
        Case::new("srq/sizes_and_users", sizes),
    ]
}

/// QPs of b that share a receive queue. Each is connected to a QP of a.
struct Shared<'a> {
    env: &'a Env,
    srq: SrqInfo,
    links: Vec<Link>,
    /// Memory of receives: `LEN` bytes for each wr_id.
    inbox: Region,
}

impl<'a> Shared<'a> {
    fn new(env: &'a Env, count: usize) -> Result<Self> {
        let agent = &env.b.agent;
        let pd = agent.alloc_pd()?;
        let srq = agent.create_srq(pd, CAPACITY, 1)?;
        let options = Options { srq: Some(srq.srq), ..Options::default() };
        let link = |_| {
            let a = Side::new(&env.a, &Options::default())?;
            Link::of(a, Side::within(&env.b, pd, &options)?)
        };
        let links: Vec<Link> = (0..count).map(link).collect::<Result<_>>()?;
        let inbox = links.first().context("no QP")?.b.region(u64::from(LEN) * 1024, 0)?;
        Ok(Self { env, srq, links, inbox })
    }

    fn try_post(&self, wr_ids: impl Iterator<Item = u64>) -> Result<Posted> {
        let receive = |wr_id| {
            let sge = self.inbox.part(wr_id * u64::from(LEN), LEN.into());
            RecvWr { wr_id, sges: vec![sge] }
        };
        let requests = wr_ids.map(receive).collect();
        Ok(self.env.b.agent.post_srq_recv(self.srq.srq, requests)?)
    }

    fn post(&self, wr_ids: impl Iterator<Item = u64>) -> Result<()> {
        match self.try_post(wr_ids)?.refused {
            None => Ok(()),
            Some(failure) => Err(anyhow::anyhow!("post_srq_recv refused: {failure}")),
        }
    }

    /// Sends over a link. The message must arrive in receive `wr_id`.
    fn send(&self, nth: usize, wr_id: u64) -> Result<()> {
        let Link { a, b } = &self.links[nth];
        let source = a.region(LEN.into(), 0)?;
        source.fill(wr_id + 100)?;
        a.run(Side::request(Op::Send, wr_id, &[source.sge()]), Status::Success)?;
        b.expect_received(wr_id, Status::Success)?;
        self.inbox.check_part(wr_id * u64::from(LEN), LEN.into(), wr_id + 100, 0)
    }

    fn arm(&self, limit: u32) -> Result<()> {
        Ok(self.env.b.agent.modify_srq(self.srq.srq, None, Some(limit))?)
    }

    fn limit(&self) -> Result<u32> {
        Ok(self.env.b.agent.query_srq(self.srq.srq)?.limit)
    }

    fn expect_no_event(&self) -> Result<()> {
        let event = self.env.b.agent.wait_async(QUIET_MS)?;
        ensure!(event.is_none(), "unexpected event {event:?}");
        Ok(())
    }
}

fn in_order(env: &Env) -> Result<()> {
    let shared = Shared::new(env, 3)?;
    shared.post(0..12)?;
    for (wr_id, nth) in [2, 0, 1, 1, 0, 2, 2, 2, 0, 1, 0, 1].into_iter().enumerate() {
        shared.send(nth, wr_id as u64)?;
    }
    Ok(())
}

/// Receives that do not fit are refused with ENOMEM, until completions have been polled.
fn full(env: &Env) -> Result<()> {
    let shared = Shared::new(env, 2)?;
    let room = u64::from(shared.srq.attr.max_wr);
    let posted = shared.try_post(0..room + 5)?;
    expect_full(&posted, room)?;
    shared.send(1, 0)?;
    shared.send(0, 1)?;
    shared.post(room..room + 2)?;
    ensure!(shared.try_post(0..1)?.count == 0, "room for a receive that is not free");
    Ok(())
}

fn laps(env: &Env) -> Result<()> {
    let shared = Shared::new(env, 2)?;
    let room = u64::from(shared.srq.attr.max_wr);
    for lap in 0..8 {
        let wr_ids = lap * room..(lap + 1) * room;
        shared.post(wr_ids.clone())?;
        for wr_id in wr_ids {
            shared.send((wr_id % 2) as usize, wr_id).with_context(|| format!("lap {lap}"))?;
        }
    }
    Ok(())
}

/// The event comes once, when fewer receives than the limit are left.
fn limit_event(env: &Env) -> Result<()> {
    let shared = Shared::new(env, 1)?;
    shared.post(0..6)?;
    shared.arm(5)?;
    ensure!(shared.limit()? == 5, "the limit is not armed");
    shared.send(0, 0)?;
    shared.expect_no_event()?;
    shared.send(0, 1)?;
    let event = shared.links[0].b.event()?;
    ensure!(
        event.kind == event::SRQ_LIMIT_REACHED && event.srq == Some(shared.srq.srq),
        "{event:?}, not the limit of the SRQ"
    );
    ensure!(shared.limit()? == 0, "the limit is still armed");
    shared.send(0, 2)?;
    shared.expect_no_event()?;
    // Three receives are left.
    shared.arm(4)?;
    let event = shared.links[0].b.event()?;
    ensure!(event.kind == event::SRQ_LIMIT_REACHED, "{event:?}: a limit above what is posted");
    Ok(())
}

/// A QP in the error state reports that it takes no more receives. The posted receives stay for the
/// others.
fn last_wqe(env: &Env) -> Result<()> {
    let shared = Shared::new(env, 2)?;
    shared.post(0..4)?;
    shared.send(0, 0)?;
    shared.links[0].b.to(State::Err)?;
    shared.links[0].b.expect_qp_event(event::QP_LAST_WQE_REACHED)?;
    shared.links[0].b.expect_quiet(QUIET_MS)?;
    shared.expect_no_event()?;
    shared.send(1, 1)
}

/// The event comes once, whatever has moved the QP to the error state.
fn each_end(env: &Env) -> Result<()> {
    let ends: [(&str, End); 5] = [
        ("the program", |_, link| link.b.to(State::Err)),
        ("the program, twice", |_, link| {
            link.b.to(State::Err)?;
            link.b.to(State::Err)
        }),
        ("the peer first", |_, link| {
            link.a.to(State::Err)?;
            link.b.to(State::Err)
        }),
        ("a wrong key of the peer", |shared, link| {
            let source = link.a.region(8, 0)?;
            let write = Side::request(Op::Write, 1, &[source.sge()]);
            link.a.run(write.at(shared.inbox.addr, !shared.inbox.rkey), Status::RemAccessErr)?;
            Ok(())
        }),
        ("too long a message", |_, link| {
            let source = link.a.region(2 * u64::from(LEN), 0)?;
            link.a.run(Side::request(Op::Send, 1, &[source.sge()]), Status::RemInvReqErr)?;
            Ok(())
        }),
    ];
    let shared = Shared::new(env, ends.len() + 1)?;
    shared.post(0..10)?;
    for ((why, end), link) in ends.iter().zip(&shared.links) {
        end(&shared, link)?;
        let mut events: Vec<_> = env.b.agent.wait_async(TIMEOUT_MS)?.into_iter().collect();
        while let Some(event) = env.b.agent.wait_async(QUIET_MS)? {
            events.push(event);
        }
        let ended = |event: &&AsyncEvent| {
            event.kind == event::QP_LAST_WQE_REACHED && event.qp == Some(link.b.qp)
        };
        let count = events.iter().filter(ended).count();
        ensure!(count == 1, "{why}: {count} events of the last receive among {events:?}");
    }
    // The message that was too long took the first receive.
    shared.send(ends.len(), 1)
}

/// A queue pair that fails in INIT has taken no receive: it raises one event of the last receive at
/// most, and takes none from the others.
fn ends_in_init(env: &Env) -> Result<()> {
    let shared = Shared::new(env, 1)?;
    shared.post(0..1)?;
    let pd = shared.links[0].b.pd;
    let options = Options { srq: Some(shared.srq.srq), ..Options::default() };
    let ends = Side::within(&env.b, pd, &options)?;
    ends.to_init()?;
    ends.to(State::Err)?;
    let mut events = Vec::new();
    while let Some(event) = env.b.agent.wait_async(QUIET_MS)? {
        events.push(event);
    }
    let last =
        |event: &AsyncEvent| event.kind == event::QP_LAST_WQE_REACHED && event.qp == Some(ends.qp);
    ensure!(events.len() <= 1 && events.iter().all(last), "the end in INIT raised {events:?}");
    ends.expect_quiet(QUIET_MS)?;
    shared.send(0, 0)
}

/// If completions were not polled and their QP is destroyed, their entries are freed.
fn destroyed(env: &Env) -> Result<()> {
    let shared = Shared::new(env, 2)?;
    let room = u64::from(shared.srq.attr.max_wr);
    shared.post(0..room)?;
    let Link { a, b } = &shared.links[0];
    let source = a.region(LEN.into(), 0)?;
    for wr_id in 0..room {
        a.run(Side::request(Op::Send, wr_id, &[source.sge()]), Status::Success)?;
    }
    ensure!(shared.try_post(0..1)?.count == 0, "room though no completion was polled");
    b.destroy()?;
    shared.post(0..room)?;
    shared.send(1, 0)
}

/// A queue grows and shrinks with the receives that are posted, but not below them and not below
/// the limit.
///
/// Shows: queues: shared receive queues change their size
fn resized(env: &Env) -> Result<()> {
    let shared = Shared::new(env, 2)?;
    let (agent, srq) = (&env.b.agent, shared.srq.srq);
    let (mut posted, mut sent) = (0, 0);
    for size in [64, 16, 8, 32] {
        agent.modify_srq(srq, Some(size), None)?;
        let room = u64::from(agent.query_srq(srq)?.max_wr);
        ensure!(room >= size.into(), "{room} entries instead of {size}");
        let full = shared.try_post(posted..posted + room + 1)?;
        expect_full(&full, room - (posted - sent))?;
        posted = sent + room;
        // Five receives are left when the next size is set.
        while posted - sent > 5 {
            shared.send((sent % 2) as usize, sent)?;
            sent += 1;
        }
    }
    let small = agent.modify_srq(srq, Some(4), None);
    expect_errno("fewer entries than receives", small, Errno::INVAL)?;
    shared.arm(5)?;
    while posted > sent {
        shared.send(0, sent)?;
        sent += 1;
    }
    shared.post(posted..posted + 8)?;
    shared.arm(7)?;
    (0..2).try_for_each(|nth| shared.send(1, posted + nth))?;
    agent.modify_srq(srq, Some(8), Some(6))?;
    // A limit beyond the new size is refused, and the receives are where the adapter reads them.
    let limit = agent.modify_srq(srq, Some(16), Some(100));
    expect_errno("a limit beyond the new size", limit, Errno::INVAL)?;
    (2..8).try_for_each(|nth| shared.send(0, posted + nth))?;
    shared.post(posted + 8..posted + 12)?;
    (8..12).try_for_each(|nth| shared.send(1, posted + nth))
}

/// Sizes beyond the device's are refused, and a queue in use cannot be destroyed.
fn sizes(env: &Env) -> Result<()> {
    let (agent, info) = (&env.b.agent, &env.b.info);
    let pd = agent.alloc_pd()?;
    for (max_wr, max_sge) in [(0, 1), (info.max_srq_wr + 1, 1), (1, info.max_srq_sge + 1)] {
        let refused = agent.create_srq(pd, max_wr, max_sge);
        expect_errno(&format!("SRQ of {max_wr} with {max_sge}"), refused, Errno::INVAL)?;
    }
    let (max_wr, max_sge) = (info.max_srq_wr, info.max_srq_sge);
    let largest = agent.create_srq(pd, max_wr, max_sge)?;
    ensure!(largest.attr.max_wr >= max_wr && largest.attr.max_sge >= max_sge, "{largest:?}");
    agent.destroy_srq(largest.srq)?;
    let shared = Shared::new(env, 1)?;
    let srq = shared.srq.srq;
    for max_wr in [0, info.max_srq_wr + 1] {
        let resize = agent.modify_srq(srq, Some(max_wr), None);
        expect_errno(&format!("a new size of {max_wr}"), resize, Errno::INVAL)?;
    }
    let limit = agent.modify_srq(srq, None, Some(1 << 20));
    expect_errno("a limit beyond the size", limit, Errno::INVAL)?;
    expect_errno("destroying in use", agent.destroy_srq(srq), Errno::BUSY)?;
    // The sizes of a receive queue that the QP does not have are ignored (ibv_create_qp(3)).
    let small = agent.create_srq(pd, 1, 1)?.srq;
    let cq = agent.create_cq(1, None, 0)?.cq;
    let cap = QpCap { send_wr: 1, recv_wr: u32::MAX, send_sge: 1, recv_sge: u32::MAX, inline: 0 };
    let wanted = CreateQp { srq: Some(small), ..CreateQp::new(pd, cq, qp_type::RC, cap) };
    agent.destroy_qp(agent.create_qp(wanted)?.qp)?;
    Ok(agent.destroy_srq(small)?)
}
