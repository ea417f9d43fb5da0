//! XRC: targets and shared receive queues of a domain that processes share through a file (IBTA
//! volume 1, annex A14).
//!
//! Shows: queues

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::io::Errno;

use crate::rpc::client::CallError;
use crate::rpc::values::{CreateQp, XrcSrqInfo};
use crate::suite::Case;
use crate::suite::fixture::{End, Env, Options, Region, Side, expect_errno};
use vrnic_verbs::model::{
    Op, QpAttr, QpCap, RecvWr, SendWr, State, Status, access, event, flags, mask, qp_type,
};

/// A file that all processes can open. A domain is named by the file. Its contents do not matter.
const FILE: &str = "/proc/self/exe";
const OTHER_FILE: &str = "/etc/passwd";
/// `O_CREAT` and `O_EXCL`: create the domain if there is none, and fail if there is one.
const CREATE: i32 = 0o100;
const EXCLUSIVE: i32 = 0o200;
/// Bytes of a receive.
const LEN: u64 = 64;
/// Time limit for a completion or event, in milliseconds.
const TIMEOUT_MS: u64 = 30_000;

pub(in crate::suite) fn cases() -> Vec<Case> {
    vec![
        Case::new("xrc/operations", operations),
        Case::new("xrc/chosen_by_number", chosen),
        Case::new("xrc/shared_by_two_processes", shared),
        Case::new("xrc/creator_killed", creator_killed),
        Case::new("xrc/target_ends_with_its_last_user", last_user),
        Case::new("xrc/opening_and_closing", opening),
        Case::new("xrc/srq_of_another_domain", foreign_srq),
        Case::new("xrc/failure_of_a_shared_target", events),
        Case::new("xrc/sizes_of_receives_are_ignored", ignored),
    ]
}

fn open(end: &End, path: &str, flags: i32) -> Result<u32, CallError> {
    end.agent.open_xrcd(Some(path.to_owned()), flags)
}

/// An SRQ of a process in a domain, with its own CQ.
struct Inbox {
    end: End,
    cq: u32,
    srq: XrcSrqInfo,
    memory: Region,
}

impl Inbox {
    fn new(end: &End, xrcd: u32) -> Result<Self> {
        let pd = end.agent.alloc_pd()?;
        let cq = end.agent.create_cq(64, None, 0)?.cq;
        let srq = end.agent.create_xrc_srq(pd, xrcd, cq, 16, 1)?;
        let memory = Region::new(end, pd, LEN, 0, access::ALL)?;
        Ok(Self { end: end.clone(), cq, srq, memory })
    }

    fn post(&self, wr_id: u64) -> Result<()> {
        let requests = vec![RecvWr { wr_id, sges: vec![self.memory.sge()] }];
        let posted = self.end.agent.post_srq_recv(self.srq.info.srq, requests)?;
        ensure!(posted.refused.is_none(), "{posted:?}");
        Ok(())
    }

    /// Returns a request of `from` to this SRQ.
    fn request(&self, op: Op, wr_id: u64, region: &Region) -> SendWr {
        let request = Side::request(op, wr_id, &[region.sge()]);
        let srq = Some(self.srq.number);
        SendWr { srq, ..request.at(self.memory.addr, self.memory.rkey) }
    }

    /// Checks that the next receive that completes is this one, with this target.
    fn expect(&self, wr_id: u64, target: u32, imm: Option<u32>) -> Result<()> {
        let done = self.end.agent.poll(self.cq, 1, TIMEOUT_MS)?;
        let fits = |wc: &vrnic_verbs::model::Wc| {
            (wc.wr_id, wc.status, wc.qpn, wc.imm) == (wr_id, 0, target, imm)
        };
        ensure!(done.iter().any(fits), "{done:?}, not receive {wr_id} by QP {target}, {imm:x?}");
        Ok(())
    }

    /// Sends a message through an initiator. Checks that it arrives.
    fn prove(&self, from: &Side, target: u32, seed: u64) -> Result<()> {
        let source = from.region(LEN, 0)?;
        source.fill(seed)?;
        self.post(seed)?;
        from.run(self.request(Op::Send, seed, &source), Status::Success)?;
        self.expect(seed, target, None)?;
        self.memory.check(seed)?;
        source.deregister()
    }
}

/// Returns an initiator, in Reset.
fn initiator(end: &End) -> Result<Side> {
    let options = Options { qp_type: qp_type::XRC_SEND, ..Options::impatient() };
    Side::new(end, &options.cap(|cap| cap.inline = 64))
}

