//! Costs of keys: look-ups, in this process; creating and destroying them, in the daemon.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use vrnic_abi::admin::{AllocMr, AllocMw, MwType, Opcode as Admin, Pages, RegMr, command};
use vrnic_abi::qp::Access;
use vrnic_abi::sq::{BindMwSeg, Flags, Opcode, RegMrSeg, SqWqe};
use vrnic_abi::{Key, Pdn, Qpn};
use vrnic_adapter::limits::MAX_MR;
use vrnic_adapter::memory::mtt::Table;
use vrnic_adapter::memory::tpt::{ByteRange, Mr, RemoteUse, Tpt, User};
use vrnic_figures::{Order, Page, Quantity, Subject};
use vrnic_testdriver::qp::{ALL, Setup};
use vrnic_testdriver::vmm::vfio::Guest;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U16;

use crate::rate::{Runs, await_batch};
use crate::report::Report;
use crate::rig::{LOG_WQES, Pair, Rig};

/// Look-ups of a run, which is short: a program that takes turns on the processor spoils few of
/// many.
const LOOK_UPS: u32 = 1 << 15;
/// Runs of look-ups for each repeat.
const LOOK_UP_RUNS: u32 = 50;
/// The bytes that are looked up.
const RANGE: ByteRange = ByteRange { addr: 100, len: 64 };
/// Pages of a fast registration.
const FAST_PAGES: u64 = 16;
/// Requests posted together.
const BATCH: u32 = 16;

/// Measures all of it.
///
/// # Errors
/// When the daemon refuses something.
pub(crate) fn measure(
    report: &mut Report,
    rig: &Rig,
    Runs { repeats, span }: Runs,
) -> anyhow::Result<()> {
    for (regions, step, order) in [
        (1, 1, Order::Repeated),
        (MAX_MR - 1, 1, Order::InTurn),
        // Prime, and far enough for another page each time: what is measured is the machine's
        // memory.
        (MAX_MR - 1, 611_953, Order::InNoOrder),
    ] {
        let ns = look_up(regions, step, repeats)?;
        report.figure(Subject::LookUp(regions, order), Quantity::Nanos, ns);
    }
    // Only the kernel registers memory with work requests.
    let kernel = Setup { kernel: true, ..Setup::default() };
    let mut pair = Pair::with(rig, kernel);
    for (subject, requests) in requests(&pair)? {
        let mut best = f64::INFINITY;
        for _ in 0..repeats {
            best = best.min(worker_ns(rig, &mut pair, &requests, span)?);
        }
        report.figure(subject, Quantity::WorkerNs, best);
    }
    let guest = &rig.guests[0];
    for (gib, page, shift) in [(1, Page::Small, 12), (1, Page::Large, 21), (64, Page::Large, 21)] {
        let ms = registration(guest, pair.a.pdn, gib << 30, shift, repeats)?;
        report.figure(Subject::Registration(gib, page), Quantity::Millis, ms);
    }
    Ok(())
}

/// Returns the shortest mean time of a remote look-up among this many regions. Each look-up is of
/// the region that is `step` regions further.
fn look_up(regions: u32, step: u32, repeats: u32) -> anyhow::Result<f64> {
    let (tpt, pdn) = (Tpt::default(), Pdn::new(1));
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let make = |key: Key| {
        let table = Table::run((u64::from(key.get()) << 12).into());
        Ok::<_, anyhow::Error>(Mr { key, pdn, access, length: 4096, table, ..Mr::default() })
    };
    let keys = (0..regions).map(|_| tpt.insert(make)?.context("a full table"));
    let keys = keys.collect::<anyhow::Result<Vec<Key>>>()?;
    let (first, last) = keys.first().zip(keys.last()).context("no key")?;
    let (first, last) = (first.get(), last.get());
    // Keys can then be computed, so finding one costs nothing here.
    ensure!(last - first == (regions - 1) << 8, "the keys of a new table follow each other");
    let user = User { pdn, qpn: Qpn::new(1), ..User::default() };
    let mut best = f64::INFINITY;
    let mut nth = 0;
    for _ in 0..repeats * LOOK_UP_RUNS {
        let start = Instant::now();
        for _ in 0..LOOK_UPS {
            nth = (nth + step) % regions;
            let key = Key::new(first + (nth << 8));
            let by = RemoteUse::new(Access::REMOTE_WRITE, 0);
            let found = tpt.check_remote(&(), key, user, RANGE, by);
            let found = found.ok().and_then(|window| window.resolve(0, RANGE.len));
            ensure!(black_box(found).is_some(), "a key is not found");
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(LOOK_UPS));
    }
    Ok(best)
}

