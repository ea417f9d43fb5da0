//! The thread that serves the VMMs of a function, one after another.
//!
//! The crate's server handles one connection a call and has no way to be stopped or to refuse
//! a second client, so the thread waits for clients itself, and a [`Doorman`] turns those away that wait while a
//! VMM is connected. The crate panics on some malformed messages: that ends the connection, nothing else.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use thiserror::Error;
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_SET_ACTION_MASK, VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_ACTION_UNMASK,
    VFIO_IRQ_SET_DATA_EVENTFD, VFIO_PCI_MSIX_IRQ_INDEX,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, Server, ServerBackend};
use vrnic_adapter::limiter::Limiter;

use super::device::{Device, IrqRequest};
use super::regions;
use crate::memory::dma::DmaRange;
use crate::socket::SocketFile;
use crate::worker::pool::now_ns;

/// Looks of the doorman at a waiting client before it is turned away.
const PATIENCE: u32 = 10;
/// Pause after an accept that failed, e.g. for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Longest region access in bytes, as the crate's version reply says (`max_data_xfer_size`).
const TRANSFER_MAX: usize = 1 << 20;
/// `VFIO_DMA_UNMAP_FLAG_ALL`, in linux/vfio.h; the crate's own constant is off by one bit.
const UNMAP_ALL: u32 = 1 << 1;

/// A running server.
#[derive(Debug)]
pub struct ServerThread {
    name: String,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
    socket: Arc<SocketFile>,
}

/// Ends the wait for clients.
#[derive(Debug)]
struct Stop {
    asked: AtomicBool,
    event: OwnedFd,
}

impl ServerThread {
    /// Serves `device` on `socket`.
    ///
    /// # Errors
    /// When descriptors or threads run out.
    pub fn start(
        name: &str,
        socket: SocketFile,
        device: Box<dyn Device>,
    ) -> io::Result<(Self, Doorman)> {
        let stop = Stop {
            asked: AtomicBool::new(false),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        };
        let stop = Arc::new(stop);
        let socket = Arc::new(socket);
        let busy = Arc::new(AtomicBool::new(false));
        let doorman = Doorman {
            name: name.to_owned(),
            socket: Arc::clone(&socket),
            busy: Arc::clone(&busy),
            waited: 0,
        };
        let listener = socket.listener().try_clone()?;
        let session = Session {
            name: name.to_owned(),
            listener,
            stop: Arc::clone(&stop),
            busy,
            edge: Edge {
                name: name.to_owned(),
                device,
                greeted: false,
                limiter: Limiter::default(),
            },
        };
        let thread = std::thread::Builder::new()
            .name(format!("vfio-{name}"))
            .spawn(move || session.serve())?;
        Ok((Self { name: name.to_owned(), stop, thread: Some(thread), socket }, doorman))
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        self.socket.path()
    }
}

impl Drop for ServerThread {
    /// Ends the thread when no VMM is connected; one that is keeps it until the process ends.
    fn drop(&mut self) {
        self.stop.asked.store(true, Ordering::SeqCst);
        if let Err(error) = rustix::io::write(&self.stop.event, &1u64.to_ne_bytes()) {
            tracing::warn!(function = self.name, %error, "server not told to stop");
        }
        if let Some(thread) = self.thread.take_if(|thread| thread.is_finished())
            && thread.join().is_err()
        {
            tracing::error!(function = self.name, "server thread panicked");
        }
    }
}

/// Turns away clients of a busy socket.
#[derive(Debug)]
pub struct Doorman {
    name: String,
    socket: Arc<SocketFile>,
    busy: Arc<AtomicBool>,
    waited: u32,
}

impl Doorman {
    /// Looks for a waiting client; called every tenth of a second. One that waits while a VMM is connected
    /// gets a second, in case the VMM is just ending, and is then closed.
    pub fn look(&mut self) {
        let listener = self.socket.listener();
        let waiting = self.busy.load(Ordering::SeqCst) && readable(listener);
        self.waited = if waiting { self.waited + 1 } else { 0 };
        if self.waited >= PATIENCE && listener.accept().is_ok() {
            self.waited = 0;
            tracing::warn!(
                function = self.name,
                socket = %self.socket.path().display(),
                "second client turned away: a VMM is connected already"
            );
        }
    }
}

