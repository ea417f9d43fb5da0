//! The line to a TAP device of the host's kernel.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use vrnic_adapter::ethernet;
use vrnic_packet::pool::Buffer;

use super::interface::{Interfaces, State, attach_tap, attached_tap, inherited, offload_tap};
use super::offload::HEADER;
use super::segments::arrival::{push, take_joined};
use super::segments::join::{Joined, cut_first};
use crate::net::frame::{FRAME_MAX, Frame};
use crate::net::line::{Change, Line, Log};
use crate::net::queue::SendQueue;
use crate::net::status::Reason;
use crate::net::turn::Turn;

/// The file of all TAP devices.
const DEVICE: &str = "/dev/net/tun";

/// A TAP device.
pub struct Tap {
    name: String,
    /// False if the device was given by a descriptor, and cannot be opened again.
    by_name: bool,
    interfaces: Interfaces,
    device: Option<Device>,
    /// The last known state of the interface; none while it is in another network namespace.
    state: Option<State>,
    buffer: Buffer,
}

/// An open TAP device.
struct Device {
    file: OwnedFd,
    /// True if frames have a header.
    headers: bool,
    /// True if frames may be joined.
    joins: bool,
}

impl Device {
    /// Uses a file that is attached to a TAP device. Also returns the name of the device.
    fn new(file: OwnedFd) -> io::Result<(Self, String)> {
        let tap = attached_tap(file.as_fd())?;
        let joins = tap.headers && offload_tap(file.as_fd())?;
        Ok((Self { file, headers: tap.headers, joins }, tap.name))
    }

    /// Writes the first frame of a queue, or several frames joined to one. Returns the number of
    /// frames written and of their entries in the queue, or none if no frame waits.
    fn write(&self, queue: &SendQueue) -> Option<([usize; 2], rustix::io::Result<usize>)> {
        let next = Joined::next(queue, self.joins)?;
        let sent = rustix::io::writev(&self.file, &next.slices(self.headers));
        Some(([next.frames(), next.entries()], sent))
    }

    /// Opens the device of this name.
    fn open(name: &str) -> io::Result<Self> {
        // CAST: the flag is positive.
        let nonblock = OFlags::NONBLOCK.bits() as i32;
        let file: File =
            OpenOptions::new().read(true).write(true).custom_flags(nonblock).open(DEVICE)?;
        attach_tap(file.as_fd(), name, true)?;
        Ok(Self::new(file.into())?.0)
    }
}

impl Tap {
    /// Attaches to the device of this name. The device is created if it does not exist and the
    /// daemon has the permission.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn named(name: &str) -> io::Result<Self> {
        let device = Device::open(name)?;
        Self::new(name.to_owned(), true, device)
    }

    /// Uses a descriptor of an attached device, which the daemon has inherited.
    ///
    /// # Errors
    /// Returns an error if the descriptor is not open, or if this line cannot use the device.
    pub fn inherited(number: RawFd) -> io::Result<Self> {
        let (device, name) = Device::new(inherited(number)?)?;
        fcntl_setfl(&device.file, fcntl_getfl(&device.file)? | OFlags::NONBLOCK)?;
        Self::new(name, false, device)
    }

    fn new(name: String, by_name: bool, device: Device) -> io::Result<Self> {
        let interfaces = Interfaces::new()?;
        let state = interfaces.state(&name).ok();
        Ok(Self {
            name,
            by_name,
            interfaces,
            device: Some(device),
            state,
            buffer: Buffer::default(),
        })
    }
}

impl Line for Tap {
    fn door(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn wire(&self) -> Option<BorrowedFd<'_>> {
        self.device.as_ref().map(|device| device.file.as_fd())
    }

    fn is_up(&self) -> bool {
        self.device.is_some() && self.state.is_none_or(|state| state.up)
    }

    fn mtu(&self) -> Option<u32> {
        self.state.map(|state| state.mtu)
    }

    fn joins(&self) -> bool {
        self.device.as_ref().is_some_and(|device| device.joins)
    }

    fn wants_ticks(&self) -> bool {
        self.device.is_some() || self.by_name
    }

    fn tick(&mut self, log: &Log<'_>) -> Change {
        let mut change = Change::None;
        if self.device.is_none() {
            let Ok(device) = Device::open(&self.name) else { return Change::None };
            log.line(|port| tracing::info!(port, interface = self.name, "the TAP device is back"));
            self.device = Some(device);
            change = Change::Connected;
        }
        self.state = self.interfaces.state(&self.name).ok();
        change
    }

    fn receive(&mut self, frames: &mut Vec<Frame>, turn: &mut Turn, log: &Log<'_>) -> Change {
        let Self { device: Some(device), buffer, name, .. } = self else { return Change::None };
        while !turn.is_over() {
            if buffer.is_empty() {
                // A joined frame has taken it.
                *buffer = Buffer::of(HEADER + FRAME_MAX + 1);
            }
            match rustix::io::read(&device.file, buffer.bytes_mut()) {
                Ok(len) => {
                    turn.spend(1, len);
                    if device.headers {
                        take_joined(buffer, len, frames, log);
                    } else {
                        let bytes = buffer.bytes().get(..len).unwrap_or_default();
                        push(ethernet::Frame::copy(bytes), frames, log);
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

    fn flush(&mut self, queue: &mut SendQueue, turn: &mut Turn, log: &Log<'_>) -> io::Result<()> {
        let Some(device) = &mut self.device else { return Ok(()) };
        while !turn.is_over() {
            log.status.count_dropped(Reason::Offload, cut_first(queue, device.joins));
            let Some(([count, entries], sent)) = device.write(queue) else { return Ok(()) };
            match sent {
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                // The interface was set down after its state was last read.
                Err(Errno::IO) => log.status.count_dropped(Reason::NoLink, count),
                Err(Errno::NOBUFS | Errno::NOMEM) => {
                    log.status.count_dropped(Reason::QueueFull, count);
                }
                // Each value is tried separately.
                Err(Errno::INVAL) if count > 1 => {
                    device.joins = false;
                    continue;
                }
                Err(error @ (Errno::INVAL | Errno::MSGSIZE)) => {
                    log.dropped(Reason::TooLong, count, |port| {
                        tracing::warn!(port, %error, "the TAP device has refused a frame");
                    });
                }
                Err(error) => return Err(error.into()),
            }
            queue.remove(entries);
            turn.spend(count, 0);
        }
        Ok(())
    }

    fn close(&mut self) {
        self.device = None;
    }
}