/// Returns a target of a domain of `end`, connected to an initiator.
fn target(end: &End, xrcd: u32, from: &Side) -> Result<(u32, u32)> {
    let made = end.agent.create_target(xrcd)?;
    let towards = QpAttr {
        dest_qpn: from.qpn,
        dgid: from.end.info.gid,
        sgid_index: end.info.gid_index,
        ..from.attr_towards(end, 0)
    };
    let steps = [(State::Init, mask::TO_INIT), (State::Rtr, mask::TO_RTR)];
    for (state, mask) in steps {
        let attr = QpAttr { state: state as u32, ..towards };
        end.agent.modify_qp(made.qp, attr, mask)?;
    }
    let rts = QpAttr { state: State::Rts as u32, ..towards };
    let mask = mask::STATE | mask::TIMEOUT | mask::SQ_PSN;
    end.agent.modify_qp(made.qp, rts, mask)?;
    connect(from, end, made.qpn)?;
    Ok((made.qp, made.qpn))
}

/// Moves an initiator from Reset to RTS. It needs the attributes of its own half of a connection.
fn connect(from: &Side, peer: &End, qpn: u32) -> Result<()> {
    let attr = from.attr_towards(peer, qpn);
    let rtr = mask::STATE | mask::AV | mask::PATH_MTU | mask::DEST_QPN | mask::RQ_PSN;
    from.modify(State::Init, &attr, mask::TO_INIT)?;
    from.modify(State::Rtr, &attr, rtr)?;
    from.modify(State::Rts, &attr, mask::TO_RTS)?;
    Ok(())
}

/// Every operation that XRC has, and the fields of its completions.
fn operations(env: &Env) -> Result<()> {
    let xrcd = open(&env.b, FILE, CREATE)?;
    let inbox = Inbox::new(&env.b, xrcd)?;
    let a = initiator(&env.a)?;
    let (_, qpn) = target(&env.b, xrcd, &a)?;
    let near = a.region(LEN, 0)?;
    for (n, op) in [Op::Send, Op::SendImm, Op::WriteImm, Op::Write, Op::Read].iter().enumerate() {
        for inline in [0, flags::INLINE] {
            let seed = 10 + 2 * n as u64 + u64::from(inline != 0);
            let (source, sink) =
                if *op == Op::Read { (&inbox.memory, &near) } else { (&near, &inbox.memory) };
            if *op == Op::Read && inline != 0 {
                continue;
            }
            source.fill(seed)?;
            let imm = op.has_immediate().then_some(0x0102_0304);
            if op.takes_receive() {
                inbox.post(seed)?;
            }
            let request = inbox.request(*op, seed, &near);
            let flags = request.flags | inline;
            let sent =
                a.run(SendWr { imm: imm.unwrap_or(0), flags, ..request }, Status::Success)?;
            ensure!(sent.opcode == op.wc_opcode(), "{op:?}: {sent:?}");
            if op.takes_receive() {
                inbox.expect(seed, qpn, imm)?;
            }
            sink.check(seed)?;
        }
    }
    atomics(&a, &inbox)
}

/// Tests that the word at the start of the inbox is added to and swapped, and that its old value is
/// returned.
fn atomics(a: &Side, inbox: &Inbox) -> Result<()> {
    let old = a.region(8, 0)?;
    inbox.memory.set_word(0, 40)?;
    for (op, compare_add, swap, before, after) in
        [(Op::FetchAdd, 2, 0, 40, 42), (Op::CmpSwp, 42, 7, 42, 7), (Op::CmpSwp, 42, 9, 7, 7)]
    {
        a.run(SendWr { compare_add, swap, ..inbox.request(op, 60, &old) }, Status::Success)?;
        let (was, is) = (old.word(0)?, inbox.memory.word(0)?);
        ensure!((was, is) == (before, after), "{op:?}: {was} became {is}");
    }
    Ok(())
}

/// Each message of a connection reaches the SRQ that it names, in any order.
fn chosen(env: &Env) -> Result<()> {
    let xrcd = open(&env.b, FILE, CREATE)?;
    let inboxes = [Inbox::new(&env.b, xrcd)?, Inbox::new(&env.b, xrcd)?, Inbox::new(&env.b, xrcd)?];
    let a = initiator(&env.a)?;
    let (_, qpn) = target(&env.b, xrcd, &a)?;
    for (seed, nth) in [2, 0, 0, 1, 2, 1, 0, 2].into_iter().enumerate() {
        inboxes[nth].prove(&a, qpn, seed as u64)?;
    }
    Ok(())
}

