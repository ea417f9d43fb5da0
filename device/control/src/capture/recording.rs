//! A capture that a file of this process receives, instead of a client.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::file::Client;

/// A capture into a file that runs.
#[derive(Debug)]
pub struct Recording {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<u64>>,
}

impl Recording {
    pub(super) fn new(ended: Arc<AtomicBool>, thread: JoinHandle<io::Result<u64>>) -> Self {
        Self { ended, thread }
    }

    /// Ends the capture. Returns the number of records that are not in the file, because they came
    /// faster than they could be written.
    ///
    /// # Errors
    /// Returns the error of writing the file.
    pub fn end(self) -> io::Result<u64> {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the capture has panicked")))
    }
}

/// The file.
pub(super) struct ToFile {
    file: File,
    ended: Arc<AtomicBool>,
}

impl ToFile {
    pub(super) fn new(file: File, ended: &Arc<AtomicBool>) -> Self {
        Self { file, ended: Arc::clone(ended) }
    }
}

impl Write for ToFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Client for ToFile {
    fn has_ended(&mut self) -> io::Result<bool> {
        Ok(self.ended.load(Ordering::Relaxed))
    }
}
