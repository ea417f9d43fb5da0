//! Converts records to a pcapng file, and sends it to the client.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vrnic_pcap::block::{section_header, statistics};
use vrnic_pcap::synthesis::COMMENT;
use vrnic_pcap::{Captured, Interface};

use super::messages::Conversations;
use super::queue::{Queue, Record, What};

/// Time between two checks of whether the client has ended the capture.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Number of bytes that are written at once.
const CHUNK: usize = 256 << 10;
/// The numbers of the two interfaces: for real frames, and for frames of copied data.
const WIRE: u32 = 0;
const COPIES: u32 = 1;

/// The receiver of a capture.
pub(super) trait Client: Write {
    /// Returns whether it has ended the capture.
    ///
    /// # Errors
    /// Returns an error if it does not receive any more.
    fn has_ended(&mut self) -> io::Result<bool>;
}

impl Client for UnixStream {
    /// Returns whether the client has closed the connection or its half of it. Other data from the
    /// client is ignored.
    fn has_ended(&mut self) -> io::Result<bool> {
        let mut fds = [PollFd::new(&*self, PollFlags::IN)];
        match poll(&mut fds, Some(&Timespec::default())) {
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(false),
            Ok(_) => Ok(self.read(&mut [0; 64])? == 0),
            Err(error) => Err(error.into()),
        }
    }
}

/// A file that is being written.
pub(super) struct File<'a> {
    queue: &'a Queue,
    snap_length: u32,
    conversations: Conversations,
    /// Blocks that have not been written yet.
    out: Vec<u8>,
    /// The time of the last record.
    nanos: u64,
}

impl<'a> File<'a> {
    /// Begins a file.
    pub(super) fn new(queue: &'a Queue, snap_length: u32) -> Self {
        let mut out = section_header("vrnicd");
        for name in [queue.port().to_owned(), format!("{}, copied", queue.port())] {
            out.extend(Interface { name, snap_length }.description());
        }
        Self { queue, snap_length, conversations: Conversations::default(), out, nanos: 0 }
    }

    /// Sends records until the client ends the capture, or `stop` is set.
    ///
    /// # Errors
    /// Returns an error if the client has disconnected.
    pub(super) fn follow(
        &mut self,
        records: &Receiver<Record>,
        client: &mut impl Client,
        stop: &AtomicBool,
    ) -> io::Result<()> {
        while !stop.load(Ordering::Relaxed) && !client.has_ended()? {
            client.write_all(&self.out)?;
            self.out.clear();
            match records.recv_timeout(POLL_INTERVAL) {
                Ok(record) => self.add(record),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            while self.out.len() < CHUNK
                && let Ok(record) = records.try_recv()
            {
                self.add(record);
            }
        }
        Ok(())
    }

    /// Sends the remaining records, and the number of records that were lost.
    ///
    /// # Errors
    /// Returns an error if the client has disconnected.
    pub(super) fn end(
        mut self,
        records: &Receiver<Record>,
        client: &mut impl Client,
    ) -> io::Result<()> {
        while let Ok(record) = records.try_recv() {
            self.add(record);
            if self.out.len() >= CHUNK {
                client.write_all(&self.out)?;
                self.out.clear();
            }
        }
        self.out.extend(statistics(WIRE, self.nanos, self.queue.lost()));
        client.write_all(&self.out)
    }

    fn add(&mut self, record: Record) {
        self.queue.taken(&record);
        let Self { snap_length, out, .. } = self;
        let nanos = record.nanos;
        self.nanos = nanos;
        let copied = |frame: &[u8], note: Option<&str>, out: &mut Vec<u8>| {
            let comments = [Some(COMMENT), note];
            let captured = Captured { interface: COPIES, nanos, frame, comments };
            out.extend(captured.block(*snap_length));
        };
        match &record.what {
            What::Frame { bytes, copied: true, note } => copied(bytes, note.as_deref(), out),
            What::Frame { bytes, copied: false, note } => {
                let comments = [note.as_deref(), None];
                let captured = Captured { interface: WIRE, nanos, frame: bytes, comments };
                out.extend(captured.block(*snap_length));
            }
            What::Message(message) => {
                let note = message.note.as_deref();
                let each = &mut |frame: &[u8]| copied(frame, note, out);
                if self.conversations.show(message, nanos, each).is_err() {
                    self.queue.lose();
                }
            }
        }
    }
}
