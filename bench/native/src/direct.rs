//! Device memory, and direct transfers of a controller that is a program next to the daemon.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use vrnic_abi::admin::{ArmRange, command};
use vrnic_abi::direct::{Await, Direction, MAPPED_LEN_MAX, Notice, RANGE_LEN};
use vrnic_abi::pci::{BAR_UAR, BAR_WINDOW};
use vrnic_abi::regs;
use vrnic_abi::sq::{Flags, Opcode};
use vrnic_abi::uar::DEVICE_MEMORY_OFFSET;
use vrnic_device::memory::mapping::{Mapping, Order};
use vrnic_figures::{Operation, Quantity, Subject};
use vrnic_testdriver::memory::Memory;
use vrnic_testdriver::qp::ALL;
use vrnic_testdriver::vmm::vfio::Guest;
use vrnic_testdriver::wr::{Wr, sge};

use crate::rate::{self, Runs, await_batch};
use crate::report::Report;
use crate::rig::{Pair, Rig};
use crate::yardstick;

/// The bus address of BAR2.
const BAR: u64 = 1 << 40;
/// The bus address of device memory, which is in BAR2.
const MEMORY: u64 = BAR + DEVICE_MEMORY_OFFSET;
/// The offset of BAR2 in configuration space.
const BAR_OFFSET: u64 = 0x10 + 4 * BAR_UAR as u64;
/// Bytes of device memory that are used.
const LEN: u64 = 48 << 20;
/// Bytes of an RDMA WRITE or READ.
const MESSAGE: u32 = 64 << 10;
/// Bytes of mapped transfers.
const MAPPED: [u32; 5] = [4 << 10, 64 << 10, 1 << 20, 4 << 20, MAPPED_LEN_MAX];
/// Bytes of transfers whose end the controller tells by a doorbell.
const RUNG: [u32; 3] = [4 << 10, 64 << 10, 1 << 20];
/// Pieces of packet memory that such a controller uses in turns.
const PIECES: u32 = 4;
/// Transfers that are under way at once, as a controller with a queue has them.
const DEPTH: u32 = 8;
/// Bytes of packet memory that a controller with a queue uses.
const PACKETS: u32 = 32 << 20;
/// Ranges that a controller uses in turns.
const RANGES: u32 = 2;
/// Milliseconds that a transfer may take.
const LIMIT_MS: u32 = 10_000;

/// Measures both.
///
/// # Errors
/// When an operation fails.
pub(crate) fn measure(
    report: &mut Report,
    daemon: &Path,
    pin: Option<usize>,
    runs: Runs,
) -> anyhow::Result<()> {
    let rig = Rig::start(daemon, 1, pin)?;
    rig.guests[0].write_config(BAR_OFFSET, &BAR.to_le_bytes());
    let memory = device_memory(&rig.guests[0])?;
    let mut pair = Pair::new(&rig, false);
    let key = rig.guests[0].reg_flat(pair.a.pdn, ALL, MEMORY, LEN);
    let key = key.ok().context("a region of device memory")?;
    messages(report, &rig, &mut pair, key, runs)?;
    let target = target(&rig.guests[1], pair.b.pdn)?;
    let guest = rig.guests[0].clone();
    let controller = Controller { guest, memory, source: source()?, key, target, marks: 0 };
    let mut bench = Bench { report, controller, pair, runs };
    bench.mapped()?;
    bench.marked()?;
    bench.rung()?;
    bench.counted()
}

/// The state that the measurements of a controller share.
struct Bench<'a> {
    report: &'a mut Report,
    controller: Controller,
    pair: Pair,
    runs: Runs,
}

impl Bench<'_> {
    /// Measures transfers of mapped memory, compared with memcpy.
    fn mapped(&mut self) -> anyhow::Result<()> {
        let Self { report, controller, pair, runs } = self;
        for len in MAPPED {
            let [moved, copied] = runs.best(|span| {
                let moved = controller.mapped(pair, len, span)?;
                Ok([moved, yardstick::memcpy(len as usize, span)])
            })?;
            let kib = len >> 10;
            let memcpy = (Subject::Memcpy(kib), copied, Quantity::ToMemcpy);
            report.bandwidth(Subject::Mapped(kib), moved, &[memcpy]);
        }
        Ok(())
    }

    /// Measures transfers whose end the controller tells by a mark, compared with memcpy.
    fn marked(&mut self) -> anyhow::Result<()> {
        let Self { report, controller, pair, runs } = self;
        for len in MAPPED {
            for depth in [1, 2, DEPTH].into_iter().filter(|depth| depth * len <= PACKETS) {
                let [moved, copied, handed] = runs.best(|span| {
                    let moved = controller.marked(pair, len, depth, span)?;
                    let copied = yardstick::memcpy(len as usize, span);
                    let handed = yardstick::memcpy_handed(len as usize, depth as usize, span)?;
                    Ok([moved, copied, handed])
                })?;
                let kib = len >> 10;
                let subject = Subject::Marked(kib, depth);
                let handed = (Subject::Handed(kib, depth), handed, Quantity::ToTwoThreads);
                report.bandwidth(subject, moved, &[handed]);
                report.figure(subject, Quantity::ToMemcpy, moved / copied);
            }
        }
        Ok(())
    }

    /// Measures transfers whose end the controller tells by a doorbell, compared with memcpy.
    fn rung(&mut self) -> anyhow::Result<()> {
        let Self { report, controller, pair, runs } = self;
        for len in RUNG {
            let [moved, copied, beside] = runs.best(|span| {
                let moved = controller.rung(pair, len, span)?;
                let copied = yardstick::memcpy(len as usize, span);
                Ok([moved, copied, yardstick::memcpy_beside(len as usize, span)?])
            })?;
            let kib = len >> 10;
            let others = [
                (Subject::Memcpy(kib), copied, Quantity::ToMemcpy),
                (Subject::MemcpyBeside(kib), beside, Quantity::ToBeside),
            ];
            report.bandwidth(Subject::Rung(kib), moved, &others);
        }
        Ok(())
    }

    /// Measures transfers whose end is counted, in stores of different lengths.
    fn counted(&mut self) -> anyhow::Result<()> {
        let Self { report, controller, pair, runs } = self;
        for piece in [64, RANGE_LEN] {
            let [moved] = runs.best(|span| Ok([controller.counted(pair, piece, span)?]))?;
            report.bandwidth(Subject::Counted(piece), moved, &[]);
        }
        Ok(())
    }
}

