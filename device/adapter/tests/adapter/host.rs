//! A host of tests: guest memory, BAR2, interrupts and a clock that the test moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use vrnic_abi::GuestAddr;
use vrnic_abi::doorbell::{BarRange, BarWord32, BarWord64};
use vrnic_abi::pci::{BAR_UAR_LEN, MSIX_VECTORS};
use vrnic_adapter::host::{
    Clock, CopyFault, DoorbellBar, Fault, GuestMemory, HandedOver, HeldMemory, Host, Interrupts,
    Lane, Place,
};
use vrnic_packet::Nanos;
use vrnic_testdriver::memory::{BASE, Memory, Ram};

/// Bytes of guest memory.
pub(crate) const RAM_LEN: u64 = 1 << 30;

/// A test's action on a part of guest memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bar {
    Unmapped,
    ReadOnly,
    /// Each access panics, as a fault of the adapter's own would.
    Panics,
}

/// A step of a thread of the adapter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The thread loads this word of BAR2.
    Load(u64),
    /// The thread reads guest memory at this address.
    Read(u64),
    /// The thread writes guest memory at this address.
    Write(u64),
}

/// Makes a thread of the adapter wait before a step until the test has done something.
pub(crate) struct Gate {
    reached: Receiver<()>,
    open: SyncSender<()>,
}

impl Gate {
    /// Returns when a thread waits at the gate.
    pub(crate) fn wait(&self) {
        self.reached.recv().expect("a thread comes to the gate");
    }

    /// Lets the thread go on.
    pub(crate) fn open(self) {
        self.open.send(()).expect("a thread waits at the gate");
    }
}

/// The adapter's side of a gate.
struct Barrier {
    before: Step,
    arrive: SyncSender<()>,
    opened: Receiver<()>,
}

/// Memory whose bytes the host writes later.
#[derive(Default)]
struct Far {
    /// The first address of the memory, and the first one after it.
    range: Option<[u64; 2]>,
    /// The bytes that have been taken over.
    waiting: Vec<(u64, Vec<u8>, Arc<HandedOver>)>,
}

impl Far {
    fn has(&self, addr: GuestAddr, len: usize) -> bool {
        let overlaps = |[start, end]: [u64; 2]| addr.get() < end && start < addr.get() + len as u64;
        self.range.is_some_and(overlaps)
    }
}

pub(crate) struct Inner {
    ram: Ram,
    bar: Memory,
    barred: RwLock<Vec<(u64, u64, Bar)>>,
    raised: Vec<AtomicU64>,
    clock: Arc<AtomicU64>,
    wakes: AtomicU64,
    fails: AtomicU64,
    /// True if each call of the adapter moves the clock by the time that it takes.
    timed: AtomicBool,
    /// The number of workers that may hold guest memory.
    workers: AtomicU64,
    /// The factor by which accesses to memory take longer than usual.
    delay: AtomicU64,
    /// Read-locked while the adapter holds guest memory.
    turns: RwLock<()>,
    /// The adapter's sides of the gates. Each stops one thread.
    gates: Mutex<Vec<Barrier>>,
    far: Mutex<Far>,
}

/// The host. All clones refer to the same host.
#[derive(Clone)]
pub(crate) struct TestHost(Arc<Inner>);

impl std::fmt::Debug for TestHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TestHost")
    }
}

impl TestHost {
    pub(crate) fn new(clock: &Arc<AtomicU64>) -> Self {
        Self(Arc::new(Inner {
            ram: Ram::new(RAM_LEN),
            bar: Memory::zeroed(BAR_UAR_LEN),
            barred: RwLock::default(),
            raised: (0..MSIX_VECTORS).map(|_| AtomicU64::new(0)).collect(),
            clock: Arc::clone(clock),
            wakes: AtomicU64::new(0),
            fails: AtomicU64::new(0),
            timed: AtomicBool::new(false),
            workers: AtomicU64::new(1),
            delay: AtomicU64::new(1),
            turns: RwLock::default(),
            gates: Mutex::default(),
            far: Mutex::default(),
        }))
    }

    /// Makes each call of the adapter move the clock from now on, by about the time that it takes
    /// on a real machine.
    pub(crate) fn take_time(&self) {
        self.0.timed.store(true, Ordering::Release);
    }

    /// Sets the number of workers of the adapter.
    pub(crate) fn set_workers(&self, workers: usize) {
        self.0.workers.store(workers as u64, Ordering::Release);
    }

    /// Makes memory fifty times slower from now on, as pages are at their first use.
    pub(crate) fn slow_memory(&self) {
        self.0.delay.store(50, Ordering::Release);
    }

    fn spend_on_memory(&self, len: usize) {
        self.spend(20 + len as u64 / 32 * self.0.delay.load(Ordering::Acquire));
    }

