//! MSI-X vectors, as eventfds that the VMM assigns with SET_IRQS. A vector that is raised while it
//! has no eventfd or is masked, or while bus mastering is off, stays pending and is delivered as
//! soon as possible. Delivery never waits, because workers and the switch call it.
//!
//! A signal to an eventfd takes as long as the kernel needs to wake all that wait for it. A VMM can
//! make that milliseconds, with thousands of epoll sets for one eventfd. If signals to a VMM are
//! slow, the control thread of its adapter delivers them, so that no worker has to.

pub mod eventfd;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use thiserror::Error;
use vrnic_abi::pci::MSIX_VECTORS;
use vrnic_adapter::log_ratelimit::Limiter;

use self::eventfd::Signaller;
use super::control::ControlHandle;
use crate::worker::pool::now;

/// Time after which a signal counts as slow. It usually takes less than a microsecond, or a few if
/// the VMM's threads have to be woken.
const SLOW: Duration = Duration::from_micros(50);
/// Number of slow signals in a row after which the control thread delivers interrupts. A thread may
/// have been interrupted during one of them.
const SLOW_MAX: u32 = 3;
/// Time for which the control thread delivers them.
const BY_CONTROL: Duration = Duration::from_secs(1);

/// The reason for which a SET_IRQS was refused.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum IrqError {
    /// The range includes vectors beyond the last one.
    #[error("vectors {start}+{count} do not exist: the function has {MSIX_VECTORS}")]
    Range {
        /// First vector.
        start: u32,
        /// Number of vectors.
        count: u32,
    },
    /// The number of descriptors is neither zero nor the number of vectors.
    #[error("the number of file descriptors ({fds}) is not that of the vectors ({count})")]
    Count {
        /// Number of vectors.
        count: u32,
        /// Number of descriptors.
        fds: usize,
    },
    /// A descriptor is not an eventfd.
    #[error("the file descriptor for vector {vector} is not an eventfd")]
    NotEventFd {
        /// The number of the vector.
        vector: u32,
    },
}

/// The eventfd of an MSI-X vector, and what is known about it.
#[derive(Debug, Default)]
struct Vector {
    eventfd: ArcSwapOption<File>,
    masked: AtomicBool,
    pending: AtomicBool,
}

/// The vectors of an adapter.
#[derive(Debug)]
pub struct Interrupts {
    vectors: Vec<Vector>,
    bus_master: AtomicBool,
    signaller: Signaller,
    limiter: Limiter,
    /// The control thread of the adapter, which calls [`Self::deliver`].
    control: ControlHandle,
    /// Number of the last signals that were slow.
    slow: AtomicU32,
    /// The time until which the control thread delivers interrupts.
    by_control: AtomicU64,
}

impl Interrupts {
    /// Creates vectors without eventfds. `control` wakes the control thread of the adapter.
    ///
    /// # Errors
    /// See [`Signaller::new`].
    pub fn new(control: ControlHandle) -> io::Result<Self> {
        Ok(Self {
            vectors: (0..MSIX_VECTORS).map(|_| Vector::default()).collect(),
            bus_master: AtomicBool::new(false),
            signaller: Signaller::new()?,
            limiter: Limiter::default(),
            control,
            slow: AtomicU32::new(0),
            by_control: AtomicU64::new(0),
        })
    }

    /// Delivers the vectors that were left to the control thread, which calls this.
    pub fn deliver(&self) {
        if self.by_control.load(Ordering::Relaxed) > 0 {
            self.vectors.iter().for_each(|vector| self.signal(vector));
        }
    }

    /// Raises a vector. A vector beyond the last one is ignored.
    pub fn raise(&self, vector: u16) {
        if let Some(vector) = self.vectors.get(usize::from(vector)) {
            vector.pending.store(true, Ordering::SeqCst);
            self.fire(vector);
        }
    }

    /// Returns whether a vector waits to be delivered.
    #[must_use]
    pub fn pending(&self, vector: u16) -> bool {
        let vector = self.vectors.get(usize::from(vector));
        vector.is_some_and(|vector| vector.pending.load(Ordering::SeqCst))
    }