/// Maps device memory, whose pages exist from then on.
fn device_memory(guest: &Guest) -> anyhow::Result<Mapping> {
    let (file, start) = guest.bar().file();
    let memory = Mapping::new(file, start + DEVICE_MEMORY_OFFSET, usize::try_from(LEN)?, true)?;
    let page = [1; RANGE_LEN as usize];
    for at in (0..usize::try_from(LEN)?).step_by(page.len()) {
        memory.write(at, &page).context("device memory")?;
    }
    Ok(memory)
}

/// Creates the data of a controller.
fn source() -> anyhow::Result<Mapping> {
    let data = Memory::zeroed(MAPPED_LEN_MAX.into());
    data.write(0, &vec![1; MAPPED_LEN_MAX as usize]).context("the data of a controller")?;
    Ok(Mapping::new(data.file().0, 0, MAPPED_LEN_MAX as usize, true)?)
}

/// Creates a region of the peer that the longest transfer fits into. Returns address and key.
fn target(guest: &Guest, pdn: u32) -> anyhow::Result<(u64, u32)> {
    let address = guest.ram().alloc(MAPPED_LEN_MAX.into());
    guest.ram().write(address, &vec![1; MAPPED_LEN_MAX as usize]);
    let key = guest.reg_flat(pdn, ALL, address, MAPPED_LEN_MAX.into()).ok();
    Ok((address, key.context("a region of the peer")?))
}

/// Compares device memory with RAM, as source of WRITEs and as sink of READs.
fn messages(
    report: &mut Report,
    rig: &Rig,
    pair: &mut Pair,
    key: u32,
    runs: Runs,
) -> anyhow::Result<()> {
    let places = [(pair.a.buffer, pair.a.key), (MEMORY, key)];
    for operation in [Operation::Write, Operation::Read] {
        let [ram, device] = runs.best(|span| {
            let mut rates = [0f64; 2];
            for (place, rate) in places.iter().zip(&mut rates) {
                (pair.a.buffer, pair.a.key) = *place;
                let run = rate::run(rig, pair, operation, MESSAGE, span)?;
                *rate = run.per_second() * f64::from(MESSAGE);
            }
            Ok(rates)
        })?;
        (pair.a.buffer, pair.a.key) = places[0];
        report.bandwidth(Subject::LocalRam(operation), ram, &[]);
        report.bandwidth(Subject::LocalDevice(operation), device, &[]);
        report.figure(Subject::DeviceMemory(operation), Quantity::ToRam, device / ram);
    }
    Ok(())
}

/// A controller, and the driver of both devices.
struct Controller {
    guest: Guest,
    /// Device memory, as the controller has it mapped.
    memory: Mapping,
    /// The data that the controller stores into device memory.
    source: Mapping,
    /// The key of device memory.
    key: u32,
    /// Address and key of the peer's memory.
    target: (u64, u32),
    /// The last mark.
    marks: u32,
}

impl Controller {
    /// Returns the bytes per second of transfers whose data the controller stores into device
    /// memory. While the adapter moves the data of one transfer, the controller stores the data of
    /// the next one.
    fn mapped(&mut self, pair: &mut Pair, len: u32, span: Duration) -> anyhow::Result<f64> {
        let store = |this: &Self, range: u32| {
            let at = (range * MAPPED_LEN_MAX) as usize;
            this.source
                .copy_to(0, &this.memory, at, len as usize, Order::Any)
                .context("a store into device memory")?;
            this.guest.set_register(regs::RANGE_DONE, range);
            Ok(())
        };
        self.transfers(pair, Notice::Mapped, len, span, store)
    }

