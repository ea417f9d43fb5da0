//! A connection to a function: the VMM's part (memory, interrupts, configuration space) and the
//! driver's (registers, doorbells, bring-up).

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::io::Errno;
use vfio_user::Client;
use vrnic_abi::doorbell::Doorbell;
use vrnic_abi::regs::{self, Control, Status};
use vrnic_abi::{SlotIndex, UarIndex, pci, uar};
use vrnic_device::memory::mapping::Mapping;

use crate::admin::AdminQueue;
use crate::eq::EventQueue;
use crate::ram::{BASE, Ram};
use crate::wait;

/// Guest memory of a test in bytes; pages exist when they are used.
const RAM_LEN: u64 = 1 << 30;
/// vfio's number of configuration space.
const CONFIG_REGION: u32 = 7;
/// vfio's number of the MSI-X interrupts.
const MSIX_INDEX: u32 = 2;
/// `VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER`.
const ASSIGN: u32 = 1 << 2 | 1 << 5;
/// Descriptors in a message.
const FDS: usize = 8;
/// Command register: memory and bus master.
const COMMAND_ON: [u8; 2] = [0x06, 0];
/// log2 of the admin ring.
const ADMIN_LOG: u32 = 6;
/// log2 of the asynchronous event queue.
const ASYNC_LOG: u8 = 6;

/// A guest with its adapter.
pub struct Guest {
    client: Mutex<Client>,
    /// Guest memory.
    pub ram: Arc<Ram>,
    bar: Mapping,
    vectors: Vec<File>,
    /// MAC of the function.
    pub mac: [u8; 6],
    admin: Mutex<AdminQueue>,
    /// The asynchronous event queue.
    pub events: Mutex<EventQueue>,
    /// Kicks written so far.
    pub kicks: AtomicU32,
    /// The netdev, while the port has a link.
    pub cable: Option<UnixStream>,
}

impl Guest {
    /// Connects, maps memory at [`BASE`] and sets all interrupts. The adapter is left as it is.
    ///
    /// # Errors
    /// Returns the error of the server or the system.
    pub fn connect(socket: &Path, mac: [u8; 6]) -> anyhow::Result<Self> {
        let ram = Arc::new(Ram::new(RAM_LEN)?);
        Self::connect_with(socket, mac, ram)
    }

    /// Like [`Self::connect`], with memory of an earlier guest.
    ///
    /// # Errors
    /// Returns the error of the server or the system.
    pub fn connect_with(socket: &Path, mac: [u8; 6], ram: Arc<Ram>) -> anyhow::Result<Self> {
        let mut client = Client::new(socket).context("vfio-user connection")?;
        client.dma_map(0, BASE, ram.len(), ram.fd()).context("DMA_MAP")?;
        let bar = client.region(pci::BAR_UAR).context("BAR2")?;
        let file = bar.file_offset.as_ref().context("memory file of BAR2")?;
        ensure!(bar.sparse_areas.len() == 1 && bar.size == pci::BAR_UAR_LEN, "areas of BAR2");
        let bar = Mapping::new(file.file(), file.start(), usize::try_from(bar.size)?, true)?;
        let vectors = vectors()?;
        for (batch, files) in (0u32..).zip(vectors.chunks(FDS)) {
            let fds: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
            let (start, count) = (batch * FDS as u32, fds.len() as u32);
            client.set_irqs(MSIX_INDEX, ASSIGN, start, count, &fds).context("SET_IRQS")?;
        }
        let admin = Mutex::new(AdminQueue::new(&ram, ADMIN_LOG)?);
        let async_ring = ram.alloc(u64::from(vrnic_abi::eq::EQE_LEN) << ASYNC_LOG)?;
        let events = EventQueue::new(Arc::clone(&ram), async_ring, ASYNC_LOG, uar::ASYNC_EQ_SLOT);
        Ok(Self {
            client: Mutex::new(client),
            ram,
            bar,
            vectors,
            mac,
            admin,
            events: Mutex::new(events),
            kicks: AtomicU32::new(0),
            cable: None,
        })
    }

    /// Gives a vector another eventfd than its own.
    ///
    /// # Errors
    /// Returns the server's error.
    pub fn assign(&self, vector: u16, event: RawFd) -> anyhow::Result<()> {
        let fds = [event];
        let mut client = self.client.lock();
        Ok(client.set_irqs(MSIX_INDEX, ASSIGN, u32::from(vector), 1, &fds)?)
    }

    /// Connected, reset, with rings, enabled: ready for commands.
    ///
    /// # Errors
    /// When the adapter does not come up.
    pub fn bring_up(&self) -> anyhow::Result<()> {
        ensure!(self.register(regs::MAGIC)? == regs::MAGIC_VALUE, "no vrnic adapter");
        ensure!(self.register(regs::VERSION)? == vrnic_abi::ABI_VERSION, "other version");
        self.write_config(4, &COMMAND_ON)?;
        self.reset()?;
        let (sq, cq) = self.admin.lock().restart(&self.ram)?;
        let events = self.events.lock().restart()?;
        self.write_address(regs::ADMIN_SQ_LO, sq)?;
        self.write_address(regs::ADMIN_CQ_LO, cq)?;
        self.set_register(regs::ADMIN_LOG_SIZE, ADMIN_LOG)?;
        self.write_address(regs::ASYNC_EQ_LO, events)?;
        self.set_register(regs::ASYNC_EQ_LOG_SIZE, u32::from(ASYNC_LOG))?;
        self.set_register(regs::CONTROL, Control::ENABLE.bits())?;
        self.wait_status("ENABLED", |status| status.intersects(Status::ENABLED | Status::FATAL))?;
        ensure!(
            self.status()?.contains(Status::ENABLED),
            "not enabled, fatal code {}",
            self.register(regs::FATAL_CODE)?
        );
        Ok(())
    }

