//! The bus to a daemon: a vfio-user client that acts as the VMM.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::io::Errno;
use vfio_user::Client;
use vrnic_abi::{pci, regs};

use crate::bus::Bus;
use crate::memory::{BASE, Memory, Ram};
use crate::{endpoint, guest, wait};

/// A guest of a daemon.
pub type Guest = guest::Guest<Vfio>;
/// An endpoint of a guest of a daemon.
pub type Endpoint = endpoint::Endpoint<Vfio>;

/// Bytes of guest memory of a test. The kernel allocates pages when they are used.
const RAM_LEN: u64 = 1 << 30;
/// The number that vfio gives to configuration space.
const CONFIG_REGION: u32 = 7;
/// The number that vfio gives to the MSI-X interrupts.
const MSIX_INDEX: u32 = 2;
/// `VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER`.
const ASSIGN: u32 = 1 << 2 | 1 << 5;
/// Descriptors in a message.
const FDS: usize = 8;
/// Offset of the command register in configuration space.
const COMMAND: u64 = 4;
/// Command register: memory and bus master.
const COMMAND_ON: [u8; 2] = [0x06, 0];

/// A vfio-user connection.
pub struct Vfio {
    client: Mutex<Client>,
    ram: Arc<Ram>,
    bar: Memory,
    vectors: Vec<File>,
    mac: [u8; 6],
    /// Kicks written so far.
    pub kicks: AtomicU32,
    /// The netdev, while the port has a link.
    pub cable: Mutex<Option<UnixStream>>,
}

impl Guest {
    /// Connects, maps memory at [`BASE`] and sets all interrupts. Does not change the adapter.
    pub fn connect(socket: &Path, mac: [u8; 6]) -> anyhow::Result<Self> {
        Self::connect_with(socket, mac, Arc::new(Ram::new(RAM_LEN)))
    }

    /// Like [`Self::connect`], with memory of an earlier guest.
    pub fn connect_with(socket: &Path, mac: [u8; 6], ram: Arc<Ram>) -> anyhow::Result<Self> {
        let mut client = Client::new(socket).context("vfio-user connection")?;
        client.dma_map(0, BASE, ram.len(), ram.file().as_raw_fd()).context("DMA_MAP")?;
        let bar = client.region(pci::BAR_UAR).context("BAR2")?;
        let file = bar.file_offset.as_ref().context("memory file of BAR2")?;
        ensure!(bar.sparse_areas.len() == 1 && bar.size == pci::BAR_UAR_LEN, "areas of BAR2");
        let bar = Memory::new(file.file().try_clone()?, file.start(), bar.size);
        let vectors = vectors()?;
        for (batch, files) in (0u32..).zip(vectors.chunks(FDS)) {
            let fds: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
            let (start, count) = (batch * FDS as u32, fds.len() as u32);
            client.set_irqs(MSIX_INDEX, ASSIGN, start, count, &fds).context("SET_IRQS")?;
        }
        let (client, kicks) = (Mutex::new(client), AtomicU32::new(0));
        let cable = Mutex::default();
        Ok(Self::new(Vfio { client, ram, bar, vectors, mac, kicks, cable }))
    }
}

impl Vfio {
    /// Replaces the eventfd of a vector.
    pub fn assign(&self, vector: u16, event: RawFd) {
        let (vector, fds) = (u32::from(vector), [event]);
        self.with_client(|client| client.set_irqs(MSIX_INDEX, ASSIGN, vector, 1, &fds))
            .expect("SET_IRQS");
    }

    /// Reads configuration space.
    pub fn read_config(&self, offset: u64, into: &mut [u8]) {
        self.with_client(|client| client.region_read(CONFIG_REGION, offset, into))
            .expect("configuration space");
    }

    /// Writes configuration space.
    pub fn write_config(&self, offset: u64, from: &[u8]) {
        self.with_client(|client| client.region_write(CONFIG_REGION, offset, from))
            .expect("configuration space");
    }

    /// Calls `run` with the vfio-user client.
    pub fn with_client<T>(&self, run: impl FnOnce(&mut Client) -> T) -> T {
        run(&mut self.client.lock())
    }

    /// Returns the number of interrupts of a vector since the last call.
    #[must_use]
    pub fn interrupts(&self, vector: u16) -> u64 {
        let mut count = [0; 8];
        let mut file = self.vectors.get(usize::from(vector)).expect("a vector");
        file.read(&mut count).map_or(0, |_| u64::from_ne_bytes(count))
    }

    /// Sleeps until a vector is raised, and takes the interrupt. Returns false if this takes longer
    /// than `limit`.
    #[must_use]
    pub fn sleep(&self, vector: u16, limit: Duration) -> bool {
        let file = self.vectors.get(usize::from(vector)).expect("a vector");
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).expect("a time");
            match rustix::event::poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&left)) {
                Ok(0) => return false,
                Ok(_) => return self.interrupts(vector) > 0,
                Err(error) => assert_eq!(error, Errno::INTR, "poll"),
            }
        }
    }

    /// Waits for an interrupt.
    #[track_caller]
    pub fn wait_interrupt(&self, vector: u16) {
        assert!(self.sleep(vector, wait::LIMIT), "no interrupt {vector}");
    }
}

impl Bus for Vfio {
    fn ram(&self) -> &Ram {
        &self.ram
    }

    fn bar(&self) -> &Memory {
        &self.bar
    }

    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn read_register(&self, offset: u32) -> u32 {
        let mut word = [0; 4];
        self.with_client(|client| client.region_read(pci::BAR_REGS, offset.into(), &mut word))
            .expect("a register");
        u32::from_le_bytes(word)
    }

    fn write_register(&self, offset: u32, value: u32) {
        self.kicks.fetch_add((offset == regs::KICK).into(), Ordering::Relaxed);
        let word = value.to_le_bytes();
        self.with_client(|client| client.region_write(pci::BAR_REGS, offset.into(), &word))
            .expect("a register");
    }

    fn enable_dma(&self) {
        self.write_config(COMMAND, &COMMAND_ON);
    }
}

/// Returns an eventfd for each vector.
fn vectors() -> anyhow::Result<Vec<File>> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    (0..pci::MSIX_VECTORS).map(|_| Ok(File::from(eventfd(0, flags)?))).collect()
}
