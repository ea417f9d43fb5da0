//! Scatter/gather lists and inline data.
//!
//! Shows: data

use anyhow::{Result, ensure};

use super::data::{MOVERS, expect_receive};
use crate::suite::Case;
use crate::suite::fixture::{Env, Link, Options, Region, Side};
use vrnic_verbs::model::{Op, SendWr, Sge, Status, flags};
use vrnic_verbs::prng::Rng;

/// Bytes of the messages that are cut into segments.
const LEN: u64 = 20_011;

/// Maximum number of segments that a device must support.
const MAX_SGE: u32 = 16;

pub(in crate::suite) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for op in MOVERS {
        for count in [1, 2, 3, 5, 8, 15, MAX_SGE] {
            let name = format!("segments/{}/{count}", op.name());
            cases.push(Case::new(name, move |env| scattered(env, op, count)));
        }
    }
    cases.push(Case::new("segments/empty_segments", empty_segments));
    cases.push(Case::new("segments/no_segments", no_segments));
    for op in MOVERS {
        let name = format!("segments/{}/no_bytes", op.name());
        cases.push(Case::new(name, move |env| no_bytes(env, op)));
    }
    for op in [Op::Send, Op::SendImm, Op::Write, Op::WriteImm] {
        let name = format!("inline/{}", op.name());
        cases.push(Case::new(name, move |env| inline(env, op)));
    }
    cases.push(Case::new("inline/two_segments", inline_two_segments));
    cases.push(Case::new("inline/too_long", inline_too_long));
    cases
}

fn options(count: u32) -> Options {
    Options::default().cap(|cap| (cap.send_sge, cap.recv_sge) = (count, count))
}

/// A message that is cut into `count` parts at odd places. The parts lie in a region in another
/// order, with gaps between them.
struct Cut {
    region: Region,
    /// Offset in the region and length of each part, in message order.
    parts: Vec<(u64, u64)>,
}

impl Cut {
    fn new(side: &Side, count: u32, seed: u64) -> Result<Self> {
        let mut rng = Rng::new(seed);
        let mut cuts: Vec<u64> = (1..count).map(|_| rng.below(LEN)).collect();
        cuts.extend([0, LEN]);
        cuts.sort_unstable();
        let lengths = cuts.windows(2).map(|w| w[1] - w[0]);
        // Placed from the end, so that the order of the message is not the order of addresses.
        let mut at = LEN + 37 * u64::from(count) + 64;
        let parts: Vec<_> = lengths
            .map(|len| {
                at -= len + 1 + rng.below(36);
                (at, len)
            })
            .collect();
        let region = side.region(LEN + 37 * u64::from(count) + 64, rng.below(4096))?;
        Ok(Self { region, parts })
    }

    fn sges(&self) -> Vec<Sge> {
        self.parts.iter().map(|(at, len)| self.region.part(*at, *len)).collect()
    }

    /// Calls `f` with the offset, the length and the position in the message of each part.
    fn each(&self, f: impl Fn(u64, u64, u64) -> Result<()>) -> Result<()> {
        let mut position = 0;
        for (at, len) in &self.parts {
            f(*at, *len, position)?;
            position += len;
        }
        Ok(())
    }

    fn fill(&self, background: u64, message: u64) -> Result<()> {
        self.region.fill(background)?;
        self.each(|at, len, position| self.region.fill_part(at, len, message, position))
    }

    /// Checks that the parts contain the message, and that the gaps are unchanged.
    fn check(&self, background: u64, message: u64) -> Result<()> {
        self.each(|at, len, position| self.region.check_part(at, len, message, position))?;
        let mut edges = self.parts.clone();
        edges.sort_unstable();
        let mut end = 0;
        for (at, len) in edges {
            self.region.check_part(end, at - end, background, end)?;
            end = at + len;
        }
        self.region.check_part(end, self.region.len - end, background, end)
    }
}

fn scattered(env: &Env, op: Op, count: u32) -> Result<()> {
    let link = Link::new(env, &options(count))?;
    let Link { a, b } = &link;
    ensure!(a.cap.send_sge >= count && b.cap.recv_sge >= count, "fewer segments than asked for");
    let near = Cut::new(a, count, 1000 + u64::from(count))?;
    let message = 0x5e9;
    match op {
        Op::Send | Op::SendImm => {
            let far = Cut::new(b, count, 2000 + u64::from(count))?;
            near.fill(1, message)?;
            far.fill(2, 3)?;
            b.post_recv(71, &far.sges())?;
            let mut request = Side::request(op, 70, &near.sges());
            request.imm = 0xa1b2_c3d4;
            a.run(request, Status::Success)?;
            expect_receive(&b.expect_received(71, Status::Success)?, op, LEN)?;
            far.check(2, message)
        }
        _ => one_sided(&link, op, &near, message),
    }
}

/// WRITE and READ: only the near side has segments.
fn one_sided(link: &Link, op: Op, near: &Cut, message: u64) -> Result<()> {
    let Link { a, b } = link;
    let far = b.region(LEN, 9)?;
    if op == Op::Read {
        near.fill(1, 2)?;
        far.fill(message)?;
    } else {
        near.fill(1, message)?;
        far.fill(2)?;
    }
    if op.takes_receive() {
        b.post_recv(71, &[])?;
    }
    let request = Side::request(op, 70, &near.sges()).at(far.addr, far.rkey);
    a.run(SendWr { imm: 0xa1b2_c3d4, ..request }, Status::Success)?;
    if op.takes_receive() {
        expect_receive(&b.expect_received(71, Status::Success)?, op, LEN)?;
    }
    far.check(message)?;
    near.check(1, message)
}