    /// Records the bus-master bit.
    pub fn set_bus_master(&self, on: bool) {
        self.bus_master.store(on, Ordering::SeqCst);
        self.vectors.iter().for_each(|vector| self.fire(vector));
    }

    /// Assigns eventfds to `count` vectors from `start` on, or removes theirs if `fds` is empty.
    ///
    /// # Errors
    /// See [`IrqError`]. Nothing has changed in case of an error.
    pub fn assign(&self, start: u32, count: u32, fds: Vec<File>) -> Result<(), IrqError> {
        let vectors = self.range(start, count)?;
        if !fds.is_empty() && fds.len() != vectors.len() {
            return Err(IrqError::Count { count, fds: fds.len() });
        }
        for (vector, file) in (start..).zip(&fds) {
            if !is_eventfd(file) {
                return Err(IrqError::NotEventFd { vector });
            }
        }
        let mut fds = fds.into_iter();
        for vector in vectors {
            vector.eventfd.store(fds.next().map(Arc::new));
            self.fire(vector);
        }
        Ok(())
    }

    /// Removes all eventfds, pending interrupts and masks.
    pub fn clear(&self) {
        for vector in &self.vectors {
            vector.eventfd.store(None);
            vector.masked.store(false, Ordering::SeqCst);
        }
        self.forget();
    }

    /// Discards pending interrupts. The eventfds stay.
    pub fn forget(&self) {
        self.vectors.iter().for_each(|vector| vector.pending.store(false, Ordering::SeqCst));
    }

    /// Masks or unmasks vectors.
    ///
    /// # Errors
    /// [`IrqError::Range`].
    pub fn mask(&self, start: u32, count: u32, masked: bool) -> Result<(), IrqError> {
        for vector in self.range(start, count)? {
            vector.masked.store(masked, Ordering::SeqCst);
            self.fire(vector);
        }
        Ok(())
    }

    /// Raises vectors on request of the VMM.
    ///
    /// # Errors
    /// [`IrqError::Range`].
    pub fn trigger(&self, start: u32, count: u32) -> Result<(), IrqError> {
        for vector in self.range(start, count)? {
            vector.pending.store(true, Ordering::SeqCst);
            self.fire(vector);
        }
        Ok(())
    }

    fn range(&self, start: u32, count: u32) -> Result<&[Vector], IrqError> {
        let first = usize::try_from(start).ok();
        let end = start.checked_add(count).and_then(|end| usize::try_from(end).ok());
        first
            .zip(end)
            .and_then(|(first, end)| self.vectors.get(first..end))
            .ok_or(IrqError::Range { start, count })
    }

    /// Delivers a pending vector if nothing prevents it, or leaves that to the control thread. A
    /// thread that changes one of the conditions calls this after the change, so no order of events
    /// loses an interrupt.
    fn fire(&self, vector: &Vector) {
        if !vector.pending.load(Ordering::SeqCst) {
            return;
        }
        let start = now();
        if start.0 < self.by_control.load(Ordering::Relaxed) {
            return self.control.ask();
        }
        self.signal(vector);
        let end = now();
        if end.since(start) < SLOW {
            self.slow.store(0, Ordering::Relaxed);
        } else if self.slow.fetch_add(1, Ordering::Relaxed) + 1 >= SLOW_MAX {
            // The next slow signal after this time is enough.
            self.slow.store(SLOW_MAX - 1, Ordering::Relaxed);
            self.by_control.store(end.plus(BY_CONTROL).0, Ordering::Relaxed);
        }
    }

    /// Delivers a pending vector if nothing prevents it.
    fn signal(&self, vector: &Vector) {
        let blocked =
            vector.masked.load(Ordering::SeqCst) || !self.bus_master.load(Ordering::SeqCst);
        if blocked {
            return;
        }
        let eventfd = vector.eventfd.load();
        let Some(eventfd) = eventfd.as_ref() else { return };
        if vector.pending.swap(false, Ordering::SeqCst)
            && let Err(error) = self.signaller.signal(eventfd.as_fd())
        {
            self.limiter.warn(
                now(),
                || tracing::warn!(%error, "an interrupt cannot be signalled to the VMM"),
            );
        }
    }
}