/// One process creates the domain and the target. Another process opens the domain through the same
/// file. Messages of the connection reach its SRQ, and the SRQ of the first process.
fn shared(env: &Env) -> Result<()> {
    let other = env.another_b()?;
    let (xrcd, again) = (open(&env.b, FILE, CREATE)?, open(&other, FILE, CREATE)?);
    let (mine, theirs) = (Inbox::new(&env.b, xrcd)?, Inbox::new(&other, again)?);
    let a = initiator(&env.a)?;
    let (_, qpn) = target(&env.b, xrcd, &a)?;
    for seed in 0..4 {
        theirs.prove(&a, qpn, 2 * seed)?;
        mine.prove(&a, qpn, 2 * seed + 1)?;
    }
    // When the SRQ of the other process is destroyed, the connection still works.
    other.agent.destroy_srq(theirs.srq.info.srq)?;
    other.agent.close_xrcd(again)?;
    mine.prove(&a, qpn, 20)
}

/// Returns a domain that `first` has created and b has opened, an SRQ of b in it, and an initiator
/// with its target, which belongs to `first`.
fn lent(env: &Env, first: &End) -> Result<(u32, Inbox, Side, u32)> {
    let xrcd = open(first, FILE, CREATE)?;
    let again = open(&env.b, FILE, 0)?;
    let inbox = Inbox::new(&env.b, again)?;
    let a = initiator(&env.a)?;
    let (_, qpn) = target(first, xrcd, &a)?;
    Ok((again, inbox, a, qpn))
}

/// The domain can have another target, which belongs to b.
fn another_target(env: &Env, xrcd: u32, inbox: &Inbox, seed: u64) -> Result<()> {
    let fresh = initiator(&env.a)?;
    let (_, qpn) = target(&env.b, xrcd, &fresh)?;
    inbox.prove(&fresh, qpn, seed)
}

/// The process that has created the domain and the target is killed. A process that has opened both
/// goes on, and closes them at its end.
fn creator_killed(env: &Env) -> Result<()> {
    let first = env.another_b()?;
    let (again, inbox, a, qpn) = lent(env, &first)?;
    let opened = env.b.agent.open_target(again, qpn)?;
    ensure!(opened.qpn == qpn, "target {qpn} was opened as {}", opened.qpn);
    inbox.prove(&a, qpn, 1)?;
    kill(&first)?;
    inbox.prove(&a, qpn, 2)?;
    let state = env.b.agent.query_qp(opened.qp)?.state;
    ensure!(state == State::Rts as u32, "state {state}");
    env.b.agent.destroy_qp(opened.qp)?;
    expect_gives_up(&a, &inbox)?;
    // The domain exists as long as a process has it open.
    another_target(env, again, &inbox, 3)
}

fn kill(end: &End) -> Result<()> {
    ensure!(end.agent.crash().is_err(), "the agent survived");
    // The kernel needs some time to end the process.
    sleep(Duration::from_secs(5));
    Ok(())
}

/// The target does not answer the initiator any more.
fn expect_gives_up(a: &Side, inbox: &Inbox) -> Result<()> {
    let source = a.region(LEN, 0)?;
    a.run(inbox.request(Op::Send, 99, &source), Status::RetryExcErr).map(drop)
}

/// A target that no other process has opened ends with its process. The domain and its SRQs stay,
/// and can be used with another target.
fn last_user(env: &Env) -> Result<()> {
    let first = env.another_b()?;
    let (again, inbox, a, qpn) = lent(env, &first)?;
    inbox.prove(&a, qpn, 1)?;
    kill(&first)?;
    expect_gives_up(&a, &inbox)?;
    let refused = env.b.agent.open_target(again, qpn);
    expect_errno("opening a target that has ended", refused, Errno::INVAL)?;
    another_target(env, again, &inbox, 2)
}