/// Whether accept would find somebody.
fn readable(listener: &UnixListener) -> bool {
    let mut fds = [PollFd::new(listener, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

/// A read longer than what the version reply allows.
#[derive(Debug, Error)]
#[error("read of {0} bytes; the longest is {TRANSFER_MAX}")]
struct TooLong(usize);

/// The state of the thread.
struct Session {
    name: String,
    listener: UnixListener,
    stop: Arc<Stop>,
    busy: Arc<AtomicBool>,
    edge: Edge,
}

impl Session {
    fn serve(mut self) {
        while self.wait_for_client() {
            self.busy.store(true, Ordering::SeqCst);
            let end = catch_unwind(AssertUnwindSafe(|| self.connection()));
            match end {
                Ok(Ok(())) => tracing::info!(function = self.name, "VMM disconnected"),
                Ok(Err(vfio_user::Error::SocketAccept(error))) => {
                    tracing::debug!(function = self.name, %error, "accept");
                    std::thread::sleep(ACCEPT_PAUSE);
                }
                Ok(Err(error)) => tracing::warn!(function = self.name, %error, "VMM lost"),
                Err(_) => tracing::error!(
                    function = self.name,
                    "connection ended by a message that the vfio-user server cannot handle"
                ),
            }
            self.edge.greeted = false;
            self.edge.device.disconnected();
            self.busy.store(false, Ordering::SeqCst);
        }
    }

    /// Serves the client that knocks, with doorbell memory of its own.
    fn connection(&mut self) -> Result<(), vfio_user::Error> {
        let listener = self.listener.try_clone().map_err(vfio_user::Error::SocketAccept)?;
        let uar = self.edge.device.connected().map_err(vfio_user::Error::SocketAccept)?;
        let regions = regions::regions(uar.as_raw_fd());
        Server::from_owned_fd(listener.into(), true, regions::irqs(), regions).run(&mut self.edge)
    }

    /// Blocks until a client knocks; false when it is time to stop.
    fn wait_for_client(&self) -> bool {
        loop {
            let mut fds = [
                PollFd::from_borrowed_fd(self.stop.event.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN),
            ];
            if let Err(error) = poll(&mut fds, None)
                && error != rustix::io::Errno::INTR
            {
                tracing::error!(function = self.name, %error, "poll of the vfio-user socket");
                return false;
            }
            if self.stop.asked.load(Ordering::SeqCst) {
                return false;
            }
            if fds[1].revents().contains(PollFlags::IN) {
                return true;
            }
        }
    }
}

/// Translates the crate's calls to [`Device`]. Errors are logged here: the crate sends them without
/// a code, and VMMs take some of those replies for success.
struct Edge {
    name: String,
    device: Box<dyn Device>,
    /// Whether the connection has been logged.
    greeted: bool,
    limiter: Limiter,
}

impl Edge {
    fn greet(&mut self) {
        if !self.greeted {
            self.greeted = true;
            tracing::info!(function = self.name, "VMM connected");
        }
    }

    /// Logs an error of the device and passes it on.
    fn check<E: std::error::Error>(&self, result: Result<(), E>) -> io::Result<()> {
        result.map_err(|error| {
            self.limiter.warn(now_ns(), || {
                tracing::error!(function = self.name, %error, "request of the VMM refused");
            });
            io::Error::other(error.to_string())
        })
    }

    /// The region of an access that lies inside it; others are logged.
    fn inside(&self, index: u32, offset: u64, len: usize) -> Option<super::device::RegionId> {
        let region = regions::region(index);
        let fits = region.filter(|region| {
            let end = offset.checked_add(len as u64);
            end.is_some_and(|end| end <= regions::region_len(*region))
        });
        if fits.is_none() {
            self.limiter.warn(now_ns(), || {
                tracing::warn!(
                    function = self.name,
                    "access of the VMM outside a region: {index}, offset {offset:#x}, {len} bytes"
                );
            });
        }
        fits
    }
}

impl ServerBackend for Edge {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        self.greet();
        if data.len() > TRANSFER_MAX {
            // The buffer is zero pages that nobody has touched; filling it would take the memory.
            return self.check(Err(TooLong(data.len())));
        }
        match self.inside(region, offset, data.len()) {
            Some(region) => self.device.read(region, offset, data),
            // An error reply hangs some VMMs; ones are what a bus gives for nobody's address.
            None => data.fill(0xff),
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        self.greet();
        if let Some(region) = self.inside(region, offset, data.len()) {
            self.device.write(region, offset, data);
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        iova: u64,
        size: u64,
        file: Option<File>,
    ) -> io::Result<()> {
        self.greet();
        tracing::debug!(
            function = self.name,
            "map {iova:#x}+{size:#x}, flags {flags:?}, file {}",
            file.is_some()
        );
        let readable = flags.contains(DmaMapFlags::READ);
        let writable = flags.contains(DmaMapFlags::WRITE);
        let range = DmaRange { iova, size, readable, writable, offset, file };
        let result = self.device.dma_map(range);
        self.check(result)
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, iova: u64, size: u64) -> io::Result<()> {
        tracing::debug!(function = self.name, "unmap {iova:#x}+{size:#x}");
        let all = flags.bits() & UNMAP_ALL != 0;
        let result = self.device.dma_unmap((!all).then_some((iova, size)));
        self.check(result)
    }

    fn reset(&mut self) -> io::Result<()> {
        tracing::debug!(function = self.name, "reset by the VMM");
        self.device.reset();
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        fds: Vec<File>,
    ) -> io::Result<()> {
        if index != VFIO_PCI_MSIX_IRQ_INDEX {
            tracing::debug!(function = self.name, index, "SET_IRQS for an absent interrupt");
            return Ok(());
        }
        let request = if flags & VFIO_IRQ_SET_ACTION_MASK != 0 {
            IrqRequest::Mask
        } else if flags & VFIO_IRQ_SET_ACTION_UNMASK != 0 {
            IrqRequest::Unmask
        } else if flags & VFIO_IRQ_SET_ACTION_TRIGGER == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        } else if flags & VFIO_IRQ_SET_DATA_EVENTFD != 0 {
            IrqRequest::Assign(fds)
        } else if count == 0 {
            IrqRequest::Disable
        } else {
            IrqRequest::Trigger
        };
        let result = self.device.set_irqs(start, count, request);
        self.check(result)
    }
}