    /// Returns the bytes per second of WRITEs after AWAITs that the driver has posted, `depth` at
    /// a time, and that leave when the controller has stored their data and then a mark.
    fn marked(
        &mut self,
        pair: &mut Pair,
        len: u32,
        depth: u32,
        span: Duration,
    ) -> anyhow::Result<f64> {
        let (to, key) = self.target;
        let start = Instant::now();
        let (mut begun, mut ended) = (0u32, 0u32);
        while start.elapsed() < span {
            let piece = begun % depth;
            if begun >= depth {
                await_batch(pair);
                ended += 1;
            }
            begun += 1;
            self.marks += 1;
            let wanted = Await { word: piece, mark: self.marks, time_limit_ms: LIMIT_MS };
            let (limit, mark) = wanted.fields();
            let memory = MEMORY + u64::from(piece * len);
            let until = Wr::new(Opcode::Await, &[]).to(limit, mark).flags(Flags::empty());
            pair.a.store_send(&until);
            pair.a.post_send(&Wr::new(Opcode::Write, &[sge(memory, len, self.key)]).to(to, key));
            let at = (piece * len) as usize;
            self.source
                .copy_to(0, &self.memory, at, len as usize, Order::Any)
                .context("a store into device memory")?;
            pair.a.mark(piece, mark);
            pair.a.ring();
        }
        while ended < begun {
            await_batch(pair);
            ended += 1;
        }
        Ok(f64::from(len) * f64::from(ended) / start.elapsed().as_secs_f64())
    }

    /// Returns the bytes per second of WRITEs that the driver has put into the queue, and that
    /// leave when the controller has stored their data and then rings the doorbell.
    fn rung(&mut self, pair: &mut Pair, len: u32, span: Duration) -> anyhow::Result<f64> {
        let (to, key) = self.target;
        let wqes: Vec<_> = (0..PIECES)
            .map(|piece| sge(MEMORY + u64::from(piece * len), len, self.key))
            .map(|from| Wr::new(Opcode::Write, &[from]).to(to, key).encode())
            .collect();
        let start = Instant::now();
        let (mut begun, mut ended) = (0u32, 0u32);
        while start.elapsed() < span {
            for (piece, wqe) in (0..PIECES).zip(&wqes) {
                if begun >= PIECES {
                    await_batch(pair);
                    ended += 1;
                }
                let at = (piece * len) as usize;
                self.source
                    .copy_to(0, &self.memory, at, len as usize, Order::Any)
                    .context("a store into device memory")?;
                pair.a.store_encoded(wqe);
                pair.a.ring();
                begun += 1;
            }
        }
        while ended < begun {
            await_batch(pair);
            ended += 1;
        }
        Ok(f64::from(len) * f64::from(ended) / start.elapsed().as_secs_f64())
    }

    /// Returns the bytes per second of transfers whose data the controller stores into the window,
    /// in pieces.
    fn counted(&mut self, pair: &mut Pair, piece: u32, span: Duration) -> anyhow::Result<f64> {
        let bytes = vec![1; piece as usize];
        let store = |this: &Self, range: u32| {
            for at in (0..RANGE_LEN).step_by(bytes.len()) {
                let offset = u64::from(range * RANGE_LEN + at);
                this.guest
                    .with_client(|client| client.region_write(BAR_WINDOW, offset, &bytes))
                    .context("a store into the window")?;
            }
            Ok(())
        };
        self.transfers(pair, Notice::Counted, RANGE_LEN, span, store)
    }

    /// Makes transfers of `len` bytes by the ranges in turns.
    fn transfers(
        &mut self,
        pair: &mut Pair,
        notice: Notice,
        len: u32,
        span: Duration,
        store: impl Fn(&Self, u32) -> anyhow::Result<()>,
    ) -> anyhow::Result<f64> {
        let start = Instant::now();
        let (mut begun, mut ended) = (0u32, 0u32);
        while start.elapsed() < span {
            let range = begun % RANGES;
            if begun >= RANGES {
                await_batch(pair);
                ended += 1;
            }
            self.begin(pair, range, notice, len);
            store(self, range)?;
            begun += 1;
        }
        while ended < begun {
            await_batch(pair);
            ended += 1;
        }
        Ok(f64::from(len) * f64::from(ended) / start.elapsed().as_secs_f64())
    }

    /// Arms a range, and posts its TRANSFER and WRITE.
    fn begin(&self, pair: &mut Pair, range: u32, notice: Notice, len: u32) {
        let memory = MEMORY + u64::from(range * MAPPED_LEN_MAX);
        let params = ArmRange {
            memory: memory.into(),
            range: range.into(),
            qpn: pair.a.qpn.into(),
            length: len.into(),
            time_limit_ms: LIMIT_MS.into(),
            direction: Direction::Write as u8,
            notice: notice as u8,
            at_once: 0,
            packet_memory: 0,
            reserved: [0; 4],
        };
        self.guest.command::<command::ArmRange>(&params).expect("ARM_RANGE");
        let (to, key) = self.target;
        pair.a.store_send(&Wr::new(Opcode::Transfer, &[]).to(0, range).flags(Flags::empty()));
        pair.a.post_send(&Wr::new(Opcode::Write, &[sge(memory, len, self.key)]).to(to, key));
    }
}
