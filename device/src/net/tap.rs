//! The line to a TAP device of the host's kernel.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::frame::{FRAME_MAX, Frame};
use super::interface::{Interfaces, State, attach_tap, inherited, tap_name};
use super::line::{Change, Line, Log, TURN_BYTES};
use super::queue::SendQueue;
use super::status::Reason;

/// The file of all TAP devices.
const DEVICE: &str = "/dev/net/tun";

/// A TAP device.
pub struct Tap {
    name: String,
    /// False if the device was given by a descriptor, and cannot be opened again.
    by_name: bool,
    interfaces: Interfaces,
    device: Option<OwnedFd>,
    /// The last state that the kernel told of; none while the interface is in another network
    /// namespace.
    state: Option<State>,
    buffer: Vec<u8>,
}

impl Tap {
    /// Attaches to the device of this name, which is created if there is none and the daemon may do
    /// so.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn named(name: &str) -> io::Result<Self> {
        let device = open(name)?;
        Self::new(name.to_owned(), true, device)
    }

    /// Uses a descriptor of an attached device, which the daemon was started with.
    ///
    /// # Errors
    /// When there is none, or it is not one that this line can use.
    pub fn inherited(number: RawFd) -> io::Result<Self> {
        let device = inherited(number)?;
        let name = tap_name(device.as_fd())?;
        fcntl_setfl(&device, fcntl_getfl(&device)? | OFlags::NONBLOCK)?;
        Self::new(name, false, device)
    }

    fn new(name: String, by_name: bool, device: OwnedFd) -> io::Result<Self> {
        let interfaces = Interfaces::new()?;
        let state = interfaces.state(&name).ok();
        let buffer = vec![0; FRAME_MAX + 1];
        Ok(Self { name, by_name, interfaces, device: Some(device), state, buffer })
    }
}

impl Line for Tap {
    fn door(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn wire(&self) -> Option<BorrowedFd<'_>> {
        self.device.as_ref().map(AsFd::as_fd)
    }

    fn is_up(&self) -> bool {
        self.device.is_some() && self.state.is_none_or(|state| state.up)
    }

    fn mtu(&self) -> Option<u32> {
        self.state.map(|state| state.mtu)
    }

    fn wants_ticks(&self) -> bool {
        self.device.is_some() || self.by_name
    }

    fn tick(&mut self, log: &Log<'_>) -> Change {
        let mut change = Change::None;
        if self.device.is_none() {
            let Ok(device) = open(&self.name) else { return Change::None };
            log.line(|port| tracing::info!(port, interface = self.name, "the TAP device is back"));
            self.device = Some(device);
            change = Change::Connected;
        }
        self.state = self.interfaces.state(&self.name).ok();
        change
    }

    fn receive(&mut self, frames: &mut Vec<Frame>, log: &Log<'_>) -> Change {
        let Self { device: Some(device), buffer, name, .. } = self else { return Change::None };
        let mut budget = TURN_BYTES;
        while budget > 0 {
            match rustix::io::read(&*device, buffer.as_mut_slice()) {
                Ok(len) => {
                    budget = budget.saturating_sub(len);
                    match Frame::new(buffer.get(..len).unwrap_or_default().to_vec()) {
                        Ok(frame) => frames.push(frame),
                        Err(error) => log.dropped(Reason::BadLength, 1, |port| {
                            tracing::warn!(port, "a frame was dropped: {error}");
                        }),
                    }
                }
                Err(Errno::AGAIN) => return Change::None,
                Err(Errno::INTR) => {}
                Err(error) => {
                    log.line(|port| {
                        tracing::warn!(port, interface = name, %error, "the TAP device is lost");
                    });
                    return Change::Gone;
                }
            }
        }
        Change::None
    }

    fn flush(&mut self, queue: &mut SendQueue, log: &Log<'_>) -> io::Result<()> {
        let Some(device) = &self.device else { return Ok(()) };
        while let Some(frame) = queue.first() {
            match rustix::io::write(device, frame.bytes()) {
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                // The interface has been set down since it was last looked at.
                Err(Errno::IO) => log.status.count_dropped(Reason::NoLink, 1),
                Err(Errno::NOBUFS | Errno::NOMEM) => {
                    log.status.count_dropped(Reason::QueueFull, 1);
                }
                Err(error @ (Errno::INVAL | Errno::MSGSIZE)) => {
                    log.dropped(Reason::TooLong, 1, |port| {
                        tracing::warn!(port, %error, "the TAP device has refused a frame");
                    });
                }
                Err(error) => return Err(error.into()),
            }
            queue.remove(1);
        }
        Ok(())
    }

    fn close(&mut self) {
        self.device = None;
    }
}

/// Opens the device of this name.
fn open(name: &str) -> io::Result<OwnedFd> {
    // CAST: the flag is positive.
    let nonblock = OFlags::NONBLOCK.bits() as i32;
    let device: File =
        OpenOptions::new().read(true).write(true).custom_flags(nonblock).open(DEVICE)?;
    attach_tap(device.as_fd(), name)?;
    Ok(device.into())
}