/// Segments of length zero among others. Their keys and addresses are arbitrary, and are ignored.
fn empty_segments(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &options(4))?;
    let (near, far) = (a.region(100, 0)?, b.region(100, 0)?);
    near.fill(5)?;
    let hole = Sge { addr: 1, length: 0, lkey: near.lkey };
    b.post_recv(71, &[hole, far.part(0, 33), hole, far.part(33, 67)])?;
    let list = [near.part(0, 50), hole, near.part(50, 50), hole];
    a.run(Side::request(Op::Send, 70, &list), Status::Success)?;
    b.expect_received(71, Status::Success)?;
    far.check(5)
}

/// Empty messages without any segment.
fn no_segments(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &options(4))?;
    let far = b.region(64, 0)?;
    far.fill(5)?;
    b.post_recv(71, &[])?;
    b.post_recv(72, &[far.sge()])?;
    for wr_id in [70, 71] {
        a.run(Side::request(Op::Send, wr_id, &[]), Status::Success)?;
        expect_receive(&b.expect_received(wr_id + 1, Status::Success)?, Op::Send, 0)?;
    }
    far.check(5)
}

/// Messages without bytes, without segments and with an empty one. No key and no address of them is
/// looked at (IBTA volume 1, 9.7.4.1.5).
///
/// Shows: data: messages without bytes, whose keys and addresses do not count
fn no_bytes(env: &Env, op: Op) -> Result<()> {
    const KEY: u32 = 0x7fff_ff00;
    let link = Link::new(env, &options(1))?;
    let far = link.b.region(8, 0)?;
    let empty = Sge { addr: 16, length: 0, lkey: KEY };
    for (segments, key) in [(&[][..], 0), (&[empty][..], 0), (&[empty][..], KEY)] {
        for receive in [&[][..], &[far.sge()][..]] {
            if op.takes_receive() {
                link.b.post_recv(71, receive)?;
            }
            let request = Side::request(op, 70, segments).at(u64::from(key) >> 3, key);
            link.a.run(SendWr { imm: 0xa1b2_c3d4, ..request }, Status::Success)?;
            if op.takes_receive() {
                expect_receive(&link.b.expect_received(71, Status::Success)?, op, 0)?;
            }
        }
    }
    link.prove()
}

/// Inline messages of all lengths up to the limit. The source has no valid key, and is overwritten
/// as soon as the post has returned.
fn inline(env: &Env, op: Op) -> Result<()> {
    let link = Link::new(env, &Options::default().cap(|cap| cap.inline = 96))?;
    let Link { a, b } = &link;
    ensure!(a.cap.inline >= 96, "{} bytes of inline data granted, 96 asked for", a.cap.inline);
    let limit = u64::from(a.cap.inline.min(480));
    let mut lengths = vec![0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 95, 96, limit];
    lengths.retain(|len| *len <= limit);
    for len in lengths {
        let (near, far) = (a.region(len, len % 5)?, b.region(len, len % 3)?);
        near.fill(len)?;
        far.fill(!len)?;
        if op.takes_receive() {
            b.post_recv(71, &[far.sge()])?;
        }
        let sge = Sge { lkey: 0xdead_0000, ..near.sge() };
        let mut request = Side::request(op, 70, &[sge]).at(far.addr, far.rkey);
        (request.flags, request.imm) = (request.flags | flags::INLINE, 0xa1b2_c3d4);
        let posted = a.end.agent.post_send(a.qp, vec![request], Some((near.buffer, 0, len)))?;
        ensure!(posted.refused.is_none(), "{len} inline bytes: {:?}", posted.refused);
        a.expect_sent(70, Status::Success)?;
        if op.takes_receive() {
            expect_receive(&b.expect_received(71, Status::Success)?, op, len)?;
        }
        far.check(len)?;
    }
    Ok(())
}

fn inline_two_segments(env: &Env) -> Result<()> {
    let options = Options::default().cap(|cap| (cap.inline, cap.send_sge) = (64, 3));
    let Link { a, b } = Link::new(env, &options)?;
    let (near, far) = (a.region(61, 1)?, b.region(61, 0)?);
    near.fill(8)?;
    b.post_recv(71, &[far.sge()])?;
    let list = [near.part(0, 7), near.part(7, 0), near.part(7, 54)];
    let mut request = Side::request(Op::Send, 70, &list);
    request.flags |= flags::INLINE;
    a.run(request, Status::Success)?;
    b.expect_received(71, Status::Success)?;
    far.check(8)
}

/// More inline data than the QP has room for is refused at once, and nothing is sent.
fn inline_too_long(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::default().cap(|cap| cap.inline = 32))?;
    let Link { a, b } = &link;
    let near = a.region(u64::from(a.cap.inline) + 1, 0)?;
    let mut request = Side::request(Op::Send, 70, &[near.sge()]);
    request.flags |= flags::INLINE;
    let posted = a.try_post(&[request])?;
    ensure!(posted.refused.is_some(), "{} bytes inline were accepted", near.len);
    b.expect_quiet(50)?;
    a.prove_towards(b)
}
