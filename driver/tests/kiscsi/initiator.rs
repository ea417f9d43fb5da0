// SPDX-License-Identifier: GPL-2.0
//! The initiator: its host, and the connection that it has now. A connection that was lost is made
//! again; commands wait meanwhile.

use core::ptr::NonNull;

use kernel::{
    new_condvar, new_mutex, new_spinlock_irq,
    prelude::*,
    sync::{Arc, CondVar, Mutex, SpinLockIrq},
    time::{Instant, Monotonic},
    workqueue::{Work, WorkItem, impl_has_work, new_work},
};

use crate::{
    bindings,
    connection::Connection,
    kclient::{attached::Attached, background::Background},
    link::Link,
    login::{self, Terms},
    scsi::{Commands, End, Host},
    settings::Settings,
    socket::Socket,
    waker::{Polled, Waker},
};

/// Milliseconds between two attempts to connect, and between two to give the socket away.
const RETRY_INTERVAL_MS: u32 = 1000;
const ATTACH_INTERVAL_MS: u32 = 20;
/// Attempts to give a socket away whose last bytes are not acknowledged.
const ATTACH_ATTEMPTS: u32 = 250;

/// A connection of an initiator, whose completions are handled.
struct Handled {
    initiator: Arc<Initiator>,
    connection: Arc<Connection>,
}

impl Polled for Handled {
    fn poll(&self, waker: &Waker) {
        if self.connection.poll() {
            self.initiator.lose(waker, &self.connection);
        }
    }
}

enum Phase {
    /// There is a connection.
    Connected(Arc<Connection>, Arc<Waker>),
    /// The connection was lost, and is made again.
    Lost,
    /// The connection was not made in time, or the module goes.
    Over,
}

#[pin_data]
pub(crate) struct Initiator {
    settings: Settings,
    device: Arc<Attached>,
    queue: Arc<Background>,
    #[pin]
    phase: SpinLockIrq<Phase>,
    #[pin]
    changed: CondVar,
    /// Held while a connection is being ended.
    #[pin]
    ending: Mutex<()>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Initiator { self.work }
}

impl WorkItem for Initiator {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.recover();
    }
}

/// An initiator in use: its disks go when this is dropped.
pub(crate) struct Running {
    initiator: Arc<Initiator>,
    host: Option<Host>,
    // The last reference, which is dropped when no item runs.
    #[expect(dead_code, reason = "kept")]
    queue: Arc<Background>,
}

impl Running {
    /// Logs in, and shows the disks of the target.
    pub(crate) fn start(device: Arc<Attached>, settings: Settings) -> Result<Self> {
        let queue = Arc::new(Background::new(crate::NAME)?, GFP_KERNEL)?;
        let shared = queue.clone();
        let initiator = Arc::pin_init(
            pin_init!(Initiator {
                settings,
                device,
                queue: shared,
                phase <- new_spinlock_irq!(Phase::Lost, "kiscsi::Initiator"),
                changed <- new_condvar!("kiscsi::Initiator"),
                ending <- new_mutex!((), "kiscsi::Initiator"),
                work <- new_work!("kiscsi::Initiator"),
            }),
            GFP_KERNEL,
        )?;
        let mut this = Self { initiator, host: None, queue };
        this.initiator.connect()?;
        let commands = Arc::new(OfHost(this.initiator.clone()), GFP_KERNEL)?;
        let host = Host::add(&this.initiator.device, commands)?;
        this.host = Some(host);
        Ok(this)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The disks flush their caches as long as there is a connection.
        self.host = None;
        self.initiator.stop();
    }
}

impl Initiator {
    /// Makes a connection.
    fn connect(self: &Arc<Self>) -> Result {
        let mut socket = Socket::connect(self.settings.portal)?;
        let terms = login::login(&mut socket, &self.settings)?;
        let waker = Waker::new(&self.queue)?;
        let link = Link::new(&self.device, &terms, waker.clone())?;
        give(&link, socket)?;
        let connection = Connection::new(link, &terms)?;
        let handled = Handled { initiator: self.clone(), connection: connection.clone() };
        waker.set(Arc::new(handled, GFP_KERNEL)?);
        report(&terms);
        let mut phase = self.phase.lock();
        match &*phase {
            Phase::Lost => {
                *phase = Phase::Connected(connection, waker.clone());
                drop(phase);
                self.changed.notify_all();
                // Also for PDUs that have arrived before.
                Waker::wake(waker.as_arc_borrow());
                Ok(())
            }
            Phase::Connected(..) | Phase::Over => {
                drop(phase);
                drop(waker.take());
                connection.end(End::NoConnection);
                Err(ESHUTDOWN)
            }
        }
    }

