//! Random operations: kinds, lengths, places, segments and signaling, many at a time. Each byte of
//! both sides is known before and after.
//!
//! Shows: data

use anyhow::{Context, Result, ensure};

use super::data::movers;
use crate::suite::Case;
use crate::suite::fixture::{Env, Link, Options, Region, Side};
use vrnic_verbs::model::{Op, SendWr, Sge, flags};
use vrnic_verbs::prng::Rng;

/// Number of operations in a round. Each has its own slot on both sides, so their order does not
/// matter.
const SLOTS: u64 = 16;
/// Bytes of a slot.
const SLOT: u64 = 16 << 10;
/// Rounds of a case.
const ROUNDS: u64 = 12;
/// Maximum number of segments of a request.
const SEGMENTS: u64 = 4;

/// Contents of the two regions before a round.
const NEAR: u64 = 0xaaaa;
const FAR: u64 = 0xbbbb;

pub(in crate::suite) fn cases() -> Vec<Case> {
    (1..=4)
        .map(|seed| Case::new(format!("stress/random_{seed}"), move |env| random(env, seed)))
        .collect()
}

/// An operation of a round: `len` bytes at `near` of the requester's region, and at `far` of the
/// responder's region.
struct Step {
    op: Op,
    near: u64,
    far: u64,
    len: u64,
}

impl Step {
    fn new(slot: u64, ops: &[Op], rng: &mut Rng) -> Self {
        let op = ops[rng.below(ops.len() as u64) as usize];
        // Short messages are as frequent as long ones.
        let max_len = 1 << rng.below(15);
        let len = rng.below(max_len);
        let place = |rng: &mut Rng| slot * SLOT + rng.below(SLOT - len);
        Self { op, near: place(rng), far: place(rng), len }
    }

    /// Returns the segments of the operation in `region`, cut at random places.
    fn cut(&self, region: &Region, at: u64, rng: &mut Rng) -> Vec<Sge> {
        let mut cuts: Vec<_> = (0..rng.below(SEGMENTS)).map(|_| rng.below(self.len + 1)).collect();
        cuts.extend([0, self.len]);
        cuts.sort_unstable();
        cuts.windows(2).map(|w| region.part(at + w[0], w[1] - w[0])).collect()
    }

    /// Returns whether the operation writes to the responder's region.
    fn writes_far(&self) -> bool {
        self.op != Op::Read
    }
}

fn random(env: &Env, seed: u64) -> Result<()> {
    let segments = SEGMENTS as u32;
    let options = Options::default().cap(|cap| (cap.send_sge, cap.recv_sge) = (segments, segments));
    let mut link = Link::new(env, &options)?;
    let mut rng = Rng::new(seed);
    for number in 0..ROUNDS {
        round(&link, movers(env), &mut rng).with_context(|| format!("round {number}"))?;
        link = link.reversed();
    }
    Ok(())
}

fn round(link: &Link, ops: &[Op], rng: &mut Rng) -> Result<()> {
    let Link { a, b } = link;
    let misalign = rng.below(4096);
    let (near, far) = (a.region(SLOTS * SLOT, misalign)?, b.region(SLOTS * SLOT, misalign / 3)?);
    near.fill(NEAR)?;
    far.fill(FAR)?;
    let steps: Vec<_> = (0..SLOTS).map(|slot| Step::new(slot, ops, rng)).collect();
    let mut requests = Vec::new();
    for (wr_id, step) in steps.iter().enumerate() {
        let last = wr_id + 1 == steps.len();
        requests.push(request(step, wr_id as u64, last, (&near, &far), rng));
        match step.op {
            Op::Send | Op::SendImm => b.post_recv(wr_id as u64, &step.cut(&far, step.far, rng))?,
            Op::WriteImm => b.post_recv(wr_id as u64, &[])?,
            _ => {}
        }
    }
    let signaled = requests.iter().filter(|r| r.flags & flags::SIGNALED != 0).count();
    let receives = steps.iter().filter(|s| s.op.takes_receive()).count();
    a.post(&requests)?;
    for wc in a.sent(signaled)?.iter().chain(&b.received(receives)?) {
        ensure!(wc.status == 0, "{wc:?}");
    }
    steps.iter().try_for_each(|step| check(step, &near, &far))?;
    near.end()?;
    far.end()
}

fn request(
    step: &Step,
    wr_id: u64,
    last: bool,
    (near, far): (&Region, &Region),
    rng: &mut Rng,
) -> SendWr {
    let mut request = Side::request(step.op, wr_id, &step.cut(near, step.near, rng))
        .at(far.addr + step.far, far.rkey);
    if !last && rng.below(2) == 0 {
        request.flags = 0;
    }
    if rng.below(4) == 0 {
        request.flags |= flags::FENCE;
    }
    request
}

/// Checks that the slot of the written side contains the message at its place and is otherwise
/// unchanged, and that the slot of the other side is unchanged.
fn check(step: &Step, near: &Region, far: &Region) -> Result<()> {
    let Step { len, .. } = *step;
    let (from, to) = if step.writes_far() {
        ((near, step.near, NEAR), (far, step.far, FAR))
    } else {
        ((far, step.far, FAR), (near, step.near, NEAR))
    };
    let whole = |region: &Region, at: u64, seed| {
        let slot = at / SLOT * SLOT;
        region.check_part(slot, SLOT, seed, slot)
    };
    whole(from.0, from.1, from.2)?;
    let (region, at, seed) = to;
    let (slot, end) = (at / SLOT * SLOT, at / SLOT * SLOT + SLOT);
    let what = || format!("{} of {len} bytes to {at:#x}", step.op.name());
    region.check_part(slot, at - slot, seed, slot).with_context(what)?;
    region.check_part(at, len, from.2, from.1).with_context(what)?;
    region.check_part(at + len, end - at - len, seed, at + len).with_context(what)
}