/// The rules of `ibv_open_xrcd` and `ibv_close_xrcd`. A domain ends when the last process closes
/// it.
fn opening(env: &Env) -> Result<()> {
    let other = env.another_b()?;
    expect_errno("a domain that is not there", open(&other, FILE, 0), Errno::AGAIN)?;
    let xrcd = open(&env.b, FILE, CREATE | EXCLUSIVE)?;
    let second = open(&other, FILE, CREATE | EXCLUSIVE);
    expect_errno("a domain that is there", second, Errno::INVAL)?;
    let elsewhere = open(&other, OTHER_FILE, CREATE | EXCLUSIVE)?;
    let again = open(&other, FILE, 0)?;
    let inbox = Inbox::new(&env.b, xrcd)?;
    let in_use = env.b.agent.close_xrcd(xrcd);
    expect_errno("closing it with an SRQ in it", in_use, Errno::BUSY)?;
    env.b.agent.destroy_srq(inbox.srq.info.srq)?;
    env.b.agent.close_xrcd(xrcd)?;
    // The other process keeps the domain.
    let xrcd = open(&env.b, FILE, 0)?;
    for (end, xrcd) in [(&other, again), (&other, elsewhere), (&env.b, xrcd)] {
        end.agent.close_xrcd(xrcd)?;
    }
    for path in [FILE, OTHER_FILE] {
        expect_errno("a domain that all have closed", open(&env.b, path, 0), Errno::AGAIN)?;
    }
    Ok(())
}

/// A request for an SRQ of another domain is refused, and the SRQ keeps its receives.
fn foreign_srq(env: &Env) -> Result<()> {
    let xrcd = open(&env.b, FILE, CREATE)?;
    let elsewhere = open(&env.b, OTHER_FILE, CREATE)?;
    let (inbox, foreign) = (Inbox::new(&env.b, xrcd)?, Inbox::new(&env.b, elsewhere)?);
    foreign.post(1)?;
    foreign.memory.fill(5)?;
    let a = initiator(&env.a)?;
    let (_, qpn) = target(&env.b, xrcd, &a)?;
    inbox.prove(&a, qpn, 2)?;
    let source = a.region(LEN, 0)?;
    a.run(foreign.request(Op::Send, 3, &source), Status::RemInvReqErr)?;
    foreign.memory.check(5)?;
    let done = env.b.agent.poll(foreign.cq, 1, 100)?;
    ensure!(done.is_empty(), "{done:?}");
    let fresh = initiator(&env.a)?;
    let (_, qpn) = target(&env.b, elsewhere, &fresh)?;
    fresh.run(foreign.request(Op::Send, 4, &fresh.region(LEN, 0)?), Status::Success)?;
    foreign.expect(1, qpn, None)
}

/// The process that has created a target gets the event of its failure. A process that has opened
/// the target sees its state. (Linux sends openers no events: `ib_uverbs_open_qp` sets no event
/// file.)
fn events(env: &Env) -> Result<()> {
    let other = env.another_b()?;
    let (xrcd, again) = (open(&env.b, FILE, CREATE)?, open(&other, FILE, CREATE)?);
    let inbox = Inbox::new(&env.b, xrcd)?;
    let a = initiator(&env.a)?;
    let (qp, qpn) = target(&env.b, xrcd, &a)?;
    let opened = other.agent.open_target(again, qpn)?;
    inbox.prove(&a, qpn, 1)?;
    let mut bad = inbox.request(Op::Write, 2, &a.region(LEN, 0)?);
    bad.rkey ^= 0x100;
    a.run(bad, Status::RemAccessErr)?;
    let event = env.b.agent.wait_async(TIMEOUT_MS)?;
    ensure!(
        event.as_ref().is_some_and(|e| e.kind == event::QP_ACCESS_ERR && e.qp == Some(qp)),
        "{event:?}, not an access error of QP {qp}"
    );
    let state = other.agent.query_qp(opened.qp)?.state;
    ensure!(state == State::Err as u32, "state {state}");
    Ok(())
}

/// An initiator receives nothing, so the sizes of its receive queue are ignored (ibv_create_qp(3)).
///
/// Shows: queues: an XRC domain, with sizes of receives that are ignored
fn ignored(env: &Env) -> Result<()> {
    let agent = &env.a.agent;
    let (pd, cq) = (agent.alloc_pd()?, agent.create_cq(1, None, 0)?.cq);
    let cap = QpCap { send_wr: 1, recv_wr: u32::MAX, send_sge: 1, recv_sge: u32::MAX, inline: 0 };
    let made = agent.create_qp(CreateQp::new(pd, cq, qp_type::XRC_SEND, cap))?;
    ensure!((made.cap.recv_wr, made.cap.recv_sge) == (0, 0), "{:?}", made.cap);
    Ok(agent.destroy_qp(made.qp)?)
}