/// Returns whether a file is an eventfd, by its name in /proc.
fn is_eventfd(file: &File) -> bool {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::read_link(link).is_ok_and(|name| name.as_os_str() == "anon_inode:[eventfd]")
}

#[cfg(test)]
mod tests {
    use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;
    use crate::host::control::channel;

    fn event() -> (File, File) {
        let file = File::from(eventfd(0, EventfdFlags::NONBLOCK).expect("eventfd"));
        let twin = file.try_clone().expect("dup");
        (file, twin)
    }

    fn count(file: &File) -> u64 {
        let mut bytes = [0; 8];
        rustix::io::read(file, &mut bytes).map_or(0, |_| u64::from_ne_bytes(bytes))
    }

    #[test]
    fn pending_vector_fires_when_the_last_obstacle_goes() {
        let irqs = Interrupts::new(channel().0).expect("vectors");
        let (file, twin) = event();
        irqs.raise(3);
        irqs.assign(3, 1, vec![file]).expect("assign");
        irqs.mask(3, 1, true).expect("mask");
        irqs.set_bus_master(true);
        assert_eq!(count(&twin), 0);
        assert!(irqs.pending(3));
        irqs.mask(3, 1, false).expect("unmask");
        assert_eq!(count(&twin), 1);
        assert!(!irqs.pending(3));
    }

    #[test]
    fn vector_without_eventfd_is_silent() {
        let irqs = Interrupts::new(channel().0).expect("vectors");
        let (file, twin) = event();
        irqs.set_bus_master(true);
        irqs.assign(0, 1, vec![file]).expect("assign");
        irqs.raise(0);
        assert_eq!(count(&twin), 1);
        irqs.assign(0, 1, Vec::new()).expect("take away");
        irqs.raise(0);
        irqs.raise(u16::MAX);
        assert_eq!(count(&twin), 0);
    }

    /// A VMM whose eventfd is in thousands of epoll sets slows down a few signals of workers.
    ///
    /// Shows: hostile: an eventfd of a VMM whose signals are slow
    #[test]
    fn slow_signals_are_left_to_the_control_thread() {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("a limit");
        let irqs = Interrupts::new(channel().0).expect("vectors");
        let (file, twin) = event();
        irqs.set_bus_master(true);
        irqs.assign(0, 1, vec![file]).expect("assign");
        (0..50).for_each(|_| irqs.raise(0));
        assert_eq!(count(&twin), 50, "a fast VMM gets its interrupts at once");
        let sets: Vec<_> = (0..3500)
            .map(|_| {
                let set = epoll::create(CreateFlags::CLOEXEC).expect("descriptors");
                let flags = EventFlags::IN | EventFlags::ET;
                epoll::add(&set, &twin, EventData::new_u64(0), flags).expect("a set");
                set
            })
            .collect();
        let by_worker = (0..50).filter(|_| {
            irqs.raise(0);
            count(&twin) == 1
        });
        let by_worker = by_worker.count();
        assert!((1..25).contains(&by_worker), "workers have sent {by_worker} slow signals");
        assert!(irqs.pending(0));
        irqs.deliver();
        assert_eq!(count(&twin), 1);
        assert!(!irqs.pending(0));
        drop(sets);
    }

    #[test]
    fn bad_requests_are_refused() {
        let irqs = Interrupts::new(channel().0).expect("vectors");
        let range = IrqError::Range { start: 64, count: 2 };
        assert_eq!(irqs.assign(64, 2, Vec::new()), Err(range));
        assert!(irqs.trigger(u32::MAX, 2).is_err());
        let (file, _) = event();
        let count = IrqError::Count { count: 2, fds: 1 };
        assert_eq!(irqs.assign(0, 2, vec![file]), Err(count));
        let null = File::open("/dev/null").expect("/dev/null");
        let not = IrqError::NotEventFd { vector: 5 };
        assert_eq!(irqs.assign(5, 1, vec![null]), Err(not));
    }
}
