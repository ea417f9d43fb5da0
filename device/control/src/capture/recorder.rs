//! Starts and ends captures.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, bail};
use parking_lot::Mutex;
use vrnic_adapter::datapath::transport::peers::Fabric;
use vrnic_adapter::host::Host;

use super::Captures;
use super::file::File;
use super::queue::{Queue, Record};
use super::recording::{Recording, ToFile};

/// Maximum number of captures at a time.
const CAPTURES: usize = 8;
/// Maximum time for which a client that has ended its capture may take to read the remaining data.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The captures and their threads. All captures end on drop.
#[derive(Debug)]
pub struct Recorder<H: Host> {
    shared: Arc<Shared<H>>,
    threads: Mutex<Vec<Thread>>,
}

#[derive(Debug)]
struct Shared<H: Host> {
    captures: Arc<Captures>,
    fabric: Weak<Fabric<H>>,
    /// Held while the list of captures changes.
    changes: Mutex<()>,
    stop: AtomicBool,
}

#[derive(Debug)]
struct Thread {
    stream: UnixStream,
    handle: JoinHandle<()>,
}

impl<H: Host> Recorder<H> {
    /// Returns a recorder for the traffic of a fabric, and of the switch that uses `captures`.
    #[must_use]
    pub fn new(fabric: &Arc<Fabric<H>>, captures: &Arc<Captures>) -> Self {
        let (captures, fabric) = (Arc::clone(captures), Arc::downgrade(fabric));
        let (changes, stop) = (Mutex::default(), AtomicBool::new(false));
        let shared = Arc::new(Shared { captures, fabric, changes, stop });
        Self { shared, threads: Mutex::default() }
    }

    /// Checks that one more capture may start.
    ///
    /// # Errors
    /// Returns an error if too many captures run.
    pub fn check_room(&self) -> anyhow::Result<()> {
        if self.shared.captures.count() >= CAPTURES {
            bail!("there are {CAPTURES} captures already");
        }
        Ok(())
    }

    /// Captures at the port of this name and sends the data to a client until the client closes its
    /// half of the connection. Sends at most `snap_length` bytes of each frame, or whole frames if
    /// it is 0.
    ///
    /// # Errors
    /// Returns an error if no thread can be started, or if the socket fails.
    pub fn start(&self, port: String, snap_length: u32, stream: UnixStream) -> anyhow::Result<()> {
        stream.set_write_timeout(None)?;
        let ours = stream.try_clone()?;
        let (queue, records) = Queue::new(Some(port));
        let (shared, added) = (Arc::clone(&self.shared), Arc::clone(&queue));
        let work = move || shared.serve(&queue, &records, snap_length, stream);
        self.shared.change(|captures| captures.add(&added));
        let handle = std::thread::Builder::new().name("capture".into()).spawn(work);
        let handle = handle.context("cannot start a thread").inspect_err(|_| {
            self.shared.change(|captures| captures.remove(&added));
        })?;
        let mut threads = self.threads.lock();
        threads.retain(|thread| !thread.handle.is_finished());
        threads.push(Thread { stream: ours, handle });
        Ok(())
    }
}

impl<H: Host> Recorder<H> {
    /// Captures at all ports and writes the data to a file, until that is ended.
    ///
    /// # Errors
    /// Returns an error if no thread can be started.
    pub fn write(&self, file: std::fs::File) -> anyhow::Result<Recording> {
        let (queue, records) = Queue::new(None);
        let (shared, added) = (Arc::clone(&self.shared), Arc::clone(&queue));
        let ended = Arc::default();
        let mut client = ToFile::new(file, &ended);
        let work = move || {
            let mut file = File::new(&queue, 0);
            let followed = file.follow(&records, &mut client, &shared.stop);
            shared.change(|captures| captures.remove(&queue));
            followed.and_then(|()| file.end(&records, &mut client))?;
            Ok(queue.lost())
        };
        self.shared.change(|captures| captures.add(&added));
        let thread = std::thread::Builder::new().name("capture".into()).spawn(work);
        let thread = thread.context("cannot start a thread").inspect_err(|_| {
            self.shared.change(|captures| captures.remove(&added));
        })?;
        Ok(Recording::new(ended, thread))
    }
}

impl<H: Host> Drop for Recorder<H> {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for Thread { stream, handle } in self.threads.lock().drain(..) {
            // A thread may wait for a client that does not read.
            let _gone = stream.shutdown(Shutdown::Both);
            if handle.join().is_err() {
                tracing::error!("a capture thread panicked");
            }
        }
    }
}

impl<H: Host> Shared<H> {
    /// Changes the list of captures, and tells the adapters whether there are any.
    fn change(&self, change: impl FnOnce(&Captures)) {
        let _one_at_a_time = self.changes.lock();
        change(&self.captures);
        if let Some(fabric) = self.fabric.upgrade() {
            fabric.watch.want_all(self.captures.count() > 0);
        }
    }

    fn serve(
        &self,
        queue: &Arc<Queue>,
        records: &std::sync::mpsc::Receiver<Record>,
        snap_length: u32,
        mut stream: UnixStream,
    ) {
        let mut file = File::new(queue, snap_length);
        let followed = file.follow(records, &mut stream, &self.stop);
        self.change(|captures| captures.remove(queue));
        // From here on a client that does not read the remaining data delays only this thread.
        let ended = followed
            .and_then(|()| stream.set_write_timeout(Some(TIMEOUT)))
            .and_then(|()| file.end(records, &mut stream));
        // The recorder keeps another descriptor of the socket, so dropping this one does not close
        // it.
        let _gone = stream.shutdown(Shutdown::Both);
        let (port, lost) = (queue.port(), queue.lost());
        match ended {
            Ok(()) => tracing::info!(port, lost, "a capture has ended"),
            Err(error) => {
                tracing::info!(port, lost, %error, "a capture has ended: its client disconnected");
            }
        }
    }
}