/// The WQEs of requests.
type Sequence = (Subject, Vec<Vec<u8>>);

/// Sequences of requests about keys that can be posted over and over.
fn requests(pair: &Pair) -> anyhow::Result<Vec<Sequence>> {
    let (guest, pdn, buffer) = (&pair.a.guest, pair.a.pdn, pair.a.buffer);
    let access = ALL | Access::MW_BIND.bits();
    let region = guest.reg_flat(pdn, access, buffer, 1 << 20)?;
    let window = |kind| {
        let params = AllocMw::new(pdn, kind);
        guest.command::<command::AllocMw>(&params).map(|key| key.get())
    };
    let bind = |key| {
        let seg = BindMwSeg {
            length: 4096.into(),
            lkey: region.into(),
            access: Access::REMOTE_WRITE.bits().into(),
            ..BindMwSeg::default()
        };
        request(Opcode::BindMw, key, buffer, seg.as_bytes())
    };
    let fast = guest.command::<command::AllocMr>(&AllocMr::new(pdn, FAST_PAGES as u32))?.get();
    let list = guest.ram().alloc(FAST_PAGES * 8);
    // Every second page, so that they do not join.
    for nth in 0..FAST_PAGES {
        guest.ram().write(list + nth * 8, &(buffer + nth * 2 * 4096).to_le_bytes());
    }
    let seg = RegMrSeg {
        length: (FAST_PAGES * 4096).into(),
        table: list.into(),
        access: ALL.into(),
        page_count: (FAST_PAGES as u32).into(),
        page_shift: 12,
        ..RegMrSeg::default()
    };
    let (one, two) = (window(MwType::Type1)?, window(MwType::Type2)?);
    let end = |key| request(Opcode::LocalInv, key, 0, &[]);
    Ok(vec![
        (Subject::BindType1, vec![bind(one)]),
        (Subject::BindType2, vec![bind(two), end(two)]),
        (Subject::RegMr, vec![request(Opcode::RegMr, fast, 0, seg.as_bytes()), end(fast)]),
    ])
}

/// Returns a work request that concerns a key.
fn request(opcode: Opcode, key: u32, addr: u64, body: &[u8]) -> Vec<u8> {
    let header = SqWqe {
        opcode: opcode as u8,
        raddr: addr.into(),
        rkey: key.into(),
        count: U16::ZERO,
        ..SqWqe::default()
    };
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend(body);
    bytes
}

/// Returns the processor time of the worker in ns for each round of `requests`.
fn worker_ns(
    rig: &Rig,
    pair: &mut Pair,
    requests: &[Vec<u8>],
    span: Duration,
) -> anyhow::Result<f64> {
    let mut last = requests.last().context("no request")?.clone();
    *last.get_mut(9).context("header")? = Flags::SIGNALED.bits();
    let each = requests.len() as u32;
    let (mut posted, mut done) = (0u32, 0u32);
    let worker = rig.worker_time()?;
    let start = Instant::now();
    loop {
        let over = start.elapsed() >= span;
        while !over && posted - done + BATCH * each <= 1 << LOG_WQES {
            for nth in 0..BATCH * each {
                let bytes = match requests.get((nth % each) as usize) {
                    Some(bytes) if nth + 1 < BATCH * each => bytes,
                    _ => &last,
                };
                pair.a.store_encoded(bytes);
            }
            pair.a.ring();
            posted += BATCH * each;
        }
        if posted == done {
            break;
        }
        await_batch(pair);
        done += BATCH * each;
    }
    let ns = (rig.worker_time()? - worker) as f64;
    Ok(ns / f64::from(done / each))
}

/// Returns the shortest time of a registration in ms, from the command to its completion. All pages
/// are the same page, because the device reads only their addresses.
fn registration(guest: &Guest, pdn: u32, len: u64, shift: u8, repeats: u32) -> anyhow::Result<f64> {
    let count = len >> shift;
    let list = guest.ram().alloc(count * 8);
    for nth in 0..count {
        guest.ram().write(list + nth * 8, &(4u64 << 30).to_le_bytes());
    }
    let params = RegMr::new(pdn, ALL, 0, len, Pages::new(list, shift, 1));
    let mut best = f64::INFINITY;
    for _ in 0..repeats {
        let start = Instant::now();
        let key = guest.command::<command::RegMr>(&params)?.get();
        best = best.min(start.elapsed().as_secs_f64() * 1e3);
        guest.on_object(Admin::DeregMr, key)?;
    }
    Ok(best)
}