    /// Ends a connection that is over, and begins to make another one.
    fn lose(self: &Arc<Self>, waker: &Waker, connection: &Arc<Connection>) {
        let _ending = self.ending.lock();
        let Some(target) = waker.take() else { return };
        let is_over = {
            let mut phase = self.phase.lock();
            let is_over = matches!(&*phase, Phase::Over);
            if !is_over {
                *phase = Phase::Lost;
            }
            is_over
        };
        connection.end(if is_over { End::NoConnection } else { End::Again });
        drop(target);
        if !is_over {
            pr_info!("the connection was lost\n");
            let _ = self.queue.enqueue(self.clone());
        }
    }

    /// Tries to make a connection until the time is over.
    fn recover(self: &Arc<Self>) {
        let start = Instant::<Monotonic>::now();
        while matches!(&*self.phase.lock(), Phase::Lost) {
            let Err(error) = self.connect() else { return };
            if start.elapsed().as_millis_ceil() >= i64::from(self.settings.recovery_s) * 1000 {
                pr_err!("there is no connection to the target any more: {error:?}\n");
                *self.phase.lock() = Phase::Over;
                self.changed.notify_all();
                return;
            }
            sleep(RETRY_INTERVAL_MS);
        }
    }

    fn connected(&self) -> Option<(Arc<Connection>, Arc<Waker>)> {
        match &*self.phase.lock() {
            Phase::Connected(connection, waker) => Some((connection.clone(), waker.clone())),
            Phase::Lost | Phase::Over => None,
        }
    }

    /// Ends the session for good. There are no commands.
    fn stop(self: &Arc<Self>) {
        let connected = self.connected();
        if let Some((connection, _)) = &connected {
            connection.log_out();
        }
        let last = core::mem::replace(&mut *self.phase.lock(), Phase::Over);
        self.changed.notify_all();
        drop(last);
        if let Some((connection, waker)) = connected {
            self.lose(&waker, &connection);
        }
        self.queue.finish();
    }
}

/// The initiator as the owner of the commands of its host.
struct OfHost(Arc<Initiator>);

impl Commands for OfHost {
    unsafe fn queue(&self, raw: NonNull<bindings::kiscsi_cmnd>, index: usize) -> Result {
        // Under the lock, because the last reference to a connection must not be dropped here.
        match &*self.0.phase.lock() {
            // SAFETY: the caller promises that the host has got it just now.
            Phase::Connected(connection, _) => unsafe { connection.queue(raw, index) },
            Phase::Lost => Err(EBUSY),
            Phase::Over => Err(ENODEV),
        }
    }

    fn abort(&self, raw: NonNull<bindings::kiscsi_cmnd>, index: usize) -> Result {
        match self.0.connected() {
            Some((connection, _)) => connection.abort(raw, index),
            // All commands have been ended, or are being ended.
            None => {
                drop(self.0.ending.lock());
                Ok(())
            }
        }
    }

    fn reset(&self) -> Result {
        let Self(initiator) = self;
        if let Some((connection, waker)) = initiator.connected() {
            initiator.lose(&waker, &connection);
        }
        let mut phase = initiator.phase.lock();
        while matches!(&*phase, Phase::Lost) {
            initiator.changed.wait(&mut phase);
        }
        if matches!(&*phase, Phase::Connected(..)) { Ok(()) } else { Err(EIO) }
    }
}

/// Gives a socket to a link. The last bytes of the login may not be acknowledged yet.
fn give(link: &Link, mut socket: Socket) -> Result {
    for _ in 0..ATTACH_ATTEMPTS {
        socket = match link.attach(socket) {
            Ok(()) => return Ok(()),
            Err((socket, error)) if error == EAGAIN => socket,
            Err((_, error)) => return Err(error),
        };
        sleep(ATTACH_INTERVAL_MS);
    }
    Err(ETIMEDOUT)
}

fn sleep(milliseconds: u32) {
    kernel::time::delay::fsleep(kernel::time::Delta::from_millis(milliseconds.into()));
}

fn report(terms: &Terms) {
    let Terms { max_send, max_burst, header_digest, data_digest, .. } = terms;
    pr_info!(
        "logged in: PDUs of {max_send} bytes, bursts of {max_burst} bytes, digests of headers \
         {header_digest}, of data {data_digest}\n"
    );
}