    fn spend(&self, ns: u64) {
        if self.0.timed.load(Ordering::Acquire) {
            self.0.clock.fetch_add(ns, Ordering::AcqRel);
        }
    }

    /// Takes memory away, or makes it read-only.
    pub(crate) fn restrict(&self, addr: u64, len: u64, how: Bar) {
        self.0.barred.write().push((addr, addr + len, how));
    }

    /// Ends all restrictions.
    pub(crate) fn unrestrict(&self) {
        self.0.barred.write().clear();
    }

    /// Writes the bytes of messages to this memory only when the test says so ([`Self::arrive`]).
    pub(crate) fn put_off(&self, addr: u64, len: u64) {
        self.0.far.lock().range = Some([addr, addr + len]);
    }

    /// Writes the bytes that have been taken over.
    pub(crate) fn arrive(&self) {
        for (addr, bytes, progress) in std::mem::take(&mut self.0.far.lock().waiting) {
            self.0.ram.write(addr, &bytes);
            progress.written(bytes.len() as u64);
        }
    }

    /// Returns the number of interrupts since the last call.
    pub(crate) fn interrupts(&self, vector: u16) -> u64 {
        self.0.raised[usize::from(vector)].swap(0, Ordering::AcqRel)
    }

    /// Returns how often the worker was woken.
    pub(crate) fn wakes(&self) -> u64 {
        self.0.wakes.load(Ordering::Acquire)
    }

    /// Stops the next thread that is about to take `step`.
    pub(crate) fn gate(&self, step: Step) -> Gate {
        let (arrive, reached) = sync_channel(1);
        let (open, opened) = sync_channel(1);
        self.0.gates.lock().push(Barrier { before: step, arrive, opened });
        Gate { reached, open }
    }

    fn pass(&self, step: Step) {
        let mut gates = self.0.gates.lock();
        let Some(at) = gates.iter().position(|gate| gate.before == step) else { return };
        let Barrier { arrive, opened, .. } = gates.swap_remove(at);
        drop(gates);
        // If the test has failed, the gate is gone, and the thread does not wait.
        let _gone = arrive.send(()).map(|()| opened.recv());
    }

    /// Returns how often the adapter has reported that it failed by a fault of its own.
    pub(crate) fn fails(&self) -> u64 {
        self.0.fails.load(Ordering::Acquire)
    }

    /// Returns guest memory, without the restrictions.
    pub(crate) fn ram(&self) -> &Ram {
        &self.0.ram
    }

    /// Returns BAR2 as the guest sees it.
    pub(crate) fn bar(&self) -> &Memory {
        &self.0.bar
    }

    fn at(&self, addr: GuestAddr, len: u64, write: bool) -> Result<u64, Fault> {
        let fault = Fault { addr, why: "not memory" };
        let addr = addr.get();
        let offset = addr.checked_sub(BASE).ok_or(fault)?;
        let end = addr.checked_add(len).ok_or(fault)?;
        if end - BASE > self.0.ram.len() {
            return Err(fault);
        }
        let hit = |(start, stop, how): &(u64, u64, Bar)| {
            let inside = *start < end && addr < *stop;
            assert!(!inside || *how != Bar::Panics, "an injected fault");
            inside && (write || *how == Bar::Unmapped)
        };
        if self.0.barred.read().iter().any(hit) { Err(fault) } else { Ok(offset) }
    }

    fn atomic(&self, addr: GuestAddr) -> Result<&AtomicU64, Fault> {
        let fault = Fault { addr, why: "not aligned" };
        let offset = self.at(addr, 8, true)?;
        self.0.ram.memory().word64(offset).ok_or(fault)
    }
}

/// Guest memory that the adapter holds.
pub(crate) struct Held<'a> {
    host: &'a TestHost,
    _turn: RwLockReadGuard<'a, ()>,
}

