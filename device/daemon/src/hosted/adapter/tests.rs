//! Shows: hostile: a panic of the daemon's code fails only its adapter

use rustix::fs::MemfdFlags;
use vrnic_abi::UarIndex;
use vrnic_abi::regs::Control;
use vrnic_adapter::host::{DoorbellBar, Lane};

use vrnic_adapter::slice::SLICE;

use super::*;
use crate::host::control::{self, ControlRequests, ControlThread};
use crate::memory::messages::{End, Unanswered};

const LEN: u64 = 1 << 20;
/// An address without memory of the guest, which messages to the VMM reach.
const FAR: u64 = 1 << 40;

/// An adapter with guest memory, and the VMM's side of it.
struct Rig {
    hosted: Arc<HostedAdapter>,
    device: AdapterDevice,
    _control: ControlThread,
}

fn hosted(
    name: &str,
    mac: [u8; 6],
    rules: MapRules,
) -> (Arc<HostedAdapter>, ControlHandle, ControlRequests) {
    let wakers = Arc::from([Arc::new(Waker::new().expect("waker"))]);
    let (control, requests) = control::channel();
    let (fabric, limits) = (Arc::default(), Limits::default());
    let hosted =
        HostedAdapter::new(name, MacAddr(mac), &wakers, &fabric, limits, rules, control.clone());
    (Arc::new(hosted.expect("function")), control, requests)
}

impl Rig {
    fn new() -> Self {
        Self::with(MapRules::share(1))
    }