    /// Resets by register and waits for the end.
    ///
    /// # Errors
    /// When the reset does not end.
    pub fn reset(&self) -> anyhow::Result<()> {
        self.set_register(regs::CONTROL, Control::RESET.bits())?;
        self.wait_status("end of reset", |status| !status.contains(Status::RESETTING))
    }

    /// The status register.
    ///
    /// # Errors
    /// Returns the server's error.
    pub fn status(&self) -> anyhow::Result<Status> {
        Ok(Status::from_bits_retain(self.register(regs::STATUS)?))
    }

    /// Waits for a status.
    ///
    /// # Errors
    /// When it does not come.
    pub fn wait_status(&self, what: &str, test: impl Fn(Status) -> bool) -> anyhow::Result<()> {
        wait::until(what, || Ok(test(self.status()?).then_some(())))
    }

    /// Reads a register.
    ///
    /// # Errors
    /// Returns the server's error.
    pub fn register(&self, offset: u32) -> anyhow::Result<u32> {
        let mut word = [0; 4];
        self.client.lock().region_read(pci::BAR_REGS, u64::from(offset), &mut word)?;
        Ok(u32::from_le_bytes(word))
    }

    /// Writes a register.
    ///
    /// # Errors
    /// Returns the server's error.
    pub fn set_register(&self, offset: u32, value: u32) -> anyhow::Result<()> {
        let word = value.to_le_bytes();
        Ok(self.client.lock().region_write(pci::BAR_REGS, u64::from(offset), &word)?)
    }

    /// Writes a pair of registers that hold an address.
    ///
    /// # Errors
    /// Returns the server's error.
    pub fn write_address(&self, offset: u32, addr: u64) -> anyhow::Result<()> {
        let [low, high] = [addr & u64::from(u32::MAX), addr >> 32];
        self.set_register(offset, u32::try_from(low)?)?;
        self.set_register(offset + 4, u32::try_from(high)?)
    }

    /// Reads configuration space.
    ///
    /// # Errors
    /// Returns the server's error.
    pub fn read_config(&self, offset: u64, into: &mut [u8]) -> anyhow::Result<()> {
        Ok(self.client.lock().region_read(CONFIG_REGION, offset, into)?)
    }

    /// Writes configuration space.
    ///
    /// # Errors
    /// Returns the server's error.
    pub fn write_config(&self, offset: u64, from: &[u8]) -> anyhow::Result<()> {
        Ok(self.client.lock().region_write(CONFIG_REGION, offset, from)?)
    }

    /// Runs something on the vfio-user client.
    pub fn with_client<T>(&self, run: impl FnOnce(&mut Client) -> T) -> T {
        run(&mut self.client.lock())
    }

    /// BAR2.
    #[must_use]
    pub fn bar(&self) -> &Mapping {
        &self.bar
    }

    /// Offset in BAR2 of a slot.
    #[must_use]
    pub fn slot_offset(uar: u32, slot: u32) -> usize {
        Doorbell::new(uar.into(), slot.into()).offset() as usize
    }

    /// Rings a slot: summary, then a kick if the device asks for one.
    ///
    /// # Errors
    /// Returns the server's error.
    pub fn ring(&self, uar: u32, slot: u32) -> anyhow::Result<()> {
        let page = UarIndex::new(uar).offset() as usize;
        let summary = self.bar.word64(page + uar::SUMMARY_OFFSET as usize).context("summary")?;
        let bit = SlotIndex::new(slot).summary_bit();
        loop {
            let old = summary.load(Ordering::Relaxed);
            if summary.compare_swap(old, old | bit) == Some(old) {
                break;
            }
        }
        fence(Ordering::SeqCst);
        let armed = self.bar.word32(page + uar::ARMED_OFFSET as usize).context("armed")?;
        if armed.load(Ordering::Relaxed) != 0 {
            self.kicks.fetch_add(1, Ordering::Relaxed);
            self.set_register(regs::KICK, uar)?;
        }
        Ok(())
    }

    /// Takes the count of interrupts of a vector since the last call.
    ///
    /// # Errors
    /// When there is no such vector.
    pub fn interrupts(&self, vector: u16) -> anyhow::Result<u64> {
        let mut count = [0; 8];
        let mut file = self.vectors.get(usize::from(vector)).context("vector")?;
        Ok(file.read(&mut count).map_or(0, |_| u64::from_ne_bytes(count)))
    }

    /// Sleeps until a vector is raised, and takes that; false when it is not within `limit`.
    ///
    /// # Errors
    /// When there is no such vector.
    pub fn sleep(&self, vector: u16, limit: Duration) -> anyhow::Result<bool> {
        let file = self.vectors.get(usize::from(vector)).context("vector")?;
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::new(file, PollFlags::IN)];
            match rustix::event::poll(&mut fds, Some(&Timespec::try_from(left)?)) {
                Ok(0) => return Ok(false),
                Ok(_) => return Ok(self.interrupts(vector)? > 0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits for an interrupt.
    ///
    /// # Errors
    /// When none comes.
    pub fn wait_interrupt(&self, vector: u16) -> anyhow::Result<()> {
        wait::until("interrupt", || Ok((self.interrupts(vector)? > 0).then_some(())))
    }

    /// Runs something on the admin queue; see [`crate::admin`] for the usual commands.
    pub fn with_admin<T>(&self, run: impl FnOnce(&mut AdminQueue) -> T) -> T {
        run(&mut self.admin.lock())
    }
}

/// An eventfd for each vector.
fn vectors() -> anyhow::Result<Vec<File>> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    (0..pci::MSIX_VECTORS).map(|_| Ok(File::from(eventfd(0, flags)?))).collect()
}