impl HeldMemory for Held<'_> {
    fn read(&self, addr: GuestAddr, into: &mut [u8]) -> Result<(), Fault> {
        self.host.pass(Step::Read(addr.get()));
        self.host.spend_on_memory(into.len());
        let offset = self.host.at(addr, into.len() as u64, false)?;
        self.host.0.ram.memory().read(offset, into).ok_or(Fault { addr, why: "end of memory" })
    }

    fn write(&self, addr: GuestAddr, from: &[u8]) -> Result<(), Fault> {
        self.host.pass(Step::Write(addr.get()));
        self.host.spend_on_memory(from.len());
        let offset = self.host.at(addr, from.len() as u64, true)?;
        self.host.0.ram.memory().write(offset, from).ok_or(Fault { addr, why: "end of memory" })
    }

    fn fetch_add(&self, addr: GuestAddr, value: u64) -> Result<u64, Fault> {
        Ok(self.host.atomic(addr)?.fetch_add(value, Ordering::SeqCst))
    }

    fn compare_swap(&self, addr: GuestAddr, compare: u64, new: u64) -> Result<u64, Fault> {
        let order = Ordering::SeqCst;
        let word = self.host.atomic(addr)?;
        Ok(word.compare_exchange(compare, new, order, order).unwrap_or_else(|old| old))
    }

    fn store(&self, addr: GuestAddr, value: u64) -> Result<(), Fault> {
        self.host.atomic(addr)?.store(value, Ordering::SeqCst);
        Ok(())
    }

    fn check(&self, addr: GuestAddr, len: u64, write: bool) -> Result<(), Fault> {
        self.host.at(addr, len, write).map(|_| ())
    }

    fn may_wait(&self) -> bool {
        self.host.0.far.lock().range.is_some()
    }

    fn is_immediate(&self, addr: GuestAddr, len: u64) -> bool {
        !self.host.0.far.lock().has(addr, len as usize)
    }

    fn hand_over(
        &self,
        addr: GuestAddr,
        from: &[u8],
        progress: &Arc<HandedOver>,
    ) -> Result<(), Fault> {
        let mut far = self.host.0.far.lock();
        if !far.has(addr, from.len()) {
            return self.write(addr, from);
        }
        progress.add(from.len() as u64);
        far.waiting.push((addr.get(), from.to_vec(), Arc::clone(progress)));
        Ok(())
    }
}

impl GuestMemory for TestHost {
    type Held<'a> = Held<'a>;

    fn hold(&self, _lane: Lane) -> Held<'_> {
        Held { host: self, _turn: self.0.turns.read_recursive() }
    }

    fn drain(&self) {
        // Takes as long as the turn of another worker. Other threads hold the memory briefly.
        self.spend(if self.0.workers.load(Ordering::Acquire) > 1 { 30_000 } else { 200 });
        drop(self.0.turns.write());
    }

    fn copy(
        from: Place<'_, Held<'_>>,
        to: Place<'_, Held<'_>>,
        len: usize,
    ) -> Result<(), CopyFault> {
        from.memory.check(from.addr, len as u64, false).map_err(|_| CopyFault::Source)?;
        to.memory.check(to.addr, len as u64, true).map_err(|_| CopyFault::Target)?;
        let mut bytes = vec![0; len];
        from.memory.read(from.addr, &mut bytes).map_err(|_| CopyFault::Source)?;
        to.memory.write(to.addr, &bytes).map_err(|_| CopyFault::Target)
    }
}

impl DoorbellBar for TestHost {
    fn bar_load32(&self, word: BarWord32) -> u32 {
        self.pass(Step::Load(word.offset()));
        self.spend(10);
        self.0.bar.word32(word.offset()).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn bar_store32(&self, word: BarWord32, value: u32) {
        if let Some(word) = self.0.bar.word32(word.offset()) {
            word.store(value, Ordering::Release);
        }
    }

    fn bar_load64(&self, word: BarWord64) -> u64 {
        self.pass(Step::Load(word.offset()));
        self.spend(10);
        self.0.bar.word64(word.offset()).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn bar_take64(&self, word: BarWord64, mask: u64) -> u64 {
        self.spend(20);
        let word = self.0.bar.word64(word.offset());
        word.map_or(0, |word| word.fetch_and(!mask, Ordering::SeqCst) & mask)
    }

    fn bar_read(&self, range: BarRange, into: &mut [u8]) {
        if self.0.bar.read(range.start, into).is_none() {
            into.fill(0);
        }
    }

    fn bar_zero(&self, range: BarRange) {
        let _outside = self.0.bar.write(range.start, &vec![0; range.len as usize]);
    }

    fn bar_clear(&self) {
        self.0.bar.clear();
    }
}

impl Interrupts for TestHost {
    fn raise(&self, vector: u16) {
        self.spend(500);
        self.0.raised[usize::from(vector)].fetch_add(1, Ordering::AcqRel);
    }

    fn wake(&self, _worker: usize) {
        self.0.wakes.fetch_add(1, Ordering::AcqRel);
    }
}

impl Clock for TestHost {
    fn now(&self) -> Nanos {
        self.spend(20);
        Nanos(self.0.clock.load(Ordering::Acquire))
    }

    /// Moves the clock for what is not an access to memory or to a doorbell, such as calculations.
    /// What is both counts twice, which makes work slower than it is.
    fn work(&self, ns: u64) {
        self.spend(ns);
    }
}

impl Host for TestHost {
    fn fail(&self) {
        self.0.fails.fetch_add(1, Ordering::AcqRel);
    }
}
