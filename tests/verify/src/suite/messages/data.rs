//! Every operation that moves data, with many sizes and alignments. Every byte is compared.
//!
//! Shows: data

use anyhow::{Result, ensure};

use crate::suite::Case;
use crate::suite::fixture::{Env, Link, Options, Region, Side};
use vrnic_verbs::model::{Op, SendWr, Status, Wc, wc_opcode};

/// Operations that move data.
pub(in crate::suite) const MOVERS: [Op; 5] =
    [Op::Send, Op::SendImm, Op::Write, Op::WriteImm, Op::Read];

/// The operations that iWARP has. Its SENDs have no immediate data.
const PLAIN: [Op; 4] = [Op::Send, Op::Write, Op::WriteImm, Op::Read];

/// Returns the operations that move data between these ends.
pub(in crate::suite) fn movers(env: &Env) -> &'static [Op] {
    if env.a.cm.is_some() { &PLAIN } else { &MOVERS }
}

/// Sizes around the boundaries in implementations: words, cache lines, MTUs, pages, 64 KiB, and
/// messages of many pages.
const SIZES: [(&str, u64); 21] = [
    ("0", 0),
    ("1", 1),
    ("2", 2),
    ("3", 3),
    ("7", 7),
    ("8", 8),
    ("63", 63),
    ("64", 64),
    ("65", 65),
    ("1023", 1023),
    ("1024", 1024),
    ("1025", 1025),
    ("4095", 4095),
    ("4096", 4096),
    ("4097", 4097),
    ("64KiB-1", 65535),
    ("64KiB", 65536),
    ("64KiB+1", 65537),
    ("1MiB", 1 << 20),
    ("64MiB", 64 << 20),
    ("1GiB", 1 << 30),
];

/// Offsets of the first byte in its page.
const ALIGNMENTS: [u64; 6] = [0, 1, 7, 8, 63, 4095];

pub(in crate::suite) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for op in MOVERS {
        for (name, size) in SIZES {
            // Immediate data does not depend on the length.
            if size >= 1 << 30 && op.has_immediate() {
                continue;
            }
            let case = Case::new(format!("data/{}/{name}", op.name()), move |env| {
                let link = Link::new(env, &Options::default())?;
                transfer(&link, op, size, size * 7 + 3, size * 5 + 1)
            });
            cases.push(case.huge(size >= 1 << 30));
        }
        cases.push(Case::new(format!("data/{}/alignments", op.name()), move |env| {
            alignments(env, op)
        }));
        cases.push(Case::new(format!("data/{}/reverse", op.name()), move |env| {
            let link = Link::new(env, &Options::default())?.reversed();
            transfer(&link, op, 10_000, 5, 9)
        }));
    }
    cases
}

fn alignments(env: &Env, op: Op) -> Result<()> {
    let link = Link::new(env, &Options::default())?;
    for from in ALIGNMENTS {
        for to in ALIGNMENTS {
            transfer(&link, op, 4096 + 13, from, to)?;
        }
    }
    Ok(())
}

/// Moves `size` bytes from a to b (READ: from b to a), and checks completions and contents.
pub(in crate::suite) fn transfer(link: &Link, op: Op, size: u64, from: u64, to: u64) -> Result<()> {
    let Link { a, b } = link;
    let (near, far) = (a.region(size, from)?, b.region(size, to)?);
    let (source, target) = if op == Op::Read { (&far, &near) } else { (&near, &far) };
    let seed = size ^ (from << 40) ^ (to << 52) ^ 0xda7a;
    source.fill(seed)?;
    target.fill(!seed)?;
    if op.takes_receive() {
        b.post_recv(71, &[far.sge()])?;
    }
    let request = Side::request(op, 70, &[near.sge()]).at(far.addr, far.rkey);
    a.post(&[SendWr { imm: 0xa1b2_c3d4, ..request }])?;
    expect_both(link, op, size)?;
    target.check(seed)?;
    source.check(seed)?;
    [&near, &far].into_iter().try_for_each(Region::end)
}

/// Checks the completion of request 70 of a, and of receive 71 of b if there is one.
fn expect_both(link: &Link, op: Op, size: u64) -> Result<()> {
    let wc = link.a.expect_sent(70, Status::Success)?;
    ensure!(wc.opcode == op.wc_opcode(), "send completion opcode {}", wc.opcode);
    ensure!(op != Op::Read || u64::from(wc.byte_len) == size, "READ byte_len {}", wc.byte_len);
    if op.takes_receive() {
        expect_receive(&link.b.expect_received(71, Status::Success)?, op, size)?;
    }
    Ok(())
}

/// Checks opcode, length and immediate of a receive completion.
pub(in crate::suite) fn expect_receive(wc: &Wc, op: Op, size: u64) -> Result<()> {
    let opcode = match op {
        Op::WriteImm => wc_opcode::RECV_RDMA_WITH_IMM,
        _ => wc_opcode::RECV,
    };
    let imm = op.has_immediate().then_some(0xa1b2_c3d4);
    ensure!(wc.opcode == opcode, "receive completion opcode {}, not {opcode}", wc.opcode);
    ensure!(u64::from(wc.byte_len) == size, "receive byte_len {}, not {size}", wc.byte_len);
    ensure!(wc.imm == imm, "immediate {:x?}, not {imm:x?}", wc.imm);
    Ok(())
}