    fn with(rules: MapRules) -> Self {
        let (hosted, control, requests) = hosted("t", [2, 0, 0, 0, 0, 1], rules);
        let target = Arc::clone(&hosted);
        let work = move || target.control();
        let control = ControlThread::start("t", control, requests, work).expect("thread");
        let mut device = AdapterDevice::new(&hosted);
        let file = rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).expect("memfd");
        let file = File::from(file);
        file.set_len(LEN).expect("length");
        let range = DmaRange {
            iova: 0,
            size: LEN,
            readable: true,
            writable: true,
            offset: 0,
            file: Some(file),
        };
        device.dma_map(range).expect("DMA_MAP");
        device.write(RegionId::Config, 4, &[0x06, 0]);
        Self { hosted, device, _control: control }
    }

    fn set(&mut self, offset: u32, value: u32) {
        self.device.write(RegionId::Regs, offset.into(), &value.to_le_bytes());
    }

    fn wait(&self, wanted: impl Fn(Status) -> bool) {
        for _ in 0..20_000 {
            if wanted(self.status()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("{:?} stays", self.status());
    }

    fn status(&self) -> Status {
        Status::from_bits_retain(self.hosted.register(regs::STATUS))
    }

    /// Resets as the driver does. Returns whether the adapter works again.
    fn reset(&mut self) -> bool {
        self.set(regs::CONTROL, Control::RESET.bits());
        self.wait(|status| !status.contains(Status::RESETTING));
        !self.status().contains(Status::FATAL)
    }

    fn enable(&mut self) {
        let rings =
            [(regs::ADMIN_SQ_LO, 0), (regs::ADMIN_CQ_LO, 0x1000), (regs::ASYNC_EQ_LO, 0x2000)];
        for (offset, addr) in rings {
            self.set(offset, addr);
        }
        self.set(regs::ADMIN_LOG_SIZE, 6);
        self.set(regs::ASYNC_EQ_LOG_SIZE, 6);
        self.set(regs::CONTROL, Control::ENABLE.bits());
        self.wait(|status| status.contains(Status::ENABLED));
    }

    fn trap(&self, set: bool) {
        self.hosted.adapter.host().trap.store(set, Ordering::SeqCst);
    }

    /// Runs one thing while everything fails: the adapter fails, and the caller learns nothing of
    /// it.
    fn fails_in(&mut self, what: &str, step: impl FnOnce(&mut Self)) {
        self.enable();
        self.trap(true);
        step(self);
        self.wait(|status| status.contains(Status::FATAL));
        let code = self.hosted.register(regs::FATAL_CODE);
        assert_eq!(code, FatalCode::Internal as u32, "{what}");
        // A reset that fails, too, ends, and the next one is tried as well.
        assert!(!self.reset() && !self.reset(), "{what}");
        self.trap(false);
        assert!(self.reset(), "{what}: the function is dead for good");
    }
}

#[test]
fn a_fault_anywhere_stops_its_function_until_a_reset() {
    let mut rig = Rig::new();
    let part = rig.hosted.part(0);
    rig.fails_in("poll", |_| assert!(!part.poll(SLICE).busy));
    rig.fails_in("a last look", |_| assert!(!part.has_work()));
    rig.fails_in("the heartbeat", |rig| rig.hosted.beat());
    rig.fails_in("falling asleep", |_| part.set_asleep(true));
    part.set_asleep(false);
    rig.fails_in("a register", |rig| rig.set(regs::KICK, 0));
    rig.fails_in("the link", |rig| rig.hosted.set_link(true));
    // The VMM's own reset helps, too, and the count of sleeping workers is right.
    rig.enable();
    rig.hosted.failure.set("an injected fault");
    rig.device.reset();
    rig.device.write(RegionId::Config, 4, &[0x06, 0]);
    rig.enable();
    part.set_asleep(true);
    assert!(rig.status().contains(Status::LINK_UP | Status::ENABLED));
    assert_eq!(rig.hosted.adapter.host().bar_load32(UarIndex::new(0).armed()), 1);
}

/// The switch only records a request and does no work for the adapter, whatever the adapter's state
/// is.
#[test]
fn the_switch_only_leaves_a_note() {
    let (hosted, _control, _requests) = hosted("t", [2, 0, 0, 0, 0, 2], MapRules::share(1));
    hosted.adapter.host().trap.store(true, Ordering::SeqCst);
    hosted.set_link(true);
    assert!(!hosted.failure.is_set());
    assert_eq!(hosted.register(regs::STATUS) & Status::LINK_UP.bits(), 0);
    hosted.adapter.host().trap.store(false, Ordering::SeqCst);
    hosted.control();
    assert_ne!(hosted.register(regs::STATUS) & Status::LINK_UP.bits(), 0);
}

/// The control thread and the VMM reset an adapter that has failed at the same time; the guest
/// enables it once the VMM's reset has ended.
#[test]
fn no_reset_of_a_failure_comes_after_that_of_the_vmm() {
    let mut rig = Rig::new();
    for round in 0..300 {
        rig.hosted.failure.set("an injected fault");
        rig.device.reset();
        rig.device.write(RegionId::Config, 4, &[0x06, 0]);
        rig.enable();
        std::thread::yield_now();
        assert!(rig.status().contains(Status::ENABLED), "round {round}");
    }
}

/// A VMM that answers a write some time later.
#[derive(Debug, Default)]
struct SlowVmm {
    begun: AtomicBool,
    answered: AtomicBool,
}

impl Messages for SlowVmm {
    fn read(&self, _addr: u64, _len: usize, _end: &End) -> Result<Vec<u8>, Unanswered> {
        Err(Unanswered::Closed)
    }

    fn write(&self, _addr: u64, _bytes: &[u8], _end: &End) -> Result<(), Unanswered> {
        self.begun.store(true, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(300));
        self.answered.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn is_owed(&self, _addr: u64, _len: u64) -> bool {
        false
    }

    fn disconnect(&self) {}
}

/// The driver gives memory back when a reset has ended, so the write that was with the VMM when a
/// worker panicked has taken place before.
#[test]
fn the_reset_after_a_panic_awaits_the_write_that_is_with_the_vmm() {
    let mut rig = Rig::with(MapRules { messages: true, ..MapRules::share(1) });
    let (vmm, part) = (Arc::new(SlowVmm::default()), rig.hosted.part(0));
    let messages = Arc::clone(&vmm) as Arc<dyn Messages>;
    let dma = Arc::clone(&rig.hosted.adapter.host().dma);
    dma.external().expect("messages are allowed").connect(messages);
    rig.enable();
    let view = dma.view(Lane::worker(0));
    view.attend(1);
    view.write(FAR, b"late").expect_err("it waits for the VMM");
    drop(view);
    while !vmm.begun.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    rig.trap(true);
    assert!(!part.poll(SLICE).busy, "the worker panics");
    rig.trap(false);
    rig.wait(|status| status.contains(Status::FATAL));
    assert!(rig.reset(), "the function works again");
    assert!(vmm.answered.load(Ordering::SeqCst), "the write was still on its way");
}
